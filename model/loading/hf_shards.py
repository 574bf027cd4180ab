"""The safetensors files of a Hugging Face folder as one set of tensors.

Knows names and files, not what tensors mean. Always: every file lies in the folder itself; each tensor is in exactly
one file, the one that the index says; nothing is ever unpickled.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.loading.checkpoint import ModelFileError
from model.loading.cursor import shown
from model.loading.ggml import FORMAT_BY_NAME, are_finite
from model.loading.json_keys import JsonKeys, label
from model.loading.model_file import CHUNK_BYTES, ModelFile
from model.loading.safetensors import Entry, Safetensors, read_safetensors
from model.loading.tensor import BlockFormat

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SUFFIX = ".safetensors"
MAX_INDEX_BYTES = 16 << 20
MAX_SHARDS = 512
FLOATS: Mapping[str, BlockFormat] = {name: FORMAT_BY_NAME[name] for name in ("F32", "F16", "BF16")}
"""The types that weights may have, with the format of the same numbers."""
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_OF_OTHERS = (".h5", ".msgpack", ".onnx")


@dataclass(frozen=True, slots=True)
class ShardTensor:
    """A tensor and the file that it lies in."""

    file: ModelFile
    entry: Entry

    def error(self, reason: str) -> ModelFileError:
        return self.file.error(f"tensor {label(self.entry.name)} {reason}", self.entry.offset)

    @property
    def format(self) -> BlockFormat:
        """Raises ModelFileError for a type that weights must not have."""
        if self.entry.dtype not in FLOATS:
            raise self.error(f"holds {self.entry.dtype}; supported are {', '.join(FLOATS)}")
        return FLOATS[self.entry.dtype]

    def read(self, first: int, count: int) -> NDArray[np.uint8]:
        """`count` bytes from byte `first` of the tensor."""
        return self.file.read(self.entry.offset + first, count)


@dataclass(frozen=True, slots=True)
class Shards:
    """All weights of a folder; numbers stay in the files."""

    files: tuple[Safetensors, ...]
    index: ModelFile | None

    def tensors(self) -> Iterator[ShardTensor]:
        for shard in self.files:
            for entry in shard.entries.values():
                yield ShardTensor(shard.file, entry)


def open_shards(folder: Path) -> Shards:
    """Raises ModelFileError for a folder without safetensors, or one whose index and files differ."""
    has_one, has_index = (os.path.lexists(folder / name) for name in (WEIGHTS, INDEX))
    if has_one and has_index:
        raise ModelFileError(f"has both {WEIGHTS} and {INDEX}: which of them is the model?", path=folder)
    if has_one:
        return Shards((read_safetensors(folder / WEIGHTS),), None)
    if not has_index:
        raise ModelFileError(_why_absent(folder), path=folder)
    keys = JsonKeys.read(folder / INDEX, MAX_INDEX_BYTES)
    places = _weight_map(keys)
    names = sorted(set(places.values()))
    if len(names) > MAX_SHARDS:
        keys.refuse("weight_map", f"names {len(names)} files; allowed are {MAX_SHARDS}")
    files = tuple(read_safetensors(folder / name) for name in names)
    _check_places(keys, places, files)
    return Shards(files, keys.file)


def _why_absent(folder: Path) -> str:
    try:
        suffixes = {Path(name).suffix for name in os.listdir(folder)}
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if suffixes.intersection(_PICKLED):
        return "has pickled weights, which may run code and are never read; convert them to safetensors"
    if suffixes.intersection(_OF_OTHERS):
        return "has weights in another framework's form; convert them to safetensors"
    return f"has neither {WEIGHTS} nor {INDEX}"


def _weight_map(keys: JsonKeys) -> dict[str, str]:
    """The file name of each tensor."""
    for key in keys:
        if key not in ("metadata", "weight_map"):
            keys.refuse(key, "is not known beside metadata and weight_map")
    stated = keys.object("weight_map")
    places = {name: stated.value(name) for name in stated}
    if not places:
        keys.refuse("weight_map", "is empty")
    for name, file in places.items():
        if not isinstance(file, str) or not is_plain_name(file):
            stated.refuse(name, "is not the plain name of a safetensors file in the folder")
    return places


def is_plain_name(name: str) -> bool:
    """Whether it names a safetensors file in a folder itself, on any system."""
    return name.endswith(SUFFIX) and name.isprintable() and not set(name) & set('/\\:*?"<>|') and name[0] != "."


def _check_places(keys: JsonKeys, places: Mapping[str, str], files: tuple[Safetensors, ...]) -> None:
    """Each tensor lies where the index says, and so nowhere else."""
    for shard in files:
        here = shard.file.path.name
        for entry in shard.entries.values():
            stated = places.get(entry.name)
            if stated != here:
                says = f"says it is in {shown(stated)}" if stated else "does not name it"
                raise shard.file.error(f"tensor {label(entry.name)} is here, and {INDEX} {says}", entry.offset)
    entries = {shard.file.path.name: shard.entries for shard in files}
    for name, file in places.items():
        if name not in entries[file]:
            raise keys.file.error(f"weight_map.{label(name)} is not in {file}")


def checked_hash(shard: Safetensors, is_weight: Callable[[str], bool]) -> str:
    """The hash of the file, in hexadecimal; every byte is read once.

    Raises ModelFileError for a weight that is not finite.
    """
    file = shard.file
    entries = sorted(shard.entries.values(), key=lambda entry: entry.offset)
    digest = hashlib.sha256()
    digest.update(file.read(0, entries[0].offset if entries else file.size).data)
    for entry in entries:
        tensor = ShardTensor(file, entry)
        format = tensor.format if is_weight(entry.name) else None
        for start in range(0, entry.byte_count, CHUNK_BYTES):
            data = tensor.read(start, min(CHUNK_BYTES, entry.byte_count - start))
            digest.update(data.data)
            if format and not are_finite(format, data.reshape(-1, format.block_bytes)):
                raise file.error(f"tensor {label(entry.name)} holds a NaN or an infinity", entry.offset + start)
    return digest.hexdigest()


def are_same(one: ShardTensor, other: ShardTensor) -> bool:
    """Whether both hold the same numbers in the same form."""
    if (one.entry.dtype, one.entry.shape) != (other.entry.dtype, other.entry.shape):
        return False
    count = one.entry.byte_count
    pieces = ((start, min(CHUNK_BYTES, count - start)) for start in range(0, count, CHUNK_BYTES))
    return all(np.array_equal(one.read(*piece), other.read(*piece)) for piece in pieces)
