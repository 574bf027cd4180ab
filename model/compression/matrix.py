"""A matrix on a grid: small integer codes, a scale and an offset for each group of columns, and what was pruned.

Does not know how codes were chosen or how they are stored. Always: a pruned weight is exactly zero, both by the mask
and by its code, so whoever reads the codes alone reads the same matrix.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_BITS = 8
STORED_TYPES = (np.dtype(np.float16), np.dtype(np.float32))
_AXES = ("rows", "columns")

Codes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
"""True: the weight is kept; False: it is pruned."""
Stored = NDArray[np.float16] | NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class GridMatrix:
    """A matrix [rows, columns] with weight = scale · code + offset, computed in float32, and exactly 0 where pruned.

    Args:
        bits: of a code, 1 to 8.
        group: neighbouring columns of a row that share a scale and an offset; divides the columns.
        codes: uint8 [rows, columns], below 2**bits.
        scales: float16 or float32 [rows, columns // group], finite.
        offsets: float16 or float32 [rows, columns // group], finite. Its type may differ from that of `scales`: an
            offset of -scale · z is exact in float32, but seldom in float16.
        mask: bool [rows, columns], False where a weight is pruned; None when nothing is. The code of a pruned weight
            stands for exactly zero.

    Raises:
        ValueError: naming the field that breaks one of these.
    """

    bits: int
    group: int
    codes: Codes
    scales: Stored
    offsets: Stored
    mask: Mask | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MOST_BITS:
            raise ValueError(f"bits is {self.bits}; a code has 1 to {MOST_BITS}")
        _check_codes(self.codes, self.bits)
        check_group(self.group, self.columns)
        shape = (self.rows, self.columns // self.group)
        _check_stored("scales", self.scales, shape)
        _check_stored("offsets", self.offsets, shape)
        if self.mask is not None:
            self._check_mask(self.mask)

    @property
    def rows(self) -> int:
        return int(self.codes.shape[0])

    @property
    def columns(self) -> int:
        return int(self.codes.shape[1])

    @property
    def zeros(self) -> int:
        """How many weights are exactly zero, pruned or not."""
        return int((self.dequantised() == 0).sum())

    def dequantised(self) -> NDArray[np.float32]:
        """float32 [rows, columns]: the product is rounded to float32, then the sum is."""
        weights = _values(self)
        if self.mask is not None:
            weights[~self.mask] = 0.0
        return weights

    def _check_mask(self, mask: Mask) -> None:
        if mask.dtype != np.bool_ or mask.shape != self.codes.shape:
            raise ValueError(f"mask must be bool {self.codes.shape}, not {mask.dtype} {mask.shape}")
        if _values(self)[~mask].any():
            raise ValueError("mask prunes a weight whose code does not stand for exactly zero")


def check_group(group: int, columns: int) -> None:
    """Raises ValueError when groups of so many columns would leave a ragged last one."""
    if group < 1 or columns % group:
        raise ValueError(f"group is {group}, which does not divide {columns} columns")


def _values(matrix: GridMatrix) -> NDArray[np.float32]:
    grouped = matrix.codes.reshape(matrix.rows, -1, matrix.group).astype(np.float32)
    values = matrix.scales.astype(np.float32)[..., None] * grouped + matrix.offsets.astype(np.float32)[..., None]
    return values.reshape(matrix.codes.shape)


def _check_codes(codes: Codes, bits: int) -> None:
    if codes.dtype != np.uint8 or codes.ndim != len(_AXES) or not codes.size:
        raise ValueError(f"codes must be uint8 [rows, columns] and not empty, not {codes.dtype} {codes.shape}")
    if int(codes.max()) >= 1 << bits:
        raise ValueError(f"codes reach {int(codes.max())}, more than {bits} bits hold")


def _check_stored(name: str, numbers: Stored, shape: tuple[int, int]) -> None:
    if numbers.dtype not in STORED_TYPES or numbers.shape != shape:
        raise ValueError(f"{name} must be float16 or float32 {shape}, not {numbers.dtype} {numbers.shape}")
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be finite")
