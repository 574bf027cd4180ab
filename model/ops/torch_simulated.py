"""Torch in float32 from numbers that are rounded where the native op set rounds them: what its arithmetic costs.

Rounded are the weights that the native memory cannot hold as stored; what enters a linear layer, to 8 bits for each row
and group of 32; keys and values, to 8 bits for each position and head. The sums themselves are torch's, and so are
norms, exponentials and attention, whose queries and weights the native op set holds in 16 bits.
Always: a row is rounded by its own numbers alone.
"""

import numpy as np
import torch
from torch import Tensor

from model.config import ModelConfig
from model.loading.tensor import StoredTensor
from model.native import _native
from model.ops.native_forms import weight_form
from model.ops.torch_ops import TorchOps

GROUP = 32
MOST_CODE = 127.0
LEAST = 2.0**-100
"""A group whose greatest magnitude is below is zero."""


class SimulatedOps(TorchOps):
    """An `OpSet` of float32 tensors on the CPU."""

    def __init__(self, config: ModelConfig, page_count: int) -> None:
        super().__init__(config, page_count)

    def matrix(self, *parts: StoredTensor) -> Tensor:
        """Raises ValueError for a grid that no kernel runs."""
        form = weight_form(parts, "int8")
        held = [part.dequantised() for part in parts]
        for index, is_kept in enumerate(form.kept):
            if not is_kept:
                rows = np.ascontiguousarray(held[index])
                held[index] = _native.round_rows(rows, form.eight_bits, form.centred, form.half_scales)
        return torch.from_numpy(np.concatenate(held))

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return super().linear(rounded(x, GROUP), weight)

    def _written(self, layer: int, keys: Tensor, values: Tensor) -> Tensor:
        return rounded(super()._written(layer, keys, values), self._head_width)


def rounded(x: Tensor, group: int) -> Tensor:
    """Each group of neighbours in the last dimension as whole multiples of 1/127 of its greatest magnitude.

    Half to even, in float32, as `activations.hpp` and `kv_pages.hpp` say; NaN where a group is not finite.
    """
    grouped = x.reshape(*x.shape[:-1], -1, group)
    top = grouped.abs().amax(-1, keepdim=True)
    inverse = torch.where(top < LEAST, torch.zeros_like(top), MOST_CODE / top)
    codes = (grouped * inverse).round().clamp(-MOST_CODE, MOST_CODE)
    return (codes * (top / MOST_CODE)).reshape(x.shape)
