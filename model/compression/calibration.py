"""Text on its way through a model, layer after layer: what the matrices of each read, and what the next one gets.

Runs on the torch op set in float32. Knows no recipes: the caller says with which weights a layer is passed, so that
compressed layers feed the next. Always: windows do not see each other, and only one layer's weights are held.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.batch import Batch, Segment
from model.compression.hessian import HessianSum, Matrix
from model.config import ModelConfig
from model.kv_cache import pages_for
from model.loading.tensor import StoredTensor
from model.ops.torch_ops import TorchOps
from model.transformer import LayerWeights, load_layer, run_layer

Input = Literal["query_key_value", "attention_output", "upward", "down"]
"""What is read in a layer, named after the stacked matrix that reads it."""
INPUT_OF: Mapping[str, Input] = {
    "query": "query_key_value",
    "key": "query_key_value",
    "value": "query_key_value",
    "attention_output": "attention_output",
    "gate": "upward",
    "up": "upward",
    "down": "down",
}
"""For each matrix of a layer what it reads."""
ROWS_AT_ONCE = 4096

Layer = Mapping[str, StoredTensor]
"""The tensors of one layer, as `Checkpoint.layer` names them."""
Hidden = NDArray[np.float32]
OnInput = Callable[[Input, Tensor], None]


def use_threads(count: int) -> None:
    """Let torch compute on so many threads in this process."""
    torch.set_num_threads(count)


class HiddenStates:
    """What enters the next layer, for every token of a text."""

    def __init__(self, embedding: StoredTensor, windows: Sequence[Sequence[int]], scale: float = 1.0) -> None:
        """The embedded text, times `scale`. Windows of token ids have the same length."""
        self.states: Hidden = embedding.dequantised()[np.asarray(windows)] * np.float32(scale)
        """[windows, positions, width]"""

    @property
    def tokens(self) -> int:
        return int(self.states.shape[0] * self.states.shape[1])

    def hessians(self, config: ModelConfig, layer: Layer) -> dict[Input, Matrix]:
        """H = 2/N Σ x xᵀ of what the matrices of a layer read. Nothing moves on.

        config: whose first layer is like this one.
        """
        sums: dict[Input, HessianSum] = {}

        def on_input(name: Input, x: Tensor) -> None:
            sums.setdefault(name, HessianSum(x.shape[1])).add(x.numpy())

        for _ in self._passed(config, layer, on_input):
            pass
        return {name: each.mean() for name, each in sums.items()}

    def advance(self, config: ModelConfig, layer: Layer) -> float:
        """Pass a layer. Returns 1 less the mean cosine between a token's states before and after it.

        That is the block influence of Men et al. 2024: how far the layer turns what passes it.
        """
        cosines = 0.0
        for rows, after in self._passed(config, layer):
            before = self.states[rows]
            cosines += float(_cosines(before, after).sum())
            self.states[rows] = after
        return 1.0 - cosines / self.tokens

    def _passed(
        self, config: ModelConfig, layer: Layer, on_input: OnInput | None = None
    ) -> Iterator[tuple[slice, Hidden]]:
        """A few windows at a time: which, and their states behind the layer [windows, positions, width]."""
        count, length, _ = self.states.shape
        at_once = max(ROWS_AT_ONCE // length, 1)
        ops = _WatchedOps(config.of_layer(0), at_once * pages_for(length))
        weights = load_layer(ops, config.family.gate, layer)
        if on_input is not None:
            ops.watch(weights, on_input)
        for first in range(0, count, at_once):
            rows = slice(first, min(first + at_once, count))
            yield rows, _run(ops, config, weights, self.states[rows])


class _WatchedOps(TorchOps):
    """The torch op set, which tells what the matrices of one layer are multiplied with."""

    _names: Mapping[int, Input] = {}
    _on_input: OnInput

    def watch(self, layer: LayerWeights[Tensor, Tensor], on_input: OnInput) -> None:
        self._names = {id(getattr(layer, name).matrix): name for name in get_args(Input)}
        self._on_input = on_input

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        if name := self._names.get(id(weight)):
            self._on_input(name, x)
        return super().linear(x, weight)


@torch.inference_mode()
def _run(ops: TorchOps, config: ModelConfig, weights: LayerWeights[Tensor, Tensor], states: Hidden) -> Hidden:
    count, length, width = states.shape
    pages = pages_for(length)
    # The op set asks for ids, and embeds none: the states are there already.
    ids = (0,) * length
    ops.start(Batch(tuple(Segment(ids, 0, tuple(range(i * pages, (i + 1) * pages)), asks=0) for i in range(count))))
    after: Hidden = run_layer(ops, config, 0, weights, torch.from_numpy(states.reshape(-1, width))).numpy()
    return after.reshape(states.shape)


def _cosines(before: Hidden, after: Hidden) -> NDArray[np.float64]:
    one, other = before.astype(np.float64), after.astype(np.float64)
    norms = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    dots = (one * other).sum(axis=-1)
    cosines: NDArray[np.float64] = np.divide(dots, norms, out=np.ones_like(dots), where=norms > 0)
    return cosines
