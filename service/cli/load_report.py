"""What one stream looked like from outside, and what many of them say together. Pure values and arithmetic.

Times are seconds on one monotonic clock.
Always: a failed stream adds to the errors and to nothing else.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from service.cli.statistics import Summary, summarise

Counted = Literal["usage", "chunks", "mixed"]


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """One request. `arrivals` are the times of the chunks that carried tokens."""

    started: float
    ended: float
    arrivals: tuple[float, ...]
    prompt_tokens: int | None
    usage_tokens: int | None
    """Generated tokens as the server counts them; None when it does not say."""
    error: str | None

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


@dataclass(frozen=True, slots=True)
class LevelReport:
    """One level of concurrency. Rates count successful streams over the whole level's time."""

    concurrency: int
    requests: int
    errors: Mapping[str, int]
    wall_s: float
    counted: Counted | None
    """Where the numbers of tokens come from: the server's usage, or the chunks of its streams."""
    prompt_tokens: int | None
    generated_tokens: int
    short_answers: int
    """Streams that ended with fewer tokens than were asked for."""
    tokens_per_second: float
    requests_per_second: float
    time_to_first_token_s: Summary | None
    inter_token_latency_s: Summary | None
    request_s: Summary | None
    stream_tokens_per_second: Summary | None

    @property
    def succeeded(self) -> int:
        return self.requests - sum(self.errors.values())


def level_report(concurrency: int, records: Sequence[StreamRecord], wall_s: float, asked_tokens: int) -> LevelReport:
    """Put the records of one level together."""
    good = [record for record in records if record.error is None]
    generated = sum(record.generated_tokens for record in good)
    rates = [rate for record in good if (rate := record.decode_tokens_per_second) is not None]
    return LevelReport(
        concurrency=concurrency,
        requests=len(records),
        errors=dict(Counter(record.error for record in records if record.error is not None)),
        wall_s=wall_s,
        counted=_counted(good),
        prompt_tokens=_prompt_tokens(good),
        generated_tokens=generated,
        short_answers=sum(record.generated_tokens < asked_tokens for record in good),
        tokens_per_second=generated / wall_s,
        requests_per_second=len(good) / wall_s,
        time_to_first_token_s=summarise([record.time_to_first_token for record in good]),
        inter_token_latency_s=summarise([gap for record in good for gap in record.gaps]),
        request_s=summarise([record.ended - record.started for record in good]),
        stream_tokens_per_second=summarise(rates),
    )


def _counted(records: Sequence[StreamRecord]) -> Counted | None:
    ways = {"chunks" if record.usage_tokens is None else "usage" for record in records}
    if len(ways) > 1:
        return "mixed"
    return "usage" if "usage" in ways else "chunks" if ways else None


def _prompt_tokens(records: Sequence[StreamRecord]) -> int | None:
    """The sum over all streams; None when any server count is missing."""
    counts = [record.prompt_tokens for record in records]
    return None if not counts or None in counts else sum(count for count in counts if count is not None)
