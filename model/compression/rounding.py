"""How far a format moves weights: the sums that make a relative error, of a tensor, a kind or a model.

Knows numbers only. Always: sums are in float64, so errors of parts add up to that of the whole.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Rounding:
    """Some weights and what was changed of them: sums over their squares."""

    weights: int
    squares: float
    squared_errors: float

    @property
    def relative_rms_error(self) -> float:
        """Root of the mean squared error over that of the mean square; 0 for weights that are all 0."""
        return math.sqrt(self.squared_errors / self.squares) if self.squares else 0.0

    def __add__(self, other: "Rounding") -> "Rounding":
        return Rounding(
            self.weights + other.weights, self.squares + other.squares, self.squared_errors + other.squared_errors
        )


_NUMBERS_AT_ONCE = 1 << 20
"""An embedding has hundreds of millions, of which float64 copies would take gigabytes."""

NOTHING = Rounding(0, 0.0, 0.0)


def by_kind(rounded: Mapping[str, Rounding]) -> dict[str, Rounding]:
    """From tensors by name to kinds of them: `query`, `down`, `embedding` …"""
    kinds: defaultdict[str, Rounding] = defaultdict(lambda: NOTHING)
    for name, rounding in rounded.items():
        kinds[name.rpartition(".")[2]] += rounding
    return dict(kinds)


def rounding_of(weights: NDArray[np.float32], rounded: NDArray[np.float32]) -> Rounding:
    """From float32 of any one shape to what became of them."""
    return Rounding(weights.size, _sum_of_squares(weights), _sum_of_squares(rounded - weights))


def _sum_of_squares(numbers: NDArray[np.float32]) -> float:
    flat = numbers.reshape(-1)
    pieces = (flat[first : first + _NUMBERS_AT_ONCE] for first in range(0, flat.size, _NUMBERS_AT_ONCE))
    return math.fsum(float(np.square(piece, dtype=np.float64).sum()) for piece in pieces)
