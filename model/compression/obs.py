"""Optimal Brain Surgeon: remove one weight after another, and let the rest of the row make up for each.

Hassibi and Stork 1992; for all rows of a matrix, Optimal Brain Compression (Frantar and Alistarh 2022). Knows no
model. Always: a removed weight is exactly zero, and what the rest becomes depends on which weights were
removed, not on their order.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.compression.hessian import Matrix, Vector, downdate
from model.compression.matrix import Mask
from model.compression.selection import Share, smallest

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Surgery:
    """A matrix after Optimal Brain Surgeon.

    Args:
        weights: exactly zero in removed columns [rows, columns].
        removed: the columns, in the order of removal. There are fewer than asked for when no more could be.
        losses: what each removal added to ½ tr (W - W₀) H (W - W₀)ᵀ [removals].
    """

    weights: Matrix
    removed: Indices
    losses: Vector


def without_smallest(weights: Vector, scores: Vector, count: int) -> Vector:
    """The weights with the `count` of lowest score zero (all, when there are fewer) and no other changed [columns]."""
    pruned = weights.copy()
    pruned[smallest(scores, count)] = 0.0
    return pruned


def surgery(weights: Vector, inverse: Matrix, count: int) -> Surgery:
    """Remove `count` weights of one row [columns], as `column_surgery` does of a matrix with a single row."""
    return column_surgery(weights[None], inverse, count)


def column_surgery(weights: Matrix, inverse: Matrix, count: int, *, unit: int = 1) -> Surgery:
    """Remove `count` units of columns, each time the one that costs least now, and let the others make up for it.

    A unit P costs ½ Σ_r w_rP [H⁻¹]_PP⁻¹ w_rPᵀ; for a single column, ½ Σ_r w_rj² / [H⁻¹]_jj. Of equal costs the first
    goes.

    Args:
        weights: [rows, columns].
        inverse: H⁻¹ [columns, columns]. What rounding has left no longer positive definite is never removed.
        count: of units, at most.
        unit: neighbouring columns that go together.

    Raises:
        ValueError: when units do not divide the columns.
    """
    columns = weights.shape[1]
    if unit < 1 or columns % unit:
        raise ValueError(f"units of {unit} do not divide {columns} columns")
    current, inverse = weights.copy(), inverse.copy()
    alive: Mask = np.ones(columns // unit, np.bool_)
    removed: list[Indices] = []
    losses: list[float] = []
    while len(removed) < count:
        costs = np.where(alive, _costs(current, inverse, unit), np.inf)
        cheapest = int(np.argmin(costs))
        if not costs[cheapest] < np.inf:
            break
        gone = np.arange(cheapest * unit, (cheapest + 1) * unit)
        current -= current[:, gone] @ np.linalg.solve(inverse[np.ix_(gone, gone)], inverse[gone])
        downdate(inverse, gone)
        alive[cheapest] = False
        current[:, ~np.repeat(alive, unit)] = 0.0
        removed.append(gone)
        losses.append(float(costs[cheapest]))
    return Surgery(current, np.concatenate([np.empty(0, np.intp), *removed]), np.array(losses))


def _costs(weights: Matrix, inverse: Matrix, unit: int) -> Vector:
    """What the removal of each unit costs now; infinite where the inverse is not positive definite [units]."""
    if unit > 1:
        starts = range(0, len(inverse), unit)
        return np.array([_cost(weights[:, s : s + unit], inverse[s : s + unit, s : s + unit]) for s in starts])
    diagonal = np.diag(inverse)
    positive = diagonal > 0
    costs: Vector = np.where(positive, 0.5 * (weights**2).sum(axis=0) / np.where(positive, diagonal, 1.0), np.inf)
    return costs


def _cost(columns: Matrix, inverse: Matrix) -> float:
    try:
        root = np.linalg.cholesky(inverse)
    except np.linalg.LinAlgError:
        return np.inf
    return 0.5 * float((np.linalg.solve(root, columns.T) ** 2).sum())


def compensated(weights: Vector, inverse: Matrix, removed: Indices) -> Vector:
    """The best row with zeros at `removed`: w - H⁻¹[:,P] (H⁻¹[P,P])⁻¹ w_P [columns].

    It is what Optimal Brain Surgeon reaches step by step, in closed form.
    """
    best = weights - inverse[:, removed] @ np.linalg.solve(inverse[np.ix_(removed, removed)], weights[removed])
    best[removed] = 0.0
    return best


def removal_loss(weights: Vector, inverse: Matrix, removed: Indices) -> float:
    """½ w_Pᵀ (H⁻¹[P,P])⁻¹ w_P: what the best row with zeros at `removed` loses."""
    gone = weights[removed]
    return 0.5 * float(gone @ np.linalg.solve(inverse[np.ix_(removed, removed)], gone))


def brain_compression(weights: Matrix, inverse: Matrix, share: Share) -> tuple[Matrix, Mask]:
    """Optimal Brain Compression: surgery on every row, and the cheapest removals of all rows together.

    Each row is taken apart to its end. A row's removals must be made in their order, so a removal is counted as dear as
    the dearest before it. Costs rows · columns³: for single, small matrices.

    Args:
        weights: [rows, columns].
        inverse: H⁻¹ [columns, columns].
        share: of the whole matrix.

    Returns:
        The weights and the mask of what is kept. Fewer are pruned than asked for where `surgery` ends early.
    """
    rows = [surgery(row, inverse, len(row)) for row in weights]
    places = np.repeat(np.arange(len(rows)), [len(row.removed) for row in rows])
    costs = np.concatenate([np.maximum.accumulate(row.losses) for row in rows])
    counts = np.bincount(places[smallest(costs, share.count(weights.size))], minlength=len(rows))
    pruned = np.empty_like(weights)
    mask: Mask = np.ones(weights.shape, np.bool_)
    for index, (row, count) in enumerate(zip(rows, counts, strict=True)):
        pruned[index] = compensated(weights[index], inverse, row.removed[:count])
        mask[index, row.removed[:count]] = False
    return pruned, mask
