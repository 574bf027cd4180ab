"""SparseGPT: prune a matrix in one sweep, each removal made up for by the columns that follow, on a grid if asked.

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
    """Zeros in the places of least w² / U_ii², chosen for several columns at once; the rest stays or is rounded.

    Args:
        shape: rows and columns of the matrix.
        sparsity: a share is taken of each selection of 128 columns, all rows together; a pattern of each row.
        rounding: what becomes of weights that are kept; None: nothing.
    """

    def __init__(self, shape: tuple[int, ...], sparsity: Sparsity, rounding: Rounding | None) -> None:
        self.lookahead = sparsity.of if isinstance(sparsity, Pattern) else SELECTION
        self.mask: Mask = np.ones(shape, np.bool_)
        self._sparsity = sparsity
        self._rounding = rounding

    def replace(self, column: int, ahead: Matrix, pivots: Vector) -> Vector:
        if column % self.lookahead == 0:
            end = column + min(self.lookahead, ahead.shape[1])
            scores = (ahead[:, : end - column] / pivots[: end - column]) ** 2
            self.mask[:, column:end] = self._selected(scores, column)
        return remaining(ahead[:, 0], self.mask[:, column], column, self._rounding)

    def _selected(self, scores: Matrix, start: int) -> Mask:
        if isinstance(self._sparsity, Pattern):
            return kept(scores, self._sparsity)
        rows, width = scores.shape
        # Counts are differences of whole counts, so that over the matrix they add up to the one that was asked for.
        count = self._sparsity.count(rows * (start + width)) - self._sparsity.count(rows * start)
        return kept(scores, Share(count / scores.size))


class GivenMask:
    """Zeros in given places."""

    lookahead = 1

    def __init__(self, mask: Mask, rounding: Rounding | None) -> None:
        self.mask = mask
        self._rounding = rounding

    def replace(self, column: int, ahead: Matrix, pivots: Vector) -> Vector:
        return remaining(ahead[:, 0], self.mask[:, column], column, self._rounding)


def remaining(weights: Vector, mask: Mask, column: int, rounding: Rounding | None) -> Vector:
    """One column with zeros where it is pruned, and the rest as it is or rounded [rows]."""
    left = np.where(mask, weights, 0.0)
    return left if rounding is None else np.where(mask, rounding.rounded(column, left), 0.0)


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
    """Prune a matrix, and quantise it in the same sweep when a grid is given.

    Args:
        weights: [rows, columns].
        hessian: of its inputs, not dampened [columns, columns].
        sparsity: how many weights to remove, or a mask of those to keep [rows, columns].
        spec: a grid with an exact zero. Levels are fitted to the weights as given, none pruned.
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
    rounding = None if spec is None else Rounding(fit(alive, spec), plan.order)
    removal = _removal(sparsity, alive, plan, rounding)
    swept, loss = sweep(alive[:, plan.order], plan.upper, removal, block)
    own, mask = plan.restored(swept), plan.restored(removal.mask)
    return Pruned(
        own,
        mask,
        None if rounding is None else rounding.matrix(mask),
        None if plan.dampening is None else loss,
        plan.dampening,
        int(plan.dead.sum()),
    )


def _removal(sparsity: Sparsity | Mask, weights: Matrix, plan: Sweep, rounding: Rounding | None) -> Removal | GivenMask:
    if isinstance(sparsity, Share | Pattern):
        return Removal(weights.shape, sparsity, rounding)
    if sparsity.shape != weights.shape or sparsity.dtype != np.bool_:
        raise ValueError(f"mask is {sparsity.dtype} {sparsity.shape}, not bool {weights.shape}")
    return GivenMask(sparsity[:, plan.order], rounding)
