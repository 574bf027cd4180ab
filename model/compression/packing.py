"""Codes and masks as bytes, and how many bytes that is.

Knows no files. Always: bits lie little end first, in a byte and from byte to byte; bits past the last are zero.
"""

from math import ceil

import numpy as np
from numpy.typing import NDArray

BYTE_BITS = 8
_CHUNK_CODES = 1 << 20
"""A multiple of eight, so that whatever the bits, a chunk ends with a byte."""

Bytes = NDArray[np.uint8]


def packed_bytes(count: int, bits: int) -> int:
    """Of `count` codes of `bits` bits each."""
    return ceil(count * bits / BYTE_BITS)


def grid_bytes(
    rows: int,
    columns: int,
    bits: int,
    group: int,
    *,
    scale_bits: int = 16,
    offset_bits: int = 16,
    kept: int | None = None,
) -> int:
    """What a matrix on a grid takes on disk: codes of the weights kept, scales and offsets, and a bit for each weight
    where some are pruned (`kept` given). Its bits per weight are about
    bits · kept/(rows · columns) + (scale_bits + offset_bits)/group + 1.

    Args:
        offset_bits: 16 or 32 as offsets are stored; `bits` where every offset is −scale · z, of which z is stored.
        kept: how many weights are not pruned; None: there is no mask.
    """
    weights = rows * columns
    groups = rows * (columns // group)
    scales = packed_bytes(groups, scale_bits) + packed_bytes(groups, offset_bits)
    if kept is None:
        return packed_bytes(weights, bits) + scales
    return packed_bytes(kept, bits) + scales + packed_bytes(weights, 1)


def pack_codes(codes: Bytes, bits: int) -> Bytes:
    """uint8 codes of any shape, in C order, each below 2**bits → uint8 [packed_bytes]."""
    flat = codes.reshape(-1)
    chunks = [_pack(flat[i : i + _CHUNK_CODES], bits) for i in range(0, flat.size, _CHUNK_CODES)]
    return np.concatenate(chunks) if chunks else np.empty(0, dtype=np.uint8)


def unpack_codes(packed: Bytes, count: int, bits: int) -> Bytes:
    """The first `count` codes, flat. Raises ValueError when the bytes are not as many as that takes, or a bit past the
    last code is set.
    """
    if packed.size != packed_bytes(count, bits):
        raise ValueError(f"{packed.size} bytes for {count} codes of {bits} bits, not {packed_bytes(count, bits)}")
    spare = packed.size * BYTE_BITS - count * bits
    if spare and int(packed[-1]) >> (BYTE_BITS - spare):
        raise ValueError("bits are set past the last code")
    codes = np.empty(count, dtype=np.uint8)
    for i in range(0, count, _CHUNK_CODES):
        end = min(i + _CHUNK_CODES, count)
        codes[i:end] = _unpack(packed[i * bits // BYTE_BITS : packed_bytes(end, bits)], end - i, bits)
    return codes


def pack_mask(mask: NDArray[np.bool_]) -> Bytes:
    """A bit for each entry, set where it is true, in C order."""
    return np.packbits(mask.reshape(-1), bitorder="little")


def unpack_mask(packed: Bytes, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Raises ValueError as `unpack_codes` does."""
    return unpack_codes(packed, int(np.prod(shape)), 1).astype(np.bool_).reshape(shape)


def _pack(codes: Bytes, bits: int) -> Bytes:
    if bits == BYTE_BITS:
        return codes
    spread = np.unpackbits(codes[:, None], axis=1, count=bits, bitorder="little")
    return np.packbits(spread.reshape(-1), bitorder="little")


def _unpack(packed: Bytes, count: int, bits: int) -> Bytes:
    if bits == BYTE_BITS:
        return packed
    spread = np.unpackbits(packed, count=count * bits, bitorder="little")
    return np.packbits(spread.reshape(count, bits), axis=1, bitorder="little")[:, 0]
