"""Stored weights as codes with d and m for each 32 columns: what kernels and block formats hold.

Knows stored tensors, not what runs or writes them. Always: the codes stand for the same weights as what is stored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from model.compression.matrix import GridMatrix
from model.loading.ggml import BLOCK_SIZE
from model.loading.tensor import StoredTensor

MOST_CODES = {False: 15, True: 255}
"""The greatest code of 4 and of 8 bits."""
CENTRES = {False: 8, True: 128}
_FOUR_BITS = 4

Floats = NDArray[np.float32]


def are_halves(numbers: Floats) -> bool:
    """Whether float16 holds every number."""
    with np.errstate(over="ignore"):
        return np.array_equal(numbers, numbers.astype(np.float16).astype(np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """Weights d · code + m: uint8 [rows, columns], and float32 [rows, columns // 32]; C-contiguous."""

    codes: NDArray[np.uint8]
    d: Floats
    m: Floats
    eight_bits: bool

    @property
    def fits_half(self) -> bool:
        """Whether float16 holds every d and m."""
        return are_halves(self.d) and are_halves(self.m)

    def centred(self, eight_bits: bool) -> "Codes | None":
        """The same weights as d · (code − 8) or d · (code − 128); None unless one shift of all codes does it."""
        scaled = np.flatnonzero(self.d)
        zero = float(np.rint(-self.m.flat[scaled[0]] / self.d.flat[scaled[0]])) if scaled.size else 0.0
        shift = CENTRES[eight_bits] - zero
        if not np.array_equal(self.m, np.float64(-zero) * self.d):
            return None
        if not 0 <= int(self.codes.min()) + shift <= int(self.codes.max()) + shift <= MOST_CODES[eight_bits]:
            return None
        return replace(self, codes=(self.codes.astype(np.int16) + int(shift)).astype(np.uint8))

    def about_zero(self, eight_bits: bool) -> "Codes | None":
        """The same weights as d · (code − 8) or d · (code − 128), the codes of each 32 columns shifted as these need.

        None unless zero is a level, of a code or beyond them, in all groups, and the shifted codes fit.
        """
        d, m = self.d.astype(np.float64), self.m.astype(np.float64)
        zeros = np.rint(np.divide(-m, d, out=np.zeros_like(d), where=d != 0))
        if not np.array_equal(m, -zeros * d) or np.abs(zeros).max() > MOST_CODES[True]:
            return None
        centre = CENTRES[eight_bits]
        groups = self.codes.reshape(*d.shape, BLOCK_SIZE).astype(np.int16)
        shifted = groups + np.int16(centre) - zeros.astype(np.int16)[..., None]
        shifted[d == 0] = centre
        if not 0 <= int(shifted.min()) <= int(shifted.max()) <= MOST_CODES[eight_bits]:
            return None
        codes = shifted.astype(np.uint8).reshape(self.codes.shape)
        return Codes(codes, self.d, -np.float32(centre) * self.d, eight_bits)


def codes_of(part: StoredTensor) -> Codes | None:
    """A tensor's weights as codes; None for floats. Raises ValueError for groups of other than a multiple of 32."""
    if part.grid is not None:
        return codes_of_grid(part.name, part.grid())
    unpack = _UNPACKED.get(part.format.name)
    return None if unpack is None else unpack(part)


def codes_of_grid(name: str, grid: GridMatrix) -> Codes:
    """Groups repeat their d and m for each 32 columns. Raises ValueError for groups of other than a multiple of 32."""
    if grid.group % BLOCK_SIZE:
        raise ValueError(
            f"{name} has groups of {grid.group} columns: the native engine runs groups of a multiple of {BLOCK_SIZE}"
        )
    repeats = grid.group // BLOCK_SIZE
    d, m = (np.repeat(each.astype(np.float32), repeats, axis=1) for each in (grid.scales, grid.offsets))
    return Codes(np.ascontiguousarray(grid.codes), d, m, eight_bits=grid.bits > _FOUR_BITS)


def _halves(blocks: NDArray[np.uint8], first: int) -> Floats:
    return np.ascontiguousarray(blocks[..., first : first + 2]).view("<f2").astype(np.float32)[..., 0]


def _nibbles(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.concatenate((codes & np.uint8(15), codes >> np.uint8(4)), axis=-1)


def _blocks(part: StoredTensor) -> NDArray[np.uint8]:
    return part.rows().reshape(part.shape[0], -1, part.format.block_bytes)


def _q4_0(part: StoredTensor) -> Codes:
    blocks = _blocks(part)
    d = _halves(blocks, 0)
    return Codes(_nibbles(blocks[..., 2:]).reshape(part.shape), d, -8 * d, eight_bits=False)


def _q4_1(part: StoredTensor) -> Codes:
    blocks = _blocks(part)
    codes = _nibbles(blocks[..., 4:]).reshape(part.shape)
    return Codes(codes, _halves(blocks, 0), _halves(blocks, 2), eight_bits=False)


def _q8_0(part: StoredTensor) -> Codes:
    blocks = _blocks(part)
    d = _halves(blocks, 0)
    return Codes((blocks[..., 2:] ^ np.uint8(128)).reshape(part.shape), d, -128 * d, eight_bits=True)


_UNPACKED: Mapping[str, Callable[[StoredTensor], Codes]] = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q8_0": _q8_0}
