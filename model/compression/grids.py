"""Grids of evenly spaced levels: their four forms, fitted to the weights of a matrix, a row or a group.

Knows no Hessian and no sweep. Always: scale and offset are rounded to the type in which they are stored before any code
is chosen, so codes are the nearest for the levels that will be read back.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from model.compression.hessian import Matrix, Vector
from model.compression.matrix import MOST_BITS, Codes, GridMatrix, Mask, Stored, check_group
from model.compression.ranges import FULL_RANGE, Range, power_losses

Form = Literal["uniform", "affine", "symmetric", "minimum"]
"""Where the levels of a grid lie, for weights from `low` to `high`, a = max(|low|, |high|), with n = 2**bits - 1 steps:

- `uniform`: from -a to a in steps of 2a/n (definition 8.1). Zero is never a level.
- `affine`: from low to high, both stretched to reach zero, shifted so that zero is a level (Jacob et al. 2018).
- `symmetric`: whole multiples of a/(2**(bits-1) - 1), from -2**(bits-1) of them to 2**(bits-1) - 1; AWQ's.
- `minimum`: from low to high, wherever they lie (GGUF's Q4_1). Zero is a level by chance only.
"""
StoredType = Literal["float16", "float32"]
Whole = Literal["row", "matrix"]


@dataclass(frozen=True, slots=True)
class GridSpec:
    """A kind of grid.

    Args:
        bits: of a code, 1 to 8.
        group: columns that share a scale, or `"row"` or `"matrix"`.
        form: where the levels lie.
        range: how far they reach.
        stored: the type of scales, and of offsets; offsets of affine grids, -scale · z, are float32 to be exact.

    Raises:
        ValueError: for other bits, and for a symmetric grid of 1 bit, which has one level on either side of none.
    """

    bits: int
    group: int | Whole = 64
    form: Form = "affine"
    range: Range = FULL_RANGE
    stored: StoredType = "float16"

    def __post_init__(self) -> None:
        least = 2 if self.form == "symmetric" else 1
        if not least <= self.bits <= MOST_BITS:
            raise ValueError(f"bits is {self.bits}; a code of a {self.form} grid has {least} to {MOST_BITS}")

    @property
    def has_zero(self) -> bool:
        """Whether zero is always a level, so that pruned weights can stay zero."""
        return self.form in ("affine", "symmetric")

    def group_of(self, columns: int) -> int:
        """Columns of a group. Raises ValueError when groups would leave a ragged last one."""
        group = columns if isinstance(self.group, str) else self.group
        check_group(group, columns)
        return group


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """The levels of every group: scale · code + offset, computed in float32.

    Args:
        bits: of a code.
        group: columns of a group.
        scales, offsets: as stored [rows, columns // group].
    """

    bits: int
    group: int
    scales: Stored
    offsets: Stored

    def codes(self, column: int, weights: Vector) -> Codes:
        """The codes of the levels nearest to weights in one column [rows]; ties go to the even code."""
        scales, offsets = self._of(column)
        return _nearest(weights, scales.astype(np.float64), offsets.astype(np.float64), self.bits)

    def values(self, column: int, codes: Codes) -> Vector:
        """What codes in one column stand for [rows]."""
        scales, offsets = (numbers.astype(np.float32) for numbers in self._of(column))
        return (scales * codes.astype(np.float32) + offsets).astype(np.float64)

    def all_codes(self, weights: Matrix) -> Codes:
        """The codes of the levels nearest to weights [rows, columns]."""
        scales, offsets = (numbers.astype(np.float64)[..., None] for numbers in (self.scales, self.offsets))
        grouped = weights.reshape(len(weights), -1, self.group)
        return _nearest(grouped, scales, offsets, self.bits).reshape(weights.shape)

    def matrix(self, codes: Codes, mask: Mask | None = None) -> GridMatrix:
        """The codes on these levels [rows, columns]."""
        return GridMatrix(self.bits, self.group, codes, self.scales, self.offsets, mask)

    def _of(self, column: int) -> tuple[Stored, Stored]:
        return self.scales[:, column // self.group], self.offsets[:, column // self.group]


def fit(weights: Matrix, spec: GridSpec) -> Levels:
    """Levels for the weights [rows, columns].

    Raises:
        ValueError: when groups do not divide the columns, a weight is not finite, or a range is too great for the type
            in which scales are stored.
    """
    if not np.isfinite(weights).all():
        raise ValueError("a weight is not finite")
    group = spec.group_of(weights.shape[1])
    groups = weights.reshape(1, -1) if spec.group == "matrix" else weights.reshape(-1, group)

    @np.errstate(over="ignore", invalid="ignore")
    def losses(low: Vector, high: Vector) -> Vector:
        scales, offsets = (numbers.astype(np.float64)[:, None] for numbers in _lines(low, high, spec))
        codes = _nearest(groups, scales, offsets, spec.bits)
        return power_losses(codes * scales + offsets - groups)

    scales, offsets = _lines(*spec.range.ends(groups, losses), spec)
    if not (np.isfinite(scales).all() and np.isfinite(offsets).all()):
        raise ValueError(f"weights reach so far that {spec.stored} holds no scale for them")
    shape = (len(weights), weights.shape[1] // group)
    return Levels(spec.bits, group, _spread(scales, shape), _spread(offsets, shape))


def round_to_nearest(weights: Matrix, spec: GridSpec, mask: Mask | None = None) -> GridMatrix:
    """Every weight at its nearest level, pruned ones at exactly zero.

    Raises:
        ValueError: as `fit` does, and for a mask on a grid without an exact zero.
    """
    if mask is None:
        levels = fit(weights, spec)
        return levels.matrix(levels.all_codes(weights))
    check_zero(spec)
    kept = np.where(mask, weights, 0.0)
    levels = fit(kept, spec)
    return levels.matrix(levels.all_codes(kept), mask)


def check_zero(spec: GridSpec) -> None:
    """Raises ValueError when pruned weights could not stay zero on such a grid."""
    if not spec.has_zero:
        raise ValueError(f"a {spec.form} grid has no exact zero, which pruned weights need")


def _nearest(weights: Matrix, scales: Matrix, offsets: Matrix, bits: int) -> Codes:
    return np.clip(np.rint((weights - offsets) / scales), 0, (1 << bits) - 1).astype(np.uint8)


def _spread(numbers: Stored, shape: tuple[int, int]) -> Stored:
    """One number for a whole matrix, or as many as the shape holds, as an array of that shape."""
    return np.ascontiguousarray(np.broadcast_to(numbers.reshape(-1, shape[1]) if numbers.size > 1 else numbers, shape))


@np.errstate(over="ignore", invalid="ignore")
def _lines(low: Vector, high: Vector, spec: GridSpec) -> tuple[Stored, Stored]:
    """Scale and offset of each group [groups], infinite where too great. A group of range zero gets scale 1."""
    steps = (1 << spec.bits) - 1
    reach = np.maximum(np.abs(low), np.abs(high))
    match spec.form:
        case "uniform":
            return _at_least_zero_wide(2 * reach / steps, spec), _stored_up(reach, spec.stored) * -1
        case "symmetric":
            half = 1 << (spec.bits - 1)
            scales = _at_least_zero_wide(reach / (half - 1), spec)
            return scales, _stored(-half * scales.astype(np.float64), spec.stored)
        case "affine":
            low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
            scales = _at_least_zero_wide((high - low) / steps, spec)
            # + 0.0: a zero code of -0.0 would make an offset of +0.0, which no unsigned code stands for.
            zeros = np.clip(np.rint(-low / scales.astype(np.float64)), 0, steps) + 0.0
            return scales, (-scales.astype(np.float32)) * zeros.astype(np.float32)
        case "minimum":
            return _nearest_step((high - low) / steps, spec), _stored(low, spec.stored)


def _at_least_zero_wide(steps: Vector, spec: GridSpec) -> Stored:
    """The steps, stored so that none is narrower than it should be: the levels still reach both ends."""
    return _stored_up(np.where(steps > 0, steps, 1.0), spec.stored)


def _nearest_step(steps: Vector, spec: GridSpec) -> Stored:
    """The steps, stored as near as possible: a grid that is fitted to its own weights comes out again."""
    wide = np.where(steps > 0, steps, 1.0)
    near = _stored(wide, spec.stored)
    return np.where(near > 0, near, _stored_up(wide, spec.stored))


def _stored(numbers: NDArray[np.float64], stored: DTypeLike) -> Stored:
    with np.errstate(over="ignore", under="ignore"):
        rounded: Stored = numbers.astype(stored)
    return rounded


def _stored_up(numbers: NDArray[np.float64], stored: DTypeLike) -> Stored:
    """Rounded to the type, never down."""
    rounded = _stored(numbers, stored)
    with np.errstate(over="ignore", under="ignore"):
        above = np.nextafter(rounded, np.array(np.inf, rounded.dtype))
    return np.where(rounded.astype(np.float64) < numbers, above, rounded)
