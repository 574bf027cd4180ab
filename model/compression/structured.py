"""Removing whole columns of a matrix, and with them the neurons or heads behind them, so that matrices become smaller.

What goes is chosen and made up for by Optimal Brain Surgeon over columns. Knows one matrix, and by counts those that
make its inputs. Always: what is left is dense.
"""

from dataclasses import dataclass

import numpy as np

from model.compression.hessian import Matrix, Vector
from model.compression.obs import Indices, column_surgery


@dataclass(frozen=True, slots=True, eq=False)
class Narrowed:
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


def narrowed(weights: Matrix, inverse: Matrix, count: int, *, unit: int = 1) -> Narrowed:
    """Drop `count` units of columns from a matrix.

    Args:
        weights: [rows, columns].
        inverse: H⁻¹ [columns, columns].
        count: of units.
        unit: neighbouring columns that go together: 1 for neurons, the columns of a group of heads for the matrix that
            attention ends with.

    Raises:
        ValueError: when units do not divide the columns, when none would stay, or when fewer could be removed.
    """
    units = weights.shape[1] // max(unit, 1)
    if not 0 <= count < units:
        raise ValueError(f"{count} of {units} units cannot be removed; at least one must stay")
    surgery = column_surgery(weights, inverse, count, unit=unit)
    if len(surgery.losses) < count:
        raise ValueError(f"only {len(surgery.losses)} of {count} units could be removed")
    kept = np.setdiff1d(np.arange(weights.shape[1]), surgery.removed)
    return Narrowed(surgery.weights[:, kept], kept, surgery.removed, surgery.losses)


def rows_that_stay(kept: Indices, *, unit: int, rows: int) -> Indices:
    """The rows of a matrix that makes the inputs of a narrowed one, `rows` for each of its units.

    Gate and up have one row for each column of down. Query, key and value have, for each group of heads (a unit of
    columns of the output matrix), the rows of its query heads, of its key head and of its value head.

    Args:
        kept: the columns that the narrowed matrix keeps, in whole units, ascending.
        unit: columns of a unit.
    """
    units = kept[::unit] // unit
    stay: Indices = (units[:, None] * rows + np.arange(rows)).reshape(-1)
    return stay


def removal_count(units: int, share: float, multiple: int = 32) -> int:
    """How many units to remove so that about this share goes, and a multiple of `multiple` (above zero) is kept.

    Raises:
        ValueError: for a share outside 0 to 1, or units that are no such multiple themselves.
    """
    if not 0 <= share <= 1 or units % multiple:
        raise ValueError(f"a share of {share} of {units} units cannot leave a multiple of {multiple}")
    return units - max(round(units * (1 - share) / multiple), 1) * multiple
