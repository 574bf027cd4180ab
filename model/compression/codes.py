"""Stored weights as codes with d and m for each 32 columns: what kernels and block formats hold.

Knows stored tensors, not what runs or writes them. Always: the codes stand for the same weights as what is stored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from model.compression.matrix import GridMatrix
from model.loading import ggml
from model.loading import ggml_fields as fields
from model.loading.ggml import BLOCK_SIZE
from model.loading.ggml_fields import SUPER_BLOCK_SIZE
from model.loading.tensor import BlockFormat, StoredTensor

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
    """A tensor's weights as codes; None for floats, and for blocks whose parts of 16 weights have scales of their own
    that no code holds. Raises ValueError for groups of other than a multiple of 32."""
    if part.grid is not None:
        return codes_of_grid(part.name, part.grid())
    return codes_of_blocks(part.format.name, part.rows()) if part.format.name in CODED_FORMATS else None


def codes_of_grid(name: str, grid: GridMatrix) -> Codes:
    """Groups repeat their d and m for each 32 columns. Raises ValueError for groups of other than a multiple of 32."""
    if grid.group % BLOCK_SIZE:
        raise ValueError(
            f"{name} has groups of {grid.group} columns: the native engine runs groups of a multiple of {BLOCK_SIZE}"
        )
    repeats = grid.group // BLOCK_SIZE
    d, m = (np.repeat(each.astype(np.float32), repeats, axis=1) for each in (grid.scales, grid.offsets))
    return Codes(np.ascontiguousarray(grid.codes), d, m, eight_bits=grid.bits > _FOUR_BITS)


def codes_of_blocks(format: str, rows: NDArray[np.uint8]) -> Codes:
    """[rows, bytes per row] of one of `CODED_FORMATS` as codes."""
    coded = CODED_FORMATS[format]
    codes, d, m = coded.unpack(rows.reshape(-1, coded.format.block_bytes))
    count = len(rows)
    return Codes(codes.reshape(count, -1), d.reshape(count, -1), m.reshape(count, -1), coded.eight_bits)


Unpacked = tuple[NDArray[np.uint8], Floats, Floats]
"""Of [blocks, block bytes]: codes, and d and m for each 32 of them."""


@dataclass(frozen=True, slots=True)
class CodedFormat:
    """A block format whose weights are d · code + m, exactly and rounded once at most, for each 32 columns."""

    format: BlockFormat
    eight_bits: bool
    centred: bool
    """Whether they are d · (code − 8), or d · (code − 128)."""
    half_scales: bool
    """Whether float16 holds every d, and every m where the weights are not centred."""
    unpack: Callable[[NDArray[np.uint8]], Unpacked]


def _about(centre: int, codes: NDArray[np.uint8], d: Floats) -> Unpacked:
    return codes, d, -np.float32(centre) * d


def _q4_0(blocks: NDArray[np.uint8]) -> Unpacked:
    return _about(8, fields.nibbles(blocks[:, 2:]), fields.halves(blocks[:, :2]))


def _q4_1(blocks: NDArray[np.uint8]) -> Unpacked:
    return fields.nibbles(blocks[:, 4:]), fields.halves(blocks[:, :2]), fields.halves(blocks[:, 2:4])


def _q5_0(blocks: NDArray[np.uint8]) -> Unpacked:
    return _about(128, fields.five_bits(blocks[:, 2:]) + np.uint8(128 - 16), fields.halves(blocks[:, :2]))


def _q5_1(blocks: NDArray[np.uint8]) -> Unpacked:
    return fields.five_bits(blocks[:, 4:]), fields.halves(blocks[:, :2]), fields.halves(blocks[:, 2:4])


def _q8_0(blocks: NDArray[np.uint8]) -> Unpacked:
    return _about(128, blocks[:, 2:] ^ np.uint8(128), fields.halves(blocks[:, :2]))


def _iq4_nl(blocks: NDArray[np.uint8]) -> Unpacked:
    levels = fields.non_linear(blocks[:, 2:]).view(np.uint8)
    return _about(128, levels ^ np.uint8(128), fields.halves(blocks[:, :2]))


def _q3_k(blocks: NDArray[np.uint8]) -> Unpacked:
    """Scale times code lies in −124 … 128, one past what a code holds: so d changes its sign, and the product too."""
    parts = fields.q3_k(blocks)
    products = parts.scales.astype(np.int16)[..., None] * parts.codes
    codes = (128 - products).astype(np.uint8)
    return _about(128, codes, np.repeat(-parts.d, SUPER_BLOCK_SIZE // BLOCK_SIZE, axis=1))


def _affine(parts: fields.AffineParts) -> Unpacked:
    return parts.codes, parts.d, -parts.m


CODED_FORMATS: Mapping[str, CodedFormat] = {
    coded.format.name: coded
    for coded in (
        CodedFormat(ggml.Q4_0, False, True, True, _q4_0),
        CodedFormat(ggml.Q4_1, False, False, True, _q4_1),
        CodedFormat(ggml.Q5_0, True, True, True, _q5_0),
        CodedFormat(ggml.Q5_1, True, False, True, _q5_1),
        CodedFormat(ggml.Q8_0, True, True, True, _q8_0),
        CodedFormat(ggml.IQ4_NL, True, True, True, _iq4_nl),
        CodedFormat(ggml.Q3_K, True, True, True, _q3_k),
        CodedFormat(ggml.Q4_K, False, False, False, lambda blocks: _affine(fields.q4_k(blocks))),
        CodedFormat(ggml.Q5_K, True, False, False, lambda blocks: _affine(fields.q5_k(blocks))),
    )
}
"""Block formats whose weights codes hold, by name."""
