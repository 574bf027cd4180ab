"""Models that predict: torch in float32, torch that rounds as the native op set does, and the native op set itself.

Knows checkpoints; knows no text. Always: a prediction sees what stands before it in its window only; torch is loaded by
the predictors that use it and by nothing else.
"""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from model.batch import Batch, Segment
from model.decoding.params import Draw
from model.evaluation.agreement import Logits
from model.kv_cache import pages_for
from model.loading.checkpoint import Checkpoint
from model.ops.native_forms import WeightType
from model.ops.native_ops import Isa, KvType, NativeOps
from model.ops.protocol import OpSet
from model.runner import ModelRunner

_GREEDY = Draw(row=0, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, uniform=0.0)


class Predictor:
    """A checkpoint on an op set, for texts of up to `width` tokens, one at a time."""

    def __init__(self, ops: OpSet[Any, Any, Any], checkpoint: Checkpoint) -> None:
        """Raises ValueError when the op set cannot hold the weights."""
        self._ops = ops
        self._runner = ModelRunner(ops, checkpoint)

    def logits(self, ids: Sequence[int]) -> Logits:
        """[ids, vocabulary]: row i predicts what follows ids[: i + 1]."""
        return self._run(ids, 0, asks=len(ids))

    def greedy(self, prompt: Sequence[int], count: int, ends: Collection[int] = ()) -> tuple[int, ...]:
        """The likeliest tokens one after another, up to `count`, or up to and with the first that ends a text."""
        logits = self._step(prompt, 0)
        found: list[int] = []
        while True:
            found.append(self._likeliest(logits))
            if len(found) == count or found[-1] in ends:
                return tuple(found)
            logits = self._step(found[-1:], len(prompt) + len(found) - 1)

    def seconds_per_token(
        self, prompt: Sequence[int], count: int, clock: Callable[[], float] = time.perf_counter
    ) -> float:
        """The time of a greedy token of one stream, over `count` of them behind the prompt."""
        token = self._likeliest(self._step(prompt, 0))
        began = clock()
        for index in range(count):
            token = self._likeliest(self._step((token,), len(prompt) + index))
        return (clock() - began) / count

    def _run(self, ids: Sequence[int], start: int, *, asks: int) -> Logits:
        logits: Logits = self._forward(ids, start, asks).numpy()
        return logits

    def _step(self, ids: Sequence[int], start: int) -> Any:
        return self._forward(ids, start, 1)

    def _forward(self, ids: Sequence[int], start: int, asks: int) -> Any:
        pages = tuple(range(pages_for(start + len(ids))))
        return self._runner.forward(Batch((Segment(tuple(ids), start, pages, asks),)))

    def _likeliest(self, logits: Any) -> int:
        """Raises ValueError when a number of the row is not finite."""
        (drawn,) = self._ops.choose(logits, [_GREEDY])
        if drawn.token_id is None:
            raise ValueError("the model predicts nothing: its logits are not finite")
        return drawn.token_id


def torch_predictor(checkpoint: Checkpoint, width: int, *, threads: int | None = None) -> Predictor:
    """Predictions of torch in float32. `threads`: how many torch uses from now on."""
    from model.ops.torch_ops import TorchOps

    _set_threads(threads)
    return Predictor(TorchOps(checkpoint.config, pages_for(width)), checkpoint)


def simulated_predictor(checkpoint: Checkpoint, width: int, *, threads: int | None = None) -> Predictor:
    """Predictions of torch in float32 from numbers that are rounded where the native op set rounds them."""
    from model.ops.torch_simulated import SimulatedOps

    _set_threads(threads)
    return Predictor(SimulatedOps(checkpoint.config, pages_for(width)), checkpoint)


def native_predictor(
    checkpoint: Checkpoint,
    width: int,
    *,
    threads: int = 1,
    kv_type: KvType = "int8",
    isa: Isa = "auto",
    weight_type: WeightType = "int8",
) -> Predictor:
    """Predictions of the native op set. Raises ValueError when no kernel runs the model."""
    ops = NativeOps(
        checkpoint.config, pages_for(width), threads=threads, kv_type=kv_type, isa=isa, weight_type=weight_type
    )
    return Predictor(ops, checkpoint)


def _set_threads(threads: int | None) -> None:
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
