"""GGUF versions 2 and 3: the header, taken apart without believing any of it.

Knows the container, not what keys or tensors mean (`general.alignment` excepted).
Always: every offset and length is a Python int that was checked against the bytes that are left before anything
is read, looped over or allocated; keys and tensor names are unique; tensors lie inside the file, aligned and
apart from each other.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from model.loading.cursor import Cursor, shown
from model.loading.ggml import FORMATS, UNSUPPORTED
from model.loading.model_file import ModelFile
from model.loading.tensor import BlockFormat

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_HEADER_BYTES = 64 << 20
MAX_KEYS = 4096
MAX_TENSORS = 8192
MAX_KEY_BYTES = 256
MAX_TENSOR_NAME_BYTES = 63
MAX_DIMENSIONS = 4
MAX_DIMENSION = 1 << 31
MAX_ALIGNMENT = 64 << 10
DEFAULT_ALIGNMENT = 32


class ValueType(IntEnum):
    """The types of metadata values, by the number that files give them."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


_SCALARS: Mapping[int, np.dtype[np.generic]] = {
    ValueType.UINT8: np.dtype("u1"),
    ValueType.INT8: np.dtype("i1"),
    ValueType.UINT16: np.dtype("<u2"),
    ValueType.INT16: np.dtype("<i2"),
    ValueType.UINT32: np.dtype("<u4"),
    ValueType.INT32: np.dtype("<i4"),
    ValueType.FLOAT32: np.dtype("<f4"),
    ValueType.BOOL: np.dtype("u1"),
    ValueType.UINT64: np.dtype("<u8"),
    ValueType.INT64: np.dtype("<i8"),
    ValueType.FLOAT64: np.dtype("<f8"),
}

Scalar = bool | int | float | str
Data = Scalar | tuple[str, ...] | NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Value:
    """One metadata value. `type` is that of the elements when `data` is a tuple or an array."""

    type: ValueType
    data: Data
    offset: int
    """Where in the file it begins."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies. `shape` is outermost first: the reverse of the order in the file."""

    name: str
    shape: tuple[int, ...]
    format: BlockFormat
    offset: int
    """From the start of the file."""
    byte_count: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """All that a GGUF file says about itself."""

    metadata: Mapping[str, Value]
    tensors: Mapping[str, TensorInfo]


def read_header(file: ModelFile) -> GgufHeader:
    """Raises ModelFileError for anything but a well-formed file. Reads the header alone, at most 64 MiB."""
    cursor = Cursor(file, min(file.size, MAX_HEADER_BYTES))
    tensor_count, key_count = _read_counts(cursor)
    metadata = _read_metadata(cursor, key_count)
    alignment = _alignment(cursor, metadata)
    entries = [_read_tensor_entry(cursor, alignment) for _ in range(tensor_count)]
    data_start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for entry in entries:
        if entry.name in tensors:
            raise file.error(f"two tensors are named {shown(entry.name)}")
        tensors[entry.name] = _placed(entry, data_start)
    _check_layout(file, tensors)
    return GgufHeader(metadata, tensors)


def _read_counts(cursor: Cursor) -> tuple[int, int]:
    """Numbers of tensors and of keys."""
    if cursor.take(4, "the magic number") != MAGIC:
        raise cursor.error("not a GGUF file: it does not begin with 'GGUF'", 0)
    version = cursor.u32("the version")
    if version not in VERSIONS:
        if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
            raise cursor.error("big-endian GGUF files are not supported", 4)
        raise cursor.error(f"GGUF version {version} is not supported; versions 2 and 3 are", 4)
    counts = []
    for what, most in (("tensors", MAX_TENSORS), ("keys", MAX_KEYS)):
        start = cursor.position
        count = cursor.u64(f"the number of {what}")
        if count > most:
            raise cursor.error(f"the file claims {count} {what}; allowed are {most}", start)
        counts.append(count)
    return counts[0], counts[1]


