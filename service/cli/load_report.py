"""What one stream looked like from outside, and what many of them say together. Pure values and arithmetic.

Times are seconds on one monotonic clock.
Always: a failed stream adds to the errors and to nothing else.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from service.cli.load_places import Places, places_of
from service.cli.statistics import Summary, summarise

MILLISECONDS = 1000

Counted = Literal["usage", "chunks", "mixed"]


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """One request. `arrivals` are the times of the chunks that carried tokens."""

    started: float
    ended: float
    arrivals: tuple[float, ...]
    asked_tokens: int
    prompt_tokens: int | None
    cached_tokens: int | None
    """Of the prompt's tokens those that the server had; None when it does not say."""
    usage_tokens: int | None
    """Generated tokens as the server counts them; None when it does not say."""
    error: str | None
    affinity: str | None = None
    """Its `x-session-id`."""
    replica: str | None = None
    """Who answered, when the server says."""

    @property
    def generated_tokens(self) -> int:
        """As the server counts them, else one for each chunk."""
        return len(self.arrivals) if self.usage_tokens is None else self.usage_tokens

    @property
    def time_to_first_token(self) -> float:
        return self.arrivals[0] - self.started

    @property
    def gaps(self) -> list[float]:
        """Seconds between one chunk with tokens and the next."""
        return [later - earlier for earlier, later in pairwise(self.arrivals)]

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Tokens after the first chunk's, per second; None when all came at once."""
        seconds = self.arrivals[-1] - self.arrivals[0]
        return (self.generated_tokens - 1) / seconds if seconds > 0 else None

    @property
    def seconds_per_token(self) -> float | None:
        """From the first token to the last, for each token after the first; None when there is no other."""
        others = self.generated_tokens - 1
        return (self.arrivals[-1] - self.arrivals[0]) / others if others > 0 else None


@dataclass(frozen=True, slots=True)
class Objective:
    """What a good request keeps to, in milliseconds: the time to its first token, and the mean time between tokens."""

    ttft_ms: float | None
    itl_ms: float | None

    def is_met_by(self, record: StreamRecord) -> bool:
        if record.error is not None:
            return False
        between = record.seconds_per_token
        first_in_time = self.ttft_ms is None or record.time_to_first_token * MILLISECONDS <= self.ttft_ms
        return first_in_time and (self.itl_ms is None or between is None or between * MILLISECONDS <= self.itl_ms)


@dataclass(frozen=True, slots=True)
class Goodput:
    """Requests that met the objective. The share is one of all requests, failed ones too."""

    requests: int
    share: float
    requests_per_second: float


@dataclass(frozen=True, slots=True)
class LevelReport:
    """One level of load. Rates count successful streams over the whole level's time."""

    load: str
    """With its unit."""
    value: float
    requests: int
    errors: Mapping[str, int]
    wall_s: float
    counted: Counted | None
    """Where the numbers of tokens come from: the server's usage, or the chunks of its streams."""
    prompt_tokens: int | None
    cached_tokens: int | None
    generated_tokens: int
    short_answers: int
    """Streams that ended with fewer tokens than were asked for."""
    tokens_per_second: float
    requests_per_second: float
    time_to_first_token_s: Summary | None
    inter_token_latency_s: Summary | None
    request_s: Summary | None
    stream_tokens_per_second: Summary | None
    goodput: Goodput | None
    """None where no objective was set."""
    places: Places | None
    """None where no server named itself."""

    @property
    def succeeded(self) -> int:
        return self.requests - sum(self.errors.values())


def level_report(
    load: str, value: float, records: Sequence[StreamRecord], wall_s: float, objective: Objective | None = None
) -> LevelReport:
    """Put the records of one level together."""
    good = [record for record in records if record.error is None]
    generated = sum(record.generated_tokens for record in good)
    rates = [rate for record in good if (rate := record.decode_tokens_per_second) is not None]
    return LevelReport(
        load=load,
        value=value,
        requests=len(records),
        errors=dict(Counter(record.error for record in records if record.error is not None)),
        wall_s=wall_s,
        counted=_counted(good),
        prompt_tokens=_sum_if_known([record.prompt_tokens for record in good]),
        cached_tokens=_sum_if_known([record.cached_tokens for record in good]),
        generated_tokens=generated,
        short_answers=sum(record.generated_tokens < record.asked_tokens for record in good),
        tokens_per_second=generated / wall_s,
        requests_per_second=len(good) / wall_s,
        time_to_first_token_s=summarise([record.time_to_first_token for record in good]),
        inter_token_latency_s=summarise([gap for record in good for gap in record.gaps]),
        request_s=summarise([record.ended - record.started for record in good]),
        stream_tokens_per_second=summarise(rates),
        goodput=_goodput(records, wall_s, objective),
        places=places_of(records),
    )


def _counted(records: Sequence[StreamRecord]) -> Counted | None:
    ways = {"chunks" if record.usage_tokens is None else "usage" for record in records}
    if len(ways) > 1:
        return "mixed"
    return "usage" if "usage" in ways else "chunks" if ways else None


def _goodput(records: Sequence[StreamRecord], wall_s: float, objective: Objective | None) -> Goodput | None:
    if objective is None:
        return None
    met = sum(objective.is_met_by(record) for record in records)
    return Goodput(met, met / len(records), met / wall_s)


def _sum_if_known(counts: Sequence[int | None]) -> int | None:
    """The sum over all streams; None when any server count is missing."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
