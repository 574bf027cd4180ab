"""SparseGPT: prune a matrix in a sweep, each removal made up for by the columns that follow; on a grid if asked.

Frantar and Alistarh 2023. Unlike its reference code, the count is exact: where scores tie, the first go. Knows one
matrix and its Hessian. Always: a pruned weight is exactly zero, on a grid too.
"""

from dataclasses import dataclass

import numpy as np

from model.compression.gptq import Rounding
from model.compression.grids import GridSpec, check_zero, fit
from model.compression.hessian import FIRST_DAMPENING, Matrix, Vector
from model.compression.matrix import GridMatrix, Mask
from model.compression.selection import Pattern, Share, Sparsity, kept
from model.compression.sweep import BLOCK, Sweep, prepared, sweep

SELECTION = 128


@dataclass(frozen=True, slots=True, eq=False)
class Pruned:
    """A pruned matrix, and how it came to be.

    Args:
        weights: [rows, columns], zero where pruned; on a grid, what it stands for.
        mask: what is kept.
        grid: the same on a grid, when one was asked for.
        loss: ½ tr (W - Ŵ) H (W - Ŵ)ᵀ under the dampened Hessian; None when there was none.
        dampening: the share of the mean diagonal that it took; None when none made the Hessian invertible, and weights
            were pruned by magnitude with nothing compensated.
        dead_columns: inputs that were always zero; their weights were set to zero, which may be more than were asked
            for.
    """

    weights: Matrix
    mask: Mask
    grid: GridMatrix | None
    loss: float | None
    dampening: float | None
    dead_columns: int

    @property
    def fell_back(self) -> bool:
        """Whether nothing could be compensated."""
        return self.dampening is None


class Removal:
    """Zeros in the places of least w² / U_ii², chosen for several columns at once.

    Args:
        shape: rows and columns of the matrix.
        sparsity: a share is taken of each selection of 128 columns, all rows together; a pattern of each row.
    """

    def __init__(self, shape: tuple[int, ...], sparsity: Sparsity) -> None:
        self.lookahead = sparsity.of if isinstance(sparsity, Pattern) else SELECTION
        self.mask: Mask = np.ones(shape, np.bool_)
        self._sparsity = sparsity

    def replace(self, column: int, ahead: Matrix, pivots: Vector) -> Vector:
        if column % self.lookahead == 0:
            end = column + min(self.lookahead, ahead.shape[1])
            scores = (ahead[:, : end - column] / pivots[: end - column]) ** 2
            self.mask[:, column:end] = self._selected(scores, column)
        return np.where(self.mask[:, column], ahead[:, 0], 0.0)

    def _selected(self, scores: Matrix, start: int) -> Mask:
        if isinstance(self._sparsity, Pattern):
            return kept(scores, self._sparsity)
        rows, width = scores.shape
        # Counts are differences of whole counts, so that over the matrix they add up to the one that was asked for.
        count = self._sparsity.count(rows * (start + width)) - self._sparsity.count(rows * start)
        return kept(scores, Share(count / scores.size))


class GivenMask:
    """Zeros in given places; the rest stays, or is rounded."""

    lookahead = 1

    def __init__(self, mask: Mask, rounding: Rounding | None = None) -> None:
        self.mask = mask
        self._rounding = rounding

    def replace(self, column: int, ahead: Matrix, pivots: Vector) -> Vector:
        left = np.where(self.mask[:, column], ahead[:, 0], 0.0)
        return left if self._rounding is None else self._rounding.rounded(column, left)


def sparsegpt(
    weights: Matrix,
    hessian: Matrix,
    sparsity: Sparsity | Mask,
    *,
    spec: GridSpec | None = None,
    dampening: float = FIRST_DAMPENING,
    by_activity: bool = False,
    block: int = BLOCK,
) -> Pruned:
    """Prune a matrix, and quantise it at the same time when a grid is given.

    Args:
        weights: [rows, columns].
        hessian: of its inputs, not dampened [columns, columns].
        sparsity: how many weights to remove, or a mask of those to keep [rows, columns].
        spec: a grid with an exact zero. A sweep without it chooses the mask and moves the weights that stay, often far
            beyond what they were; levels are fitted to these, and a second sweep, from the weights as given, makes up
            for zeros and rounding together.
        dampening: share of the Hessian's mean diagonal to add; more is taken where that is not enough.
        by_activity: sweep the most active inputs first. A pattern needs the columns as they lie.
        block: columns compensated at once; changes no result beyond the rounding of sums.

    Raises:
        ValueError: as `fit`, `kept` and `conditioned` do; for a grid without an exact zero; for a pattern by activity;
            for a block that is no whole number of patterns, or of 128 columns.
    """
    if isinstance(sparsity, Pattern):
        sparsity.check(weights.shape[1])
        if by_activity:
            raise ValueError("a pattern of neighbours cannot be swept by activity")
    if spec is not None:
        check_zero(spec)
    plan = prepared(hessian, dampening, by_activity=by_activity)
    alive = np.where(plan.dead, 0.0, weights)
    removal = _removal(sparsity, alive.shape, plan)
    swept, loss = sweep(alive[:, plan.order], plan.upper, removal, block)
    own, mask, grid = plan.restored(swept), plan.restored(removal.mask), None
    if spec is not None:
        rounding = Rounding(fit(own, spec), plan.order)
        _, loss = sweep(alive[:, plan.order], plan.upper, GivenMask(removal.mask, rounding), block)
        grid = rounding.matrix(mask)
        own = grid.dequantised().astype(np.float64)
    lost = None if plan.dampening is None else loss
    return Pruned(own, mask, grid, lost, plan.dampening, int(plan.dead.sum()))


def _removal(sparsity: Sparsity | Mask, shape: tuple[int, ...], plan: Sweep) -> Removal | GivenMask:
    if isinstance(sparsity, Share | Pattern):
        return Removal(shape, sparsity)
    if sparsity.shape != shape or sparsity.dtype != np.bool_:
        raise ValueError(f"mask is {sparsity.dtype} {sparsity.shape}, not bool {shape}")
    return GivenMask(sparsity[:, plan.order])
