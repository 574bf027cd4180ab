"""One pass over the columns of a matrix, in which the columns to the right make up for what each column loses.

GPTQ (Frantar et al. 2023) and SparseGPT (Frantar and Alistarh 2023) are this pass with different replacements of a
column. Knows neither grids nor masks. Always: the block size changes the order of additions alone.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from model.compression.hessian import Conditioned, Matrix, NotPositiveDefinite, Vector, conditioned

BLOCK = 128
Scalar = TypeVar("Scalar", bound=np.generic)


class Replacement(Protocol):
    """What becomes of columns, which come from left to right."""

    lookahead: int
    """Columns that are looked at together: at every multiple of it, `ahead` holds at least so many (or all)."""

    def replace(self, column: int, ahead: Matrix, pivots: Vector) -> Vector:
        """The new values of a column [rows].

        Args:
            column: its place in the sweep.
            ahead: it, with columns after it, as compensated so far [rows, any].
            pivots: U_ii of the same columns.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """The order and the factor of a sweep.

    Args:
        order: the columns of the matrix in the order of the sweep.
        upper: U of `Conditioned` in that order.
        dead: columns of the matrix whose inputs were always zero.
        dampening: what it took; None when no dampening did. U is then the unit matrix: nothing is compensated, and
            weights are scored by magnitude.
    """

    order: NDArray[np.intp]
    upper: Matrix
    dead: NDArray[np.bool_]
    dampening: float | None

    def restored(self, swept: NDArray[Scalar]) -> NDArray[Scalar]:
        """A matrix in the order of the sweep [rows, columns], in its own order again."""
        own = np.empty_like(swept)
        own[:, self.order] = swept
        return own


def prepared(hessian: Matrix, dampening: float, *, by_activity: bool) -> Sweep:
    """A sweep of columns as they lie, or with the most active inputs first (GPTQ's act-order)."""
    width = len(hessian)
    with np.errstate(invalid="ignore"):
        order = np.argsort(-np.diag(hessian), kind="stable") if by_activity else np.arange(width)
    try:
        factor: Conditioned = conditioned(hessian[np.ix_(order, order)], dampening)
    except NotPositiveDefinite:
        return Sweep(np.arange(width), np.eye(width), np.zeros(width, np.bool_), None)
    dead = np.empty(width, np.bool_)
    dead[order] = factor.dead
    return Sweep(order, factor.upper, dead, factor.dampening)


def sweep(weights: Matrix, upper: Matrix, replacement: Replacement, block: int = BLOCK) -> tuple[Matrix, float]:
    """Replace column after column, and spread each error over the columns to its right.

    Args:
        weights: [rows, columns], in the order of the sweep.
        upper: U of `Conditioned`, in the same order.
        replacement: what becomes of each column.
        block: columns that are compensated at once; the rest follows when a block is done.

    Returns:
        The replaced matrix, and ½ Σ (w_i - q_i)² / U_ii², which is its loss under the dampened Hessian.

    Raises:
        ValueError: when a block is no whole number of the replacement's lookahead.
    """
    columns = weights.shape[1]
    if block < 1 or (block < columns and block % replacement.lookahead):
        raise ValueError(f"block is {block}, no whole number of {replacement.lookahead} columns")
    current = weights.copy()
    pivots = np.diag(upper)
    loss = 0.0
    for start in range(0, columns, block):
        end = min(start + block, columns)
        errors = np.empty((len(weights), end - start))
        for i in range(start, end):
            replaced = replacement.replace(i, current[:, i:end], pivots[i:end])
            error = (current[:, i] - replaced) / pivots[i]
            current[:, i + 1 : end] -= np.outer(error, upper[i, i + 1 : end])
            current[:, i] = replaced
            errors[:, i - start] = error
        current[:, end:] -= errors @ upper[start:end, end:]
        loss += 0.5 * float((errors**2).sum())
    return current, loss
