"""Matrices in the block formats of GGUF, as bytes: exactly where the format holds the weights, else rounded.

Knows codes and floats, not files. Always: scales are rounded to float16 before codes are chosen; a matrix whose codes
the format has keeps them, and its scales as far as float16 goes.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model.compression.codes import Codes, are_halves
from model.loading.ggml import BLOCK_SIZE

BlockName = Literal["Q4_0", "Q4_1", "Q8_0", "F16"]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
_HALF = np.dtype("<f2")


def fitting(codes: Codes, format: BlockName) -> Codes | None:
    """The same weights in codes that the format has; None where it has none such.

    Their scales may be no float16: `holds` tells whether they are.
    """
    match format:
        case "F16":
            return None
        case "Q4_1":
            return None if codes.eight_bits else codes
        case _:
            return codes.about_zero(eight_bits=format == "Q8_0")


def holds(fitted: Codes, format: BlockName) -> bool:
    """Whether the format has what `fitting` returned as it is."""
    return fitted.fits_half if format == "Q4_1" else are_halves(fitted.d)


def coded_rows(fitted: Codes, format: BlockName) -> Bytes:
    """What `fitting` returned → [rows, bytes per row], codes as they are and scales rounded to float16.

    Raises ValueError for what float16 cannot hold.
    """
    with np.errstate(over="ignore"):
        d = _as_half(fitted.d)
        if format == "Q4_1":
            return _q4_1(fitted.codes, d, _as_half(fitted.m))
        return _q8_0(fitted.codes, d) if format == "Q8_0" else _q4_0(fitted.codes, d)


def rounded_rows(weights: Floats, format: BlockName) -> Bytes:
    """float32 [rows, columns] → [rows, bytes per row]. Raises ValueError for what float16 cannot hold."""
    with np.errstate(over="ignore"):
        return _ROUNDED[format](weights)


def _round_f16(weights: Floats) -> Bytes:
    return _halves(_finite(weights.astype(_HALF)))


def _round_q4_0(weights: Floats) -> Bytes:
    groups = _groups(weights)
    extreme = np.take_along_axis(groups, np.abs(groups).argmax(axis=2)[..., None], axis=2)[..., 0]
    d = _as_half(extreme / np.float32(-8))
    return _q4_0(_nearest(groups, d, np.float32(0), 8, 15).reshape(weights.shape), d)


def _round_q4_1(weights: Floats) -> Bytes:
    groups = _groups(weights)
    m = _as_half(groups.min(axis=2))
    d = _as_half((groups.max(axis=2) - m) / np.float32(15))
    return _q4_1(_nearest(groups, d, m, 0, 15).reshape(weights.shape), d, m)


def _round_q8_0(weights: Floats) -> Bytes:
    groups = _groups(weights)
    d = _as_half(np.abs(groups).max(axis=2) / np.float32(127))
    return _q8_0(_nearest(groups, d, np.float32(0), 128, 255).reshape(weights.shape), d)


_ROUNDED: Mapping[BlockName, Callable[[Floats], Bytes]] = {
    "F16": _round_f16,
    "Q4_0": _round_q4_0,
    "Q4_1": _round_q4_1,
    "Q8_0": _round_q8_0,
}


def _groups(weights: Floats) -> Floats:
    return weights.reshape(len(weights), -1, BLOCK_SIZE)


def _as_half(numbers: Floats) -> Floats:
    return _finite(numbers.astype(np.float16)).astype(np.float32)


def _finite(halves: NDArray[np.float16]) -> NDArray[np.float16]:
    if not np.isfinite(halves).all():
        raise ValueError("a number is too great for float16")
    return halves


def _nearest(groups: Floats, d: Floats, m: Floats | np.float32, zero: int, limit: int) -> Bytes:
    """Codes with d · (code − zero) + m nearest to the weights, half to even; `zero` where d is 0."""
    inverse = np.divide(1, d.astype(np.float64), out=np.zeros(d.shape), where=d != 0)
    exact = (groups.astype(np.float64) - np.asarray(m)[..., None]) * inverse[..., None] + zero
    return np.clip(np.rint(exact), 0, limit).astype(np.uint8)


def _halves(numbers: NDArray[np.floating]) -> Bytes:
    """[rows, n] → [rows, 2·n] bytes."""
    return np.ascontiguousarray(numbers, dtype=_HALF).view(np.uint8)


def _scales(d: Floats) -> Bytes:
    return _halves(d.reshape(len(d), -1)).reshape(*d.shape, 2)


def _nibbles(codes: Bytes, d: Floats) -> Bytes:
    """[rows, groups, 16]: byte j holds code j of a group low and code j + 16 high."""
    by_group = codes.reshape(*d.shape, BLOCK_SIZE)
    half = BLOCK_SIZE // 2
    low, high = by_group[..., :half], by_group[..., half:]
    return low | high << np.uint8(4)


def _joined(*fields: Bytes) -> Bytes:
    return np.concatenate(fields, axis=2).reshape(len(fields[0]), -1)


def _q4_0(codes: Bytes, d: Floats) -> Bytes:
    return _joined(_scales(d), _nibbles(codes, d))


def _q4_1(codes: Bytes, d: Floats, m: Floats) -> Bytes:
    return _joined(_scales(d), _scales(m), _nibbles(codes, d))


def _q8_0(codes: Bytes, d: Floats) -> Bytes:
    return _joined(_scales(d), codes.reshape(*d.shape, BLOCK_SIZE) ^ np.uint8(128))