def _read_metadata(cursor: Cursor, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for _ in range(count):
        start = cursor.position
        key = cursor.text("a key", MAX_KEY_BYTES)
        if not key:
            raise cursor.error("a key is empty", start)
        if key in metadata:
            raise cursor.error(f"key {shown(key)} occurs twice", start)
        metadata[key] = _read_value(cursor, shown(key))
    return metadata


def _read_type(cursor: Cursor, key: str) -> ValueType:
    start = cursor.position
    number = cursor.u32(f"the type of {key}")
    try:
        return ValueType(number)
    except ValueError:
        raise cursor.error(f"{key} has the unknown type {number}", start) from None


def _read_value(cursor: Cursor, key: str) -> Value:
    kind = _read_type(cursor, key)
    start = cursor.position
    if kind is ValueType.ARRAY:
        return _read_array(cursor, key)
    if kind is ValueType.STRING:
        return Value(kind, cursor.text(key), start)
    dtype = _SCALARS[kind]
    number = np.frombuffer(cursor.take(dtype.itemsize, key), dtype)[0].item()
    if kind is not ValueType.BOOL:
        return Value(kind, number, start)
    if number not in (0, 1):
        raise cursor.error(f"{key} is a truth value of {number}", start)
    return Value(kind, bool(number), start)


def _read_array(cursor: Cursor, key: str) -> Value:
    kind = _read_type(cursor, f"the elements of {key}")
    start = cursor.position
    if kind is ValueType.ARRAY:
        raise cursor.error(f"{key} is an array of arrays", start)
    count = cursor.u64(f"the length of {key}")
    smallest = 8 if kind is ValueType.STRING else _SCALARS[kind].itemsize
    if count * smallest > cursor.left:
        raise cursor.error(f"{key} claims {count} elements, more than the file can hold", start)
    if kind is ValueType.STRING:
        return Value(kind, tuple([cursor.text(key) for _ in range(count)]), start)
    return Value(kind, np.frombuffer(cursor.take(count * smallest, key), _SCALARS[kind]), start)


def _alignment(cursor: Cursor, metadata: Mapping[str, Value]) -> int:
    value = metadata.get("general.alignment")
    if value is None:
        return DEFAULT_ALIGNMENT
    if value.type is not ValueType.UINT32 or not isinstance(value.data, int):
        raise cursor.error("general.alignment is not a 32-bit unsigned integer", value.offset)
    if not 1 <= value.data <= MAX_ALIGNMENT or value.data & (value.data - 1):
        raise cursor.error(
            f"general.alignment is {value.data}; allowed are powers of two up to {MAX_ALIGNMENT}", value.offset
        )
    return value.data


def _read_tensor_entry(cursor: Cursor, alignment: int) -> TensorInfo:
    """With its offset still from the start of the data."""
    start = cursor.position
    name = cursor.text("a tensor name", MAX_TENSOR_NAME_BYTES)
    if not name:
        raise cursor.error("a tensor name is empty", start)
    label = f"tensor {shown(name)}"
    shape = _read_shape(cursor, label)
    format = _read_format(cursor, label)
    if shape[-1] % format.block_size:
        raise cursor.error(f"{label} has rows of {shape[-1]}, which {format.name} does not divide into blocks", start)
    place = cursor.position
    offset = cursor.u64(f"the offset of {label}")
    if offset % alignment:
        raise cursor.error(f"{label} has offset {offset}, not a multiple of {alignment}", place)
    return TensorInfo(name, shape, format, offset, prod(shape[:-1]) * format.row_bytes(shape[-1]))


def _read_shape(cursor: Cursor, label: str) -> tuple[int, ...]:
    start = cursor.position
    count = cursor.u32(f"the number of dimensions of {label}")
    if not 1 <= count <= MAX_DIMENSIONS:
        raise cursor.error(f"{label} has {count} dimensions; allowed are 1 to {MAX_DIMENSIONS}", start)
    sizes = struct.unpack(f"<{count}Q", cursor.take(8 * count, f"the shape of {label}"))
    for size in sizes:
        if not 1 <= size <= MAX_DIMENSION:
            raise cursor.error(f"{label} has a dimension of {size}; allowed are 1 to {MAX_DIMENSION}", start)
    return tuple(reversed(sizes))


def _read_format(cursor: Cursor, label: str) -> BlockFormat:
    start = cursor.position
    number = cursor.u32(f"the type of {label}")
    if number not in FORMATS:
        name, obstacle = UNSUPPORTED.get(number, (f"type {number}", "which is unknown"))
        supported = ", ".join(format.name for format in FORMATS.values())
        raise cursor.error(f"{label} is stored as {name}, {obstacle}; supported are {supported}", start)
    return FORMATS[number]


def _placed(entry: TensorInfo, data_start: int) -> TensorInfo:
    return TensorInfo(entry.name, entry.shape, entry.format, data_start + entry.offset, entry.byte_count)


def _check_layout(file: ModelFile, tensors: Mapping[str, TensorInfo]) -> None:
    ordered = sorted(tensors.values(), key=lambda tensor: tensor.offset)
    for tensor in ordered:
        if tensor.offset + tensor.byte_count > file.size:
            raise file.error(
                f"tensor {shown(tensor.name)} ends past the end of the file, which has {file.size} bytes",
                tensor.offset,
            )
    for before, after in pairwise(ordered):
        if before.offset + before.byte_count > after.offset:
            raise file.error(f"tensors {shown(before.name)} and {shown(after.name)} overlap", offset=after.offset)
