"""What one engine step did: the only thing that the engine tells the metrics.

Knows numbers only. Always: each token, row and ended request is in exactly one report.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from service.request import EvictionReason


@dataclass(frozen=True, slots=True)
class StepReport:
    """Counts of one step; `running`, `queued` and the pages are as they stand after it. Times are seconds."""

    prefill_rows: int
    decode_rows: int
    step_s: float
    prompt_tokens: int
    """Of requests admitted in this step; cached ones included."""
    generated_tokens: int
    """Committed in this step."""
    queried_tokens: int
    """Prompt tokens of requests admitted in this step that the prefix cache was asked for."""
    hit_tokens: int
    """Those of them that the cache held."""
    evicted_tokens: Mapping[EvictionReason, int]
    queue_s: tuple[float, ...]
    """Of requests admitted in this step."""
    time_to_first_token_s: tuple[float, ...]
    inter_token_s: tuple[float, ...]
    request_s: tuple[float, ...]
    """Whole lives of requests that ended in this step."""
    outcomes: tuple[str, ...]
    """Of requests that ended in this step: choice 0's finish reason, or the failure code."""
    running: int
    queued: int
    free_pages: int
    idle_pages: int
    leased_pages: int
    ran: bool
    """False when no row ran and the report is bookkeeping only."""
    drafted_tokens: int = 0
    """Guessed ahead in this step."""
    accepted_tokens: int = 0
    """Those of them that became part of a text."""
    preemptions: int = 0
    """Requests that gave their pages back in this step, to go on later."""
