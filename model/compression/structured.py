"""Removing whole columns of a matrix, and with them the neurons or heads behind them, so that matrices become smaller.

What goes is chosen and made up for by Optimal Brain Surgeon over columns. Knows the matrices of
feed-forward blocks and of attention. Always: what is left is dense.
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


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """The four matrices of attention with grouped queries: each key head serves as many neighbouring query heads.

    Args:
        query: [query heads · head width, width].
        key, value: [key heads · head width, width].
        output: [width, query heads · head width].
        key_heads: how many.
    """

    query: Matrix
    key: Matrix
    value: Matrix
    output: Matrix
    key_heads: int


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


def without_neurons(block: FeedForward, inverse: Matrix, count: int) -> FeedForward:
    """A block with `count` neurons fewer: rows of gate and up, columns of down, the rest of down compensated.

    Args:
        block: to shrink.
        inverse: H⁻¹ of the inputs of down [neurons, neurons].
        count: of neurons.
    """
    down = narrowed(block.down, inverse, count)
    return FeedForward(block.gate[down.kept], block.up[down.kept], down.weights)


def without_key_heads(attention: Attention, inverse: Matrix, count: int) -> Attention:
    """Attention with `count` key heads fewer, each with its value head and its queries, the rest of output compensated.

    Args:
        attention: to shrink.
        inverse: H⁻¹ of the inputs of output [query heads · head width, same].
        count: of key heads.
    """
    heads = attention.key_heads
    unit = attention.output.shape[1] // heads
    output = narrowed(attention.output, inverse, count, unit=unit)
    kept = output.kept[::unit] // unit

    def of_kept(rows: Matrix) -> Matrix:
        by_head = rows.reshape(heads, -1, rows.shape[1])
        left: Matrix = by_head[kept].reshape(-1, rows.shape[1])
        return left

    return Attention(
        of_kept(attention.query), of_kept(attention.key), of_kept(attention.value), output.weights, len(kept)
    )


def removal_count(units: int, share: float, multiple: int = 32) -> int:
    """How many units to remove so that about this share goes, and a multiple of `multiple` (above zero) is kept.

    Raises:
        ValueError: for a share outside 0 to 1, or units that are no such multiple themselves.
    """
    if not 0 <= share <= 1 or units % multiple:
        raise ValueError(f"a share of {share} of {units} units cannot leave a multiple of {multiple}")
    return units - max(round(units * (1 - share) / multiple), 1) * multiple
