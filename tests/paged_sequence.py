"""One sequence on pages of its own, fed to a runner piece by piece; what an engine does, without an engine."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from model.batch import Batch, Segment
from model.loading.checkpoint import Checkpoint
from model.ops.torch_ops import TorchOps
from model.runner import ModelRunner


class PagedSequence:
    """Knows how many positions were written. `pages` may be longer than what is written so far."""

    def __init__(self, pages: Sequence[int]) -> None:
        self.pages = tuple(pages)
        self.length = 0

    def segment(self, token_ids: Sequence[int], *, asks: int = 1) -> Segment:
        """The next rows; the sequence then counts them as written."""
        segment = Segment(tuple(token_ids), self.length, self.pages, asks)
        self.length += len(token_ids)
        return segment

    def feed(self, runner: ModelRunner, token_ids: Sequence[int]) -> Any:
        """Run the next rows alone; the logits [vocabulary] of the last."""
        return runner.forward(Batch((self.segment(token_ids),)))[0]

    def feed_in_pieces(self, runner: ModelRunner, token_ids: Sequence[int], size: int) -> Tensor:
        """The logits [pieces, vocabulary] of each piece's last row."""
        return torch.stack([self.feed(runner, token_ids[i : i + size]) for i in range(0, len(token_ids), size)])


def float64_ops(checkpoint: Checkpoint, page_count: int) -> TorchOps:
    """Every position of every page is NaN until it is written."""
    ops = TorchOps(checkpoint.config, page_count, dtype=torch.float64)
    ops.pages.fill_(torch.nan)
    return ops


def float64_runner(checkpoint: Checkpoint, page_count: int) -> ModelRunner:
    return ModelRunner(float64_ops(checkpoint, page_count), checkpoint)
