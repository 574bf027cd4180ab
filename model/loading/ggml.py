"""The block formats of ggml, by table: how weights of a row are packed, and how they are unpacked.

Knows no files. Always: unpacking gives the float32 numbers that the format defines, operation by operation,
and the floats of a block (its weights, or its scales) come before its codes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from model.loading.tensor import BlockFormat

BLOCK_SIZE = 32
"""Weights that share a scale in every quantised format below."""


def _halves(fields: NDArray[np.uint8]) -> NDArray[np.float32]:
    """[blocks, 2·n] bytes of float16 → [blocks, n] float32."""
    return np.ascontiguousarray(fields).view("<f2").astype(np.float32)


def _nibbles(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[blocks, 16] bytes → [blocks, 32] codes: first all low halves, then all high ones."""
    return np.concatenate((codes & np.uint8(15), codes >> np.uint8(4)), axis=1)


def _unpack_f32(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.ascontiguousarray(blocks).view("<f4").astype(np.float32, copy=False)


def _unpack_f16(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    return _halves(blocks)


def _unpack_bf16(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    bits = np.ascontiguousarray(blocks).view("<u2").astype(np.uint32) << np.uint32(16)
    return bits.view(np.float32)


def _unpack_q4_0(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    codes = _nibbles(blocks[:, 2:]).astype(np.float32) - np.float32(8)
    return _halves(blocks[:, :2]) * codes


def _unpack_q4_1(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    scales = _halves(blocks[:, :4])
    codes = _nibbles(blocks[:, 4:]).astype(np.float32)
    return scales[:, :1] * codes + scales[:, 1:]


def _unpack_q8_0(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    codes = blocks[:, 2:].view(np.int8).astype(np.float32)
    return codes * _halves(blocks[:, :2])


F32 = BlockFormat("F32", 1, 4, _unpack_f32)
F16 = BlockFormat("F16", 1, 2, _unpack_f16)
BF16 = BlockFormat("BF16", 1, 2, _unpack_bf16)
Q4_0 = BlockFormat("Q4_0", BLOCK_SIZE, 18, _unpack_q4_0)
Q4_1 = BlockFormat("Q4_1", BLOCK_SIZE, 20, _unpack_q4_1)
Q8_0 = BlockFormat("Q8_0", BLOCK_SIZE, 34, _unpack_q8_0)

FORMATS: Mapping[int, BlockFormat] = {0: F32, 1: F16, 2: Q4_0, 3: Q4_1, 8: Q8_0, 30: BF16}
"""Block formats by the number that files give them."""
FORMAT_BY_NAME: Mapping[str, BlockFormat] = {format.name: format for format in FORMATS.values()}

UNSUPPORTED_NAMES: Mapping[int, str] = {
    4: "Q4_2",
    5: "Q4_3",
    6: "Q5_0",
    7: "Q5_1",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
    41: "Q1_0",
}
"""Names of the types that exist and have no block format here, so that a refusal can name them."""


@dataclass(frozen=True, slots=True)
class _Floats:
    """The floats that open each block: how many, and which bits are all set when one is not finite."""

    count: int
    bits: DTypeLike
    exponent: int


_FLOATS: Mapping[str, _Floats] = {
    "F32": _Floats(1, "<u4", 0x7F80_0000),
    "F16": _Floats(1, "<u2", 0x7C00),
    "BF16": _Floats(1, "<u2", 0x7F80),
    "Q4_0": _Floats(1, "<u2", 0x7C00),
    "Q4_1": _Floats(2, "<u2", 0x7C00),
    "Q8_0": _Floats(1, "<u2", 0x7C00),
}


def are_finite(format: BlockFormat, blocks: NDArray[np.uint8]) -> bool:
    """Whether every weight of [blocks, block_bytes] is finite.

    Enough is that the floats of each block are: a float16 scale times any code stays far below float32's largest.
    """
    floats = _FLOATS[format.name]
    bits = np.ascontiguousarray(blocks).view(floats.bits)[:, : floats.count]
    return not bool(np.any((bits & floats.exponent) == floats.exponent))
