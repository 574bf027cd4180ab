"""GPTQ: codes for a matrix, column after column, each rounding error made up for by the columns that follow.

Frantar et al. 2023, with groups that are fixed before the sweep ("static groups"), so the order of the sweep needs no
trace in the result. Knows one matrix and its Hessian. Always: codes are the nearest to weights as compensated so far.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.compression.grids import GridSpec, Levels, fit
from model.compression.hessian import FIRST_DAMPENING, Matrix, Vector
from model.compression.matrix import Codes, GridMatrix, Mask
from model.compression.sweep import BLOCK, prepared, sweep


@dataclass(frozen=True, slots=True, eq=False)
class Quantised:
    """A matrix on a grid, and how it came there.

    Args:
        matrix: codes on levels.
        loss: ½ tr (W - Q) H (W - Q)ᵀ under the dampened Hessian; None when there was none.
        dampening: the share of the mean diagonal that it took; None when none made the Hessian invertible, and weights
            were rounded to nearest instead.
        dead_columns: inputs that were always zero; their weights were set to zero.
    """

    matrix: GridMatrix
    loss: float | None
    dampening: float | None
    dead_columns: int

    @property
    def fell_back(self) -> bool:
        """Whether nothing could be compensated."""
        return self.dampening is None


class Rounding:
    """Columns at the nearest levels, pruned weights at exactly zero.

    Args:
        levels: in the matrix's own order of columns.
        order: the columns of the matrix in the order of the sweep.
    """

    lookahead = 1

    def __init__(self, levels: Levels, order: NDArray[np.intp]) -> None:
        self._levels = levels
        self._order = order
        self._codes: Codes = np.empty((len(levels.scales), len(order)), np.uint8)

    def matrix(self, mask: Mask | None = None) -> GridMatrix:
        """What was chosen, once all columns have been replaced."""
        return self._levels.matrix(self._codes, mask)

    def replace(self, column: int, ahead: Matrix, pivots: Vector) -> Vector:
        return self.rounded(column, ahead[:, 0])

    def rounded(self, column: int, weights: Vector) -> Vector:
        """The levels nearest to weights in one column of the sweep [rows]."""
        own = int(self._order[column])
        self._codes[:, own] = self._levels.codes(own, weights)
        return self._levels.values(own, self._codes[:, own])


def gptq(
    weights: Matrix,
    hessian: Matrix,
    spec: GridSpec,
    *,
    dampening: float = FIRST_DAMPENING,
    by_activity: bool = True,
    block: int = BLOCK,
) -> Quantised:
    """Quantise a matrix.

    Args:
        weights: [rows, columns].
        hessian: of its inputs, not dampened [columns, columns].
        spec: the grid. Levels are fitted to the weights as given.
        dampening: share of the Hessian's mean diagonal to add; more is taken where that is not enough.
        by_activity: sweep the most active inputs first.
        block: columns compensated at once; changes no result beyond the rounding of sums.

    Raises:
        ValueError: as `fit` and `conditioned` do.
    """
    plan = prepared(hessian, dampening, by_activity=by_activity)
    alive = np.where(plan.dead, 0.0, weights)
    rounding = Rounding(fit(alive, spec), plan.order)
    _, loss = sweep(alive[:, plan.order], plan.upper, rounding, block)
    fell_back = plan.dampening is None
    return Quantised(rounding.matrix(), None if fell_back else loss, plan.dampening, int(plan.dead.sum()))
