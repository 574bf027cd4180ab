"""The error of uniform quantisation beside its bounds and its model (definition 8.1, proposition 8.2), and outliers.

Knows one random matrix. Always: what is measured is the product's own grid, as it is stored and read back; bounds and
model are computed from its step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from model.compression.grids import GridSpec, Levels, Whole, fit
from model.compression.hessian import Matrix, Vector

SEED = 20261010
"""Of the matrix in the code of section 8."""
OUTLIER = 1.0
NORMAL_WEIGHT = 0.05


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One number of bits.

    Args:
        bits: b.
        levels: 2^b.
        step: Δ.
        greatest: max |w - Q(w)|, at most Δ/2.
        greatest_bound: Δ/2.
        norm: ‖W - Q(W)‖_F.
        norm_bound: (Δ/2)·√(mn).
        norm_model: Δ·√(mn/12): what errors spread evenly over a step would give.
        output: ‖(W - Q(W))x‖.
        output_bound: (Δ/2)·√(mn)·‖x‖.
    """

    bits: int
    levels: int
    step: float
    greatest: float
    greatest_bound: float
    norm: float
    norm_bound: float
    norm_model: float
    output: float
    output_bound: float


@dataclass(frozen=True, slots=True)
class OutlierRow:
    """The matrix with one outlier, on one grid.

    Args:
        range: how the grid's range was chosen.
        reach: a; the greatest one where there are several.
        norm: ‖W - Q(W)‖_F.
        levels_in_use: how many different values the quantised matrix holds.
        outlier_error: |w - Q(w)| of the outlier.
    """

    range: str
    reach: float
    norm: float
    levels_in_use: int
    outlier_error: float


@dataclass(frozen=True, slots=True)
class UniformErrorStudy:
    """A matrix W of normal weights and an input x.

    Args:
        rows, columns: m and n.
        seed: of W and x.
        reach: a = max |W|.
        by_bits: one entry for each number of bits.
        outlier: W with w_00 = 1, at `outlier_bits` bits.
    """

    rows: int
    columns: int
    seed: int
    reach: float
    by_bits: tuple[ErrorRow, ...]
    outlier_bits: int
    outlier: tuple[OutlierRow, ...]


def sample(rows: int, columns: int, seed: int) -> tuple[Matrix, Vector]:
    """W ~ N(0, 0.05²) [rows, columns] and x ~ N(0, 1) [columns], drawn as section 8 draws them."""
    rng = np.random.default_rng(seed)
    return rng.normal(0, NORMAL_WEIGHT, (rows, columns)), rng.normal(size=columns)


def with_outlier(weights: Matrix) -> Matrix:
    """A copy with w_00 = 1."""
    changed = weights.copy()
    changed[0, 0] = OUTLIER
    return changed


def uniform(bits: int, group: int | Whole = "matrix") -> GridSpec:
    """Definition 8.1 with scales in float32. One range for a matrix is the definition's own."""
    return GridSpec(bits, group, "uniform", stored="float32")


def study(
    *,
    bits: Sequence[int],
    rows: int = 64,
    columns: int = 48,
    seed: int = SEED,
    outlier_bits: int = 4,
    on_row: Callable[[], None] = lambda: None,
) -> UniformErrorStudy:
    """Bits are 1 to 8; `on_row` is told of each."""
    weights, x = sample(rows, columns, seed)
    by_bits = []
    for each in bits:
        by_bits.append(error_row(weights, x, each))
        on_row()
    return UniformErrorStudy(
        rows=rows,
        columns=columns,
        seed=seed,
        reach=float(np.abs(weights).max()),
        by_bits=tuple(by_bits),
        outlier_bits=outlier_bits,
        outlier=outlier_rows(weights, outlier_bits),
    )


def error_row(weights: Matrix, x: Vector, bits: int) -> ErrorRow:
    """The errors of one grid for the whole matrix."""
    levels = fit(weights, uniform(bits))
    error, step = weights - quantised(levels, weights), float(levels.scales[0, 0])
    half, size = step / 2, float(np.sqrt(weights.size))
    return ErrorRow(
        bits=bits,
        levels=2**bits,
        step=step,
        greatest=float(np.abs(error).max()),
        greatest_bound=half,
        norm=float(np.linalg.norm(error)),
        norm_bound=half * size,
        norm_model=step * size / float(np.sqrt(12)),
        output=float(np.linalg.norm(error @ x)),
        output_bound=half * size * float(np.linalg.norm(x)),
    )


def outlier_rows(weights: Matrix, bits: int) -> tuple[OutlierRow, ...]:
    """The matrix with one outlier: its full range, the range without the outlier, and a range for each row."""
    changed = with_outlier(weights)
    return (
        _outlier_row("max |W|", fit(changed, uniform(bits)), changed),
        _outlier_row("max |W| without the outlier", fit(weights, uniform(bits)), changed),
        _outlier_row("max |w| of each row", fit(changed, uniform(bits, "row")), changed),
    )


def quantised(levels: Levels, weights: Matrix) -> Matrix:
    """Every weight at its nearest level, as it is read back, in float64."""
    return levels.matrix(levels.all_codes(weights)).dequantised().astype(np.float64)


def _outlier_row(name: str, levels: Levels, weights: Matrix) -> OutlierRow:
    found = quantised(levels, weights)
    error = weights - found
    reach = -float(levels.offsets.min())
    return OutlierRow(name, reach, float(np.linalg.norm(error)), len(np.unique(found)), float(abs(error[0, 0])))
