"""A ragged batch of integers: what one step runs. Knows no tensors and no requests.

Always: copies happen in order, before any row is written; within a segment positions are consecutive.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageCopy:
    """Copy the first `positions` positions of page `source` into page `target`, in every layer."""

    source: int
    target: int
    positions: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rows of one sequence: one decode row, or a chunk of a prompt.

    `pages[i]` holds positions 32·i … 32·i + 31 of the sequence; they cover every position up to the last row.
    """

    token_ids: tuple[int, ...]
    start: int
    pages: tuple[int, ...]
    asks: int
    """How many of its last rows' logits are wanted."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The segments of one step, in the order in which their logits come back."""

    segments: tuple[Segment, ...]
    copies: tuple[PageCopy, ...] = ()

    @property
    def row_count(self) -> int:
        return sum(len(segment.token_ids) for segment in self.segments)

    def asked_rows(self) -> list[int]:
        """Which rows' logits are wanted, counted through all segments, in the order in which they come back."""
        rows: list[int] = []
        end = 0
        for segment in self.segments:
            end += len(segment.token_ids)
            rows += range(end - segment.asks, end)
        return rows
