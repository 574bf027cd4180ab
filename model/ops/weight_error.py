"""What loading does to weights that the native op set cannot keep as stored: how far packing moves them.

Knows packed forms; runs no model. Always: what is rounded is what loading would round, since the same code decides.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np

from model.compression.rounding import NOTHING, Rounding, rounding_of
from model.loading.checkpoint import Checkpoint
from model.loading.tensor import StoredTensor
from model.native import _native
from model.ops.native_forms import WeightForm, WeightType, weight_form
from model.ops.native_ops import PACK_ROWS
from model.transformer import ModelWeights


@dataclass(frozen=True, slots=True)
class LoadedWeights:
    """A checkpoint's matrices as the native op set would hold them."""

    kept: int
    """Weights held as stored."""
    rounded: Mapping[str, Rounding]
    """All others, by the kind of their tensor: `query`, `down`, `embedding` …"""

    @property
    def overall(self) -> Rounding:
        return sum(self.rounded.values(), NOTHING)


def weights_as_loaded(checkpoint: Checkpoint, weight_type: WeightType) -> LoadedWeights:
    """Pack what would be rounded, and unpack it again. Raises ValueError when a matrix cannot be packed."""
    taker = _Taker(weight_type)
    ModelWeights.load(cast(Any, taker), checkpoint)
    return LoadedWeights(taker.kept, dict(taker.rounded))


class _Taker:
    """Takes weights as an op set does, and keeps sums of them only."""

    def __init__(self, weight_type: WeightType) -> None:
        self._weight_type = weight_type
        self.kept = 0
        self.rounded: defaultdict[str, Rounding] = defaultdict(lambda: NOTHING)

    def matrix(self, *parts: StoredTensor) -> None:
        form = weight_form(parts, self._weight_type)
        for part, is_kept in zip(parts, form.kept, strict=True):
            if is_kept:
                self.kept += prod(part.shape)
            else:
                self.rounded[part.name.rpartition(".")[2]] += sum(_roundings(part, form), NOTHING)

    def vector(self, *parts: StoredTensor) -> None:
        """Gains and biases stay as they are."""


def _roundings(part: StoredTensor, form: WeightForm) -> Iterator[Rounding]:
    stored = part.rows()
    for first in range(0, len(stored), PACK_ROWS):
        blocks = stored[first : first + PACK_ROWS].reshape(-1, part.format.block_bytes)
        values = np.ascontiguousarray(part.format.unpack(blocks).reshape(-1, part.shape[1]))
        yield rounding_of(values, _native.round_rows(values, form.eight_bits, form.centred, form.half_scales))
