"""The block formats of ggml, by table: how weights of a row are packed, and how they are unpacked.

Knows no files. Always: unpacking gives the float32 numbers that the format defines, operation by operation.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from model.loading import ggml_fields as fields
from model.loading.tensor import BlockFormat

BLOCK_SIZE = 32
"""Weights of a block in the formats that are no K-quants; kernels have scales for as many."""


def _unpack_f32(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.ascontiguousarray(blocks).view("<f4").astype(np.float32, copy=False)


def _unpack_f16(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    return fields.halves(blocks)


def _unpack_bf16(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    bits = np.ascontiguousarray(blocks).view("<u2").astype(np.uint32) << np.uint32(16)
    return bits.view(np.float32)


def _unpack_q4_0(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    codes = fields.nibbles(blocks[:, 2:]).astype(np.float32) - np.float32(8)
    return fields.halves(blocks[:, :2]) * codes


def _unpack_q4_1(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    scales = fields.halves(blocks[:, :4])
    codes = fields.nibbles(blocks[:, 4:]).astype(np.float32)
    return scales[:, :1] * codes + scales[:, 1:]


def _unpack_q5_0(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    codes = fields.five_bits(blocks[:, 2:]).astype(np.float32) - np.float32(16)
    return fields.halves(blocks[:, :2]) * codes


def _unpack_q5_1(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    scales = fields.halves(blocks[:, :4])
    codes = fields.five_bits(blocks[:, 4:]).astype(np.float32)
    return scales[:, :1] * codes + scales[:, 1:]


def _unpack_q8_0(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    codes = blocks[:, 2:].view(np.int8).astype(np.float32)
    return codes * fields.halves(blocks[:, :2])


def _unpack_iq4_nl(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    return fields.halves(blocks[:, :2]) * fields.non_linear(blocks[:, 2:]).astype(np.float32)


def _affine(parts: fields.AffineParts) -> NDArray[np.float32]:
    weights = parts.d[..., None] * parts.codes.astype(np.float32) - parts.m[..., None]
    return weights.reshape(len(weights), -1)


def _signed(parts: fields.SignedParts) -> NDArray[np.float32]:
    scales = parts.d * parts.scales.astype(np.float32)
    return (scales[..., None] * parts.codes.astype(np.float32)).reshape(len(scales), -1)


F32 = BlockFormat("F32", 1, 4, _unpack_f32)
F16 = BlockFormat("F16", 1, 2, _unpack_f16)
BF16 = BlockFormat("BF16", 1, 2, _unpack_bf16)
Q4_0 = BlockFormat("Q4_0", BLOCK_SIZE, 18, _unpack_q4_0)
Q4_1 = BlockFormat("Q4_1", BLOCK_SIZE, 20, _unpack_q4_1)
Q5_0 = BlockFormat("Q5_0", BLOCK_SIZE, 22, _unpack_q5_0)
Q5_1 = BlockFormat("Q5_1", BLOCK_SIZE, 24, _unpack_q5_1)
Q8_0 = BlockFormat("Q8_0", BLOCK_SIZE, 34, _unpack_q8_0)
IQ4_NL = BlockFormat("IQ4_NL", BLOCK_SIZE, 18, _unpack_iq4_nl)
Q2_K = BlockFormat("Q2_K", fields.SUPER_BLOCK_SIZE, 84, lambda blocks: _affine(fields.q2_k(blocks)))
Q3_K = BlockFormat("Q3_K", fields.SUPER_BLOCK_SIZE, 110, lambda blocks: _signed(fields.q3_k(blocks)))
Q4_K = BlockFormat("Q4_K", fields.SUPER_BLOCK_SIZE, 144, lambda blocks: _affine(fields.q4_k(blocks)))
Q5_K = BlockFormat("Q5_K", fields.SUPER_BLOCK_SIZE, 176, lambda blocks: _affine(fields.q5_k(blocks)))
Q6_K = BlockFormat("Q6_K", fields.SUPER_BLOCK_SIZE, 210, lambda blocks: _signed(fields.q6_k(blocks)))

FORMATS: Mapping[int, BlockFormat] = {
    0: F32,
    1: F16,
    2: Q4_0,
    3: Q4_1,
    6: Q5_0,
    7: Q5_1,
    8: Q8_0,
    10: Q2_K,
    11: Q3_K,
    12: Q4_K,
    13: Q5_K,
    14: Q6_K,
    20: IQ4_NL,
    30: BF16,
}
"""Block formats by the number that files give them."""
FORMAT_BY_NAME: Mapping[str, BlockFormat] = {format.name: format for format in FORMATS.values()}

_REMOVED = "ggml itself has dropped it: convert the model again"
_ACTIVATIONS = "ggml keeps activations in it, no weights: convert the model again"
_INTEGERS = "it holds integers, which are no weights"
_CODEBOOK = "its table of codes would have to be built, and what unpacks them"
_UNPACKING = "what unpacks its blocks would have to be built"

UNSUPPORTED: Mapping[int, tuple[str, str]] = {
    4: ("Q4_2", _REMOVED),
    5: ("Q4_3", _REMOVED),
    9: ("Q8_1", _ACTIVATIONS),
    15: ("Q8_K", _ACTIVATIONS),
    16: ("IQ2_XXS", _CODEBOOK),
    17: ("IQ2_XS", _CODEBOOK),
    18: ("IQ3_XXS", _CODEBOOK),
    19: ("IQ1_S", _CODEBOOK),
    21: ("IQ3_S", _CODEBOOK),
    22: ("IQ2_S", _CODEBOOK),
    23: ("IQ4_XS", _UNPACKING),
    24: ("I8", _INTEGERS),
    25: ("I16", _INTEGERS),
    26: ("I32", _INTEGERS),
    27: ("I64", _INTEGERS),
    28: ("F64", "what rounds its numbers to float32 would have to be built"),
    29: ("IQ1_M", _CODEBOOK),
    34: ("TQ1_0", _UNPACKING),
    35: ("TQ2_0", _UNPACKING),
    39: ("MXFP4", _UNPACKING),
    40: ("NVFP4", _UNPACKING),
    41: ("Q1_0", _UNPACKING),
}
"""Types that exist and have no block format here: the name of each, and what stands in the way."""


@dataclass(frozen=True, slots=True)
class _Floats:
    """The floats of each block: how many and from which on, and which bits are all set when one is not finite."""

    count: int
    bits: DTypeLike
    exponent: int
    first: int = 0
    """Counted in floats from the start of the block."""


def _half_floats(count: int, first_byte: int = 0) -> _Floats:
    return _Floats(count, "<u2", 0x7C00, first_byte // 2)


_FLOATS: Mapping[str, _Floats] = {
    "F32": _Floats(1, "<u4", 0x7F80_0000),
    "F16": _half_floats(1),
    "BF16": _Floats(1, "<u2", 0x7F80),
    "Q4_0": _half_floats(1),
    "Q4_1": _half_floats(2),
    "Q5_0": _half_floats(1),
    "Q5_1": _half_floats(2),
    "Q8_0": _half_floats(1),
    "IQ4_NL": _half_floats(1),
    "Q2_K": _half_floats(2, 80),
    "Q3_K": _half_floats(1, 108),
    "Q4_K": _half_floats(2),
    "Q5_K": _half_floats(2),
    "Q6_K": _half_floats(1, 208),
}


def are_finite(format: BlockFormat, blocks: NDArray[np.uint8]) -> bool:
    """Whether every weight of [blocks, block_bytes] is finite.

    Enough is that the floats of each block are: a float16 scale times any integers stays far below float32's largest.
    """
    floats = _FLOATS[format.name]
    bits = np.ascontiguousarray(blocks).view(floats.bits)[:, floats.first : floats.first + floats.count]
    return not bool(np.any((bits & floats.exponent) == floats.exponent))
