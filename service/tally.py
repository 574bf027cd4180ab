"""What one engine step did, counted while it happens and read once as a `StepReport`.

Knows numbers only. Always: reading empties it, so each thing is reported once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from service.request import EvictionReason
from service.step_report import StepReport


@dataclass(slots=True)
class Tally:
    """Counts since the last report."""

    prefill_rows: int = 0
    decode_rows: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0
    queue_s: list[float] = field(default_factory=list)
    time_to_first_token_s: list[float] = field(default_factory=list)
    inter_token_s: list[float] = field(default_factory=list)
    request_s: list[float] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    preemptions: int = 0

    def report(
        self,
        *,
        step_s: float,
        evicted: Mapping[EvictionReason, int],
        running: int,
        queued: int,
        pages: tuple[int, int, int],
    ) -> StepReport:
        """`pages` are free, idle and leased."""
        return StepReport(
            prefill_rows=self.prefill_rows,
            decode_rows=self.decode_rows,
            step_s=step_s,
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.generated_tokens,
            queried_tokens=self.queried_tokens,
            hit_tokens=self.hit_tokens,
            evicted_tokens=evicted,
            queue_s=tuple(self.queue_s),
            time_to_first_token_s=tuple(self.time_to_first_token_s),
            inter_token_s=tuple(self.inter_token_s),
            request_s=tuple(self.request_s),
            outcomes=tuple(self.outcomes),
            running=running,
            queued=queued,
            free_pages=pages[0],
            idle_pages=pages[1],
            leased_pages=pages[2],
            ran=bool(self.prefill_rows or self.decode_rows),
            drafted_tokens=self.drafted_tokens,
            accepted_tokens=self.accepted_tokens,
            preemptions=self.preemptions,
        )
