"""A runner whose multiplications are counted, by the rule of theorem 7.3: a product of a × b and b × c takes abc.

The chapter's feed-forward has two matrices and ours has three, so the gate's are counted apart; so are the head's,
which the chapter leaves out.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from model.config import ModelConfig
from model.kv_cache import pages_for
from model.loading.tensor import StoredTensor
from model.ops.torch_ops import TorchOps
from model.runner import ModelRunner
from tests.memory_checkpoint import memory_checkpoint
from tests.paged_sequence import PagedSequence
from tests.tiny_model import TinyShape

CHAPTER_PARTS = ("query", "key", "value", "attention_output", "up", "down", "attention")
"""What the chapter counts; `up` and `down` are the two matrices of its feed-forward."""


class AttentionCounter(TorchFunctionMode):
    """Counts the products of queries with keys, and of weights with values, in the calls really made."""

    count = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is functional.scaled_dot_product_attention:
            queries, keys, values = args
            self.count += queries.numel() * keys.shape[2] + queries.shape[:3].numel() * values.shape[2:].numel()
        return func(*args, **(kwargs or {}))


class CountingOps(TorchOps):
    """Counts the multiplications of every linear map by the name of its tensor, and those of attention."""

    def __init__(self, config: ModelConfig, page_count: int) -> None:
        super().__init__(config, page_count, dtype=torch.float64)
        self.pages.fill_(torch.nan)
        self.counts: Counter[str] = Counter()
        self.hidden: list[Tensor] = []
        """What every residual sum returned: rows of h, after attention and after the feed-forward."""
        self._parts: dict[int, tuple[StoredTensor, ...]] = {}

    def matrix(self, *parts: StoredTensor) -> Tensor:
        matrix = super().matrix(*parts)
        self._parts[id(matrix)] = parts
        return matrix

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        for part in self._parts[id(weight)]:
            self.counts[part.name.rpartition(".")[2]] += x.numel() * part.shape[0]
        return super().linear(x, weight)

    def attend(self, layer: int, queries: Tensor) -> Tensor:
        with AttentionCounter() as counter:
            attended = super().attend(layer, queries)
        self.counts["attention"] += counter.count
        return attended

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        self.hidden.append(super().add(x, y))
        return self.hidden[-1]


class Counted:
    """A runner whose work is counted. Positions are NaN until they are written."""

    def __init__(self, shape: TinyShape, positions: int) -> None:
        self.checkpoint = memory_checkpoint(shape)
        self.ops = CountingOps(self.checkpoint.config, pages_for(positions))
        self.runner = ModelRunner(self.ops, self.checkpoint)

    def sequence(self, length: int = 0) -> PagedSequence:
        sequence = PagedSequence(range(self.ops.page_count))
        sequence.length = length
        return sequence

    def feed(self, token_ids: Sequence[int], *, start: int = 0) -> Tensor:
        """Run these rows from position `start` on; the logits [vocabulary] of the last."""
        logits: Tensor = self.sequence(start).feed(self.runner, token_ids)
        return logits

    @property
    def cached(self) -> Tensor:
        """Keys and values [layers, positions, numbers], NaN where nothing was written."""
        return self.ops.pages.permute(0, 3, 4, 1, 2, 5).flatten(3).flatten(1, 2)

    @property
    def chapter_count(self) -> int:
        return sum(self.ops.counts[part] for part in CHAPTER_PARTS)


def with_cache(counted: Counted, ids: Sequence[int]) -> Tensor:
    """Each position once; logits [positions, vocabulary]."""
    return torch.stack([counted.feed(ids[t : t + 1], start=t) for t in range(len(ids))])


def without_cache(counted: Counted, ids: Sequence[int]) -> Tensor:
    """For each position the whole sequence up to it, computed anew; logits [positions, vocabulary]."""
    return torch.stack([counted.feed(ids[: t + 1]) for t in range(len(ids))])
