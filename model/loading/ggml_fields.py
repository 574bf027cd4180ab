"""Codes and scales as they lie in the quantised blocks of ggml, of 32 weights or, for K-quants, of 256.

Knows bytes of blocks, not what runs or stores them. Always: codes are the integers that they are; scales are float32,
each a float16 or the exact product of one and an integer of at most 6 bits.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SUPER_BLOCK_SIZE = 256
"""Weights that share the float16 scales of a K-quant; parts of 16 or 32 of them have integer scales of their own."""
NON_LINEAR_LEVELS = np.array((-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113), dtype=np.int8)
"""What the 16 codes of IQ4_NL stand for."""

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class AffineParts:
    """Weights d · code − m: codes [blocks, parts, part size], and d and m [blocks, parts]."""

    codes: Bytes
    d: Floats
    m: Floats


@dataclass(frozen=True, slots=True, eq=False)
class SignedParts:
    """Weights (d · scale) · code: int8 codes [blocks, parts, part size] and scales [blocks, parts], d [blocks, 1]."""

    codes: NDArray[np.int8]
    scales: NDArray[np.int8]
    d: Floats


def halves(fields: Bytes) -> Floats:
    """[blocks, 2·n] bytes of float16 → [blocks, n] float32."""
    return np.ascontiguousarray(fields).view("<f2").astype(np.float32)


def nibbles(codes: Bytes) -> Bytes:
    """[blocks, 16] bytes → [blocks, 32] codes: first all low halves, then all high ones."""
    return np.concatenate((codes & np.uint8(15), codes >> np.uint8(4)), axis=1)


def five_bits(fields: Bytes) -> Bytes:
    """[blocks, 4 + 16] bytes, the fifth bits of 32 codes and their nibbles → [blocks, 32] codes."""
    fifth = np.unpackbits(np.ascontiguousarray(fields[:, :4]), axis=1, bitorder="little")
    return nibbles(fields[:, 4:]) | fifth << np.uint8(4)


def non_linear(codes: Bytes) -> NDArray[np.int8]:
    """[blocks, 16] bytes → [blocks, 32] levels of IQ4_NL."""
    return NON_LINEAR_LEVELS[nibbles(codes)]


def q2_k(blocks: Bytes) -> AffineParts:
    """16 parts of 16: scales and minima of 4 bits, codes of 2 bits, then both float16 scales."""
    floats = halves(blocks[:, 80:])
    scales = blocks[:, :16]
    codes = _planes(blocks[:, 16:80], 32, 2).reshape(len(blocks), 16, 16)
    return AffineParts(
        codes,
        floats[:, :1] * (scales & np.uint8(15)).astype(np.float32),
        floats[:, 1:] * (scales >> np.uint8(4)).astype(np.float32),
    )


def q3_k(blocks: Bytes) -> SignedParts:
    """16 parts of 16: third bits, codes of 2 bits, scales of 6 bits less 32, the float16 scale.

    A code whose third bit is clear is less by 4.
    """
    low = _planes(blocks[:, 32:96], 32, 2)
    third = _planes(blocks[:, :32], 32, 1)
    codes = (low | third << np.uint8(2)).astype(np.int8) - np.int8(4)
    packed = blocks[:, 96:108]
    scales = nibbles(packed[:, :8]) | _planes(packed[:, 8:], 4, 2).reshape(-1, 16) << np.uint8(4)
    return SignedParts(
        codes.reshape(len(blocks), 16, 16), scales.astype(np.int8) - np.int8(32), halves(blocks[:, 108:])
    )


def q4_k(blocks: Bytes) -> AffineParts:
    """8 parts of 32: both float16 scales, scales and minima of 6 bits, codes of 4 bits."""
    d, m = _scales_and_minima(blocks)
    return AffineParts(_planes(blocks[:, 16:], 32, 4), d, m)


def q5_k(blocks: Bytes) -> AffineParts:
    """8 parts of 32: both float16 scales, scales and minima of 6 bits, fifth bits, codes of 4 bits."""
    d, m = _scales_and_minima(blocks)
    return AffineParts(_planes(blocks[:, 48:], 32, 4) | _planes(blocks[:, 16:48], 32, 1) << np.uint8(4), d, m)


def q6_k(blocks: Bytes) -> SignedParts:
    """16 parts of 16: codes of 4 bits, two bits more of each, scales of 8 bits, the float16 scale; codes less 32."""
    low = _planes(blocks[:, :128], 64, 4).reshape(-1, 8, 32)
    codes = (low | _planes(blocks[:, 128:192], 32, 2) << np.uint8(4)).astype(np.int8) - np.int8(32)
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8)
    return SignedParts(codes.reshape(len(blocks), 16, 16), scales, halves(blocks[:, 208:]))


def _planes(fields: Bytes, width: int, bits: int) -> Bytes:
    """[blocks, n · width] bytes → [blocks, planes, width] codes: of each run of `width` bytes the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    runs = fields.reshape(len(fields), -1, 1, width) >> shifts & np.uint8((1 << bits) - 1)
    return runs.reshape(len(fields), -1, width)


def _scales_and_minima(blocks: Bytes) -> tuple[Floats, Floats]:
    """Of Q4_K and Q5_K, [blocks, 8] each: four bytes have six bits of the first four scales and, above, two of the last
    four; the next four bytes the same of minima; the rest holds the lower bits of the last four of both."""
    floats = halves(blocks[:, :4])
    scales, minima, low = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    six, high = np.uint8(63), np.uint8(48)
    last_scales = low & np.uint8(15) | scales >> np.uint8(2) & high
    last_minima = low >> np.uint8(4) | minima >> np.uint8(2) & high
    return (
        floats[:, :1] * np.concatenate((scales & six, last_scales), axis=1).astype(np.float32),
        floats[:, 1:] * np.concatenate((minima & six, last_minima), axis=1).astype(np.float32),
    )
