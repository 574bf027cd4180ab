"""Removing whole columns of a matrix, and with them the neurons that fed them, so that matrices become smaller.

Optimal Brain Surgeon over columns: what a column's removal costs is summed over all rows, and all rows make up for it.
Knows a feed-forward block's three matrices. Always: what is left is dense.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.compression.hessian import Matrix, Vector

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class ColumnSurgery:
    """A matrix without some of its columns.

    Args:
        weights: of the columns that are kept, compensated [rows, kept].
        kept: their indices, ascending.
        removed: indices of the others, in the order of removal.
        losses: what each removal (of a whole unit) added to ½ tr (W - W₀) H (W - W₀)ᵀ.
    """

    weights: Matrix
    kept: Indices
    removed: Indices
    losses: Vector


@dataclass(frozen=True, slots=True, eq=False)
class FeedForward:
    """The three matrices of a gated feed-forward block, which has a neuron for each row of gate and up.

    Args:
        gate, up: [neurons, width].
        down: [width, neurons].
    """

    gate: Matrix
    up: Matrix
    down: Matrix


def remove_columns(weights: Matrix, inverse: Matrix, count: int, *, unit: int = 1) -> ColumnSurgery:
    """Remove `count` units of columns, each time the one that costs least now.

    A unit P costs ½ Σ_r w_rP [H⁻¹]_PP⁻¹ w_rPᵀ; for a single column, ½ Σ_r w_rj² / [H⁻¹]_jj.

    Args:
        weights: [rows, columns].
        inverse: H⁻¹ [columns, columns].
        count: of units.
        unit: neighbouring columns that go together: 1 for neurons, the columns of a head or a group of heads for
            attention's output.

    Raises:
        ValueError: when units do not divide the columns, or there are not more units than `count`.
    """
    columns = weights.shape[1]
    if unit < 1 or columns % unit:
        raise ValueError(f"units of {unit} do not divide {columns} columns")
    if not 0 <= count < columns // unit:
        raise ValueError(f"{count} of {columns // unit} units cannot be removed; at least one must stay")
    current, inverse = weights.copy(), inverse.copy()
    alive = np.arange(columns)
    removed: list[Indices] = []
    losses: list[float] = []
    for _ in range(count):
        costs = _costs(current, inverse, unit)
        cheapest = int(np.argmin(costs))
        gone = np.arange(cheapest * unit, (cheapest + 1) * unit)
        shares = np.linalg.solve(inverse[np.ix_(gone, gone)], inverse[gone])
        current = np.delete(current - current[:, gone] @ shares, gone, axis=1)
        left = np.delete(np.delete(inverse - inverse[:, gone] @ shares, gone, axis=0), gone, axis=1)
        inverse = 0.5 * (left + left.T)
        removed.append(alive[gone])
        alive = np.delete(alive, gone)
        losses.append(float(costs[cheapest]))
    order = np.concatenate(removed) if removed else np.empty(0, np.intp)
    return ColumnSurgery(current, alive, order, np.array(losses))


def without_neurons(block: FeedForward, hessian_inverse: Matrix, count: int) -> FeedForward:
    """A block with `count` neurons fewer: rows of gate and up, columns of down, the rest of down compensated.

    Args:
        block: to shrink.
        hessian_inverse: H⁻¹ of the inputs of down [neurons, neurons].
        count: of neurons.
    """
    surgery = remove_columns(block.down, hessian_inverse, count)
    return FeedForward(block.gate[surgery.kept], block.up[surgery.kept], surgery.weights)


def removal_count(units: int, share: float, multiple: int = 32) -> int:
    """How many units to remove so that about this share goes, and a multiple of `multiple` (above zero) is kept.

    Raises:
        ValueError: for a share outside 0 to 1, or units that are no such multiple themselves.
    """
    if not 0 <= share <= 1 or units % multiple:
        raise ValueError(f"a share of {share} of {units} units cannot leave a multiple of {multiple}")
    return units - max(round(units * (1 - share) / multiple), 1) * multiple


def _costs(weights: Matrix, inverse: Matrix, unit: int) -> Vector:
    """What the removal of each unit costs now [units]."""
    if unit == 1:
        costs: Vector = 0.5 * (weights**2).sum(axis=0) / np.diag(inverse)
        return costs
    starts = range(0, len(inverse), unit)
    return np.array([_cost(weights[:, s : s + unit], inverse[s : s + unit, s : s + unit]) for s in starts])


def _cost(columns: Matrix, inverse: Matrix) -> float:
    return 0.5 * float((columns * np.linalg.solve(inverse, columns.T).T).sum())
