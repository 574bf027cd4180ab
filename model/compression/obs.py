"""Optimal Brain Surgeon: remove one weight after another, and let the rest of the row make up for each.

Hassibi and Stork 1992; for all rows of a matrix, Optimal Brain Compression (Frantar and Alistarh 2022). Knows no
matrices of a model. Always: a removed weight is exactly zero, and what the rest becomes depends on which weights were
removed, not on their order.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.compression.hessian import Matrix, Vector, without
from model.compression.matrix import Mask
from model.compression.scores import saliency
from model.compression.selection import Share, smallest


@dataclass(frozen=True, slots=True, eq=False)
class Surgery:
    """A row after Optimal Brain Surgeon.

    Args:
        weights: exactly zero where removed [columns].
        removed: indices, in the order of removal. There are fewer than asked for when no more could be.
        losses: what each removal added to ½ (w - w₀) H (w - w₀)ᵀ [removed].
    """

    weights: Vector
    removed: NDArray[np.intp]
    losses: Vector


def without_smallest(weights: Vector, scores: Vector, count: int) -> Vector:
    """The weights with the `count` of lowest score zero (all, when there are fewer) and no other changed [columns]."""
    pruned = weights.copy()
    pruned[smallest(scores, count)] = 0.0
    return pruned


def surgery(weights: Vector, inverse: Matrix, count: int) -> Surgery:
    """Remove `count` weights of one row, each time the one that costs least now.

    Args:
        weights: the row [columns].
        inverse: H⁻¹ [columns, columns]. A weight whose diagonal element is no longer above zero, as rounding can make
            it, is never removed.
        count: how many weights to remove, at most.
    """
    current, inverse = weights.copy(), inverse.copy()
    alive: Mask = np.ones(len(weights), np.bool_)
    removed: list[int] = []
    losses: list[float] = []
    while len(removed) < count:
        removable = alive & (np.diag(inverse) > 0)
        if not removable.any():
            break
        costs = np.full(len(weights), np.inf)
        costs[removable] = saliency(current, np.where(removable, inverse, 1.0))[removable]
        q = int(np.argmin(costs))
        current -= current[q] / inverse[q, q] * inverse[:, q]
        alive[q] = False
        current[~alive] = 0.0
        inverse = without(inverse, q)
        removed.append(q)
        losses.append(float(costs[q]))
    return Surgery(current, np.array(removed, np.intp), np.array(losses))


def compensated(weights: Vector, inverse: Matrix, removed: NDArray[np.intp]) -> Vector:
    """The best row with zeros at `removed`: w - H⁻¹[:,P] (H⁻¹[P,P])⁻¹ w_P [columns].

    It is what Optimal Brain Surgeon reaches step by step, in closed form.
    """
    best = weights - inverse[:, removed] @ np.linalg.solve(inverse[np.ix_(removed, removed)], weights[removed])
    best[removed] = 0.0
    return best


def removal_loss(weights: Vector, inverse: Matrix, removed: NDArray[np.intp]) -> float:
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
