"""The model as the engine sees it: a ragged batch of integers in, logits out.

Knows no requests and no tensors. Always: a batch that breaks its own rules is stopped before any page is written.
"""

from typing import Any

from model.batch import Batch, PageCopy, Segment
from model.kv_cache import PAGE_SIZE
from model.loading.checkpoint import Checkpoint
from model.ops.protocol import OpSet
from model.transformer import ModelWeights, Transformer


class ModelRunner:
    """A checkpoint's decoder on an op set."""

    def __init__(self, ops: OpSet[Any, Any, Any], checkpoint: Checkpoint) -> None:
        transformer = Transformer(ops, checkpoint.config, ModelWeights.load(ops, checkpoint))
        self._page_count = ops.page_count
        self._context_length = checkpoint.config.context_length
        self._program = ops.program(transformer.forward)

    def forward(self, batch: Batch) -> Any:
        """Run every row; return logits [asked rows, vocabulary] in the op set's own form."""
        self._check(batch)
        return self._program.run(batch)

    def _check(self, batch: Batch) -> None:
        assert batch.segments, "a step without rows"
        for copy in batch.copies:
            self._check_copy(copy)
        written: set[int] = set()
        for segment in batch.segments:
            pages = self._pages_written(segment)
            assert written.isdisjoint(pages), "two segments write one page"
            written |= pages

    def _check_copy(self, copy: PageCopy) -> None:
        assert 0 <= copy.source < self._page_count, "copied page out of range"
        assert 0 <= copy.target < self._page_count, "copied page out of range"
        assert 0 < copy.positions <= PAGE_SIZE, "copy of no position, or of more than a page"

    def _pages_written(self, segment: Segment) -> set[int]:
        end = segment.start + len(segment.token_ids)
        assert 0 <= segment.start < end <= self._context_length, "segment is empty or leaves the context"
        assert 0 <= segment.asks <= len(segment.token_ids), "more rows are asked for than there are"
        assert end <= len(segment.pages) * PAGE_SIZE, "pages do not cover the segment's positions"
        assert min(segment.pages) >= 0, "page out of range"
        assert max(segment.pages) < self._page_count, "page out of range"
        return set(segment.pages[segment.start // PAGE_SIZE : (end - 1) // PAGE_SIZE + 1])
