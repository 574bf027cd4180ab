"""Plain safetensors files: their header taken apart without believing any of it, and written.

Knows the container, not what tensors mean. Always: names are unique, and the tensors fill the file from the end of the
header to its own end, without a gap or an overlap; every fault is a ModelFileError with what is wrong.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.loading.cursor import Cursor, shown
from model.loading.model_file import ModelFile

MAX_HEADER_BYTES = 4 << 20
MAX_TENSORS = 1 << 16
MAX_NAME_BYTES = 256
MAX_DIMENSIONS = 8
MAX_DIMENSION = 1 << 40
ALIGNMENT = 8
METADATA = "__metadata__"
FIELDS = {"dtype", "shape", "data_offsets"}

ITEM_BYTES: Mapping[str, int] = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F16": 2,
    "BF16": 2,
    "U16": 2,
    "I16": 2,
    "F32": 4,
    "U32": 4,
    "I32": 4,
    "F64": 8,
    "U64": 8,
    "I64": 8,
}
"""Bytes of one number of each type, by the name that files give it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a tensor lies."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    """From the start of the file."""
    byte_count: int


@dataclass(frozen=True, slots=True)
class Safetensors:
    """What a file says about itself; numbers stay in it until they are read."""

    file: ModelFile
    metadata: Mapping[str, str]
    entries: Mapping[str, Entry]

    def read(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a tensor, flat. Raises KeyError for a name that the file does not have."""
        entry = self.entries[name]
        return self.file.read(entry.offset, entry.byte_count)


@dataclass(frozen=True, slots=True)
class Block:
    """A tensor to be written: `read` is called once, and gives its bytes, C-contiguous."""

    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], NDArray[np.uint8]]

    @property
    def byte_count(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.dtype]


def read_safetensors(path: Path) -> Safetensors:
    """Raises ModelFileError for anything but a well-formed file. Reads the header alone, at most 4 MiB."""
    file = ModelFile(path)
    cursor = Cursor(file, min(file.size, 8 + MAX_HEADER_BYTES))
    length = cursor.u64("the length of the header")
    if length > min(file.size - 8, MAX_HEADER_BYTES):
        raise file.error(
            f"the header claims {length} bytes; the file has {file.size}, and {MAX_HEADER_BYTES} are allowed", 0
        )
    header = _parsed(file, cursor.take(length, "the header"))
    metadata = _metadata(file, header.pop(METADATA, {}))
    if len(header) > MAX_TENSORS:
        raise file.error(f"the file claims {len(header)} tensors; allowed are {MAX_TENSORS}")
    entries = {name: _entry(file, name, stated, 8 + length) for name, stated in header.items()}
    _check_layout(file, entries, 8 + length)
    return Safetensors(file, metadata, entries)


def parsed_json(text: bytes) -> Any:
    """JSON with unique keys, finite numbers and whole characters. Raises ValueError, also for what nests too deeply."""
    try:
        parsed = json.loads(
            text.decode("utf-8"), object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite
        )
        json.dumps(parsed, ensure_ascii=False).encode()  # which a lone surrogate stops
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    return parsed


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number


def _parsed(file: ModelFile, text: bytes) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise file.error("the header does not begin with '{'", 8)
    try:
        header = parsed_json(text)
    except ValueError as error:
        raise file.error(f"the header is not valid JSON: {shown(str(error))}", 8) from None
    assert isinstance(header, dict)
    return header


def _metadata(file: ModelFile, stated: Any) -> dict[str, str]:
    if not isinstance(stated, dict) or not all(isinstance(value, str) for value in stated.values()):
        raise file.error(f"{METADATA} is not an object of strings")
    return stated


def _entry(file: ModelFile, name: str, stated: Any, data_start: int) -> Entry:
    label = f"tensor {shown(name)}"
    if not 1 <= len(name.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES:
        raise file.error(f"{label} has a name of other than 1 to {MAX_NAME_BYTES} bytes")
    if not isinstance(stated, dict) or stated.keys() != FIELDS:
        raise file.error(f"{label} does not have exactly the fields {', '.join(sorted(FIELDS))}")
    dtype = stated["dtype"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise file.error(f"{label} has type {shown(str(dtype))}; supported are {', '.join(ITEM_BYTES)}")
    shape = _integers(file, f"the shape of {label}", stated["shape"], MAX_DIMENSION)
    if len(shape) > MAX_DIMENSIONS:
        raise file.error(f"{label} has {len(shape)} dimensions; allowed are {MAX_DIMENSIONS}")
    offsets = _integers(file, f"the offsets of {label}", stated["data_offsets"], file.size)
    try:
        start, end = offsets
    except ValueError:
        raise file.error(f"{label} has {len(offsets)} offsets, not two") from None
    byte_count = prod(shape) * ITEM_BYTES[dtype]
    if end - start != byte_count:
        raise file.error(f"{label} needs {byte_count} bytes, but its offsets enclose {end - start}")
    return Entry(name, dtype, shape, data_start + start, byte_count)


def _integers(file: ModelFile, what: str, stated: Any, most: int) -> tuple[int, ...]:
    if not isinstance(stated, list) or not all(type(each) is int and 0 <= each <= most for each in stated):
        raise file.error(f"{what} are not whole numbers from 0 to {most}")
    return tuple(stated)


def _check_layout(file: ModelFile, entries: Mapping[str, Entry], data_start: int) -> None:
    end = data_start
    for entry in sorted(entries.values(), key=lambda entry: (entry.offset, entry.byte_count)):
        if entry.offset != end:
            fault = "overlaps the tensor before it" if entry.offset < end else "leaves a gap before it"
            raise file.error(f"tensor {shown(entry.name)} {fault}", entry.offset)
        end += entry.byte_count
    if end != file.size:
        raise file.error(f"the tensors end at byte {end}, and the file has {file.size}")


def write_safetensors(path: Path, blocks: Mapping[str, Block], metadata: Mapping[str, str] | None = None) -> None:
    """Write a new file, tensors in the order given, each read when it is written. Raises OSError."""
    with path.open("xb") as sink:
        sink.write(_header(blocks, metadata or {}))
        for piece in _bytes_of(blocks):
            sink.write(piece)
        sink.flush()
        os.fsync(sink.fileno())


def _header(blocks: Mapping[str, Block], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    end = 0
    for name, block in blocks.items():
        start, end = end, end + block.byte_count
        header[name] = {"dtype": block.dtype, "shape": list(block.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _bytes_of(blocks: Mapping[str, Block]) -> Iterator[memoryview]:
    for name, block in blocks.items():
        data = np.ascontiguousarray(block.read()).reshape(-1).view(np.uint8)
        if data.size != block.byte_count:
            raise ValueError(f"{name} has {data.size} bytes, not {block.byte_count}")
        yield data.data
