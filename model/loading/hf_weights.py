"""The weights of a Hugging Face folder as our tensors, each checked against the decoder's shapes.

Knows how published tensors hold ours: split, transposed, or one less. Always: the tensors are exactly those of the
architecture, and nothing is held: what is read from a file is read when it is asked for, a few megabytes beyond it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from model.loading.checkpoint import ModelFileError
from model.loading.ggml import F32
from model.loading.hf_config import FolderConfig
from model.loading.hf_names import Source, canonical, is_buffer, sources
from model.loading.hf_shards import Shards, ShardTensor, are_same
from model.loading.json_keys import label
from model.loading.model_file import CHUNK_BYTES
from model.loading.tensor import StoredTensor

HEAD, EMBEDDING = "head", "embedding"
Read = Callable[[], NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class FolderWeights:
    """Our tensors, and the published names of those that hold weights."""

    tensors: dict[str, StoredTensor]
    published: frozenset[str]


def read_weights(shards: Shards, config: FolderConfig) -> FolderWeights:
    """Raises ModelFileError for a tensor that is missing, is none of the model's, or has another shape or type."""
    found = _by_canonical_name(shards, config.model.architecture)
    wanted = sources(config.model)
    if config.ties_head:
        _drop_tied_head(found, wanted)
    for name, tensor in found.items():
        if name not in {source.name for source in wanted.values()}:
            raise tensor.error(f"is not implemented: no {config.model.architecture} has it")
    for source in wanted.values():
        if source.name not in found:
            first = shards.files[0].file.path
            raise ModelFileError(
                f"tensor {source.name} is missing", path=first if len(shards.files) == 1 else first.parent
            )
        _check(found[source.name], source)
    tensors = {name: _stored(name, found[source.name], source) for name, source in wanted.items()}
    return FolderWeights(tensors, frozenset(found[source.name].entry.name for source in wanted.values()))


def _by_canonical_name(shards: Shards, family: str) -> dict[str, ShardTensor]:
    found: dict[str, ShardTensor] = {}
    for tensor in shards.tensors():
        name = canonical(tensor.entry.name, family)
        if is_buffer(name):
            continue
        if name in found:
            raise tensor.error(f"is there as {label(found[name].entry.name)} too")
        found[name] = tensor
    return found


def _drop_tied_head(found: dict[str, ShardTensor], wanted: dict[str, Source]) -> None:
    """Of a head that is the embedding no copy is kept. Raises ModelFileError for a stored one that is another."""
    head = found.pop(wanted.pop(HEAD).name, None)
    embedding = found.get(wanted[EMBEDDING].name)
    if head is not None and embedding is not None and not are_same(head, embedding):
        raise head.error("differs from the embedding, and config.json says by tie_word_embeddings that they are one")


def _check(tensor: ShardTensor, source: Source) -> None:
    if tensor.entry.shape != source.published_shape:
        raise tensor.error(f"has shape {tensor.entry.shape}; expected is {source.published_shape}")
    _ = tensor.format


def _stored(name: str, tensor: ShardTensor, source: Source) -> StoredTensor:
    if source.adds_one:
        return StoredTensor(name, source.shape, F32, _one_more(tensor), file_bytes=tensor.entry.byte_count)
    read = _transposed(tensor, source) if source.is_transposed else _rows(tensor, source)
    return StoredTensor(name, source.shape, tensor.format, read)


def _one_more(tensor: ShardTensor) -> Read:
    """1 + what is stored, rounded to float32 once, as implementations of Gemma add it."""

    def read() -> NDArray[np.uint8]:
        stored = tensor.format.unpack(tensor.read(0, tensor.entry.byte_count).reshape(-1, tensor.format.block_bytes))
        return (np.float32(1) + stored).reshape(1, -1).view(np.uint8)

    return read


def _rows(tensor: ShardTensor, source: Source) -> Read:
    row_count, row_bytes = prod(source.shape[:-1]), tensor.format.row_bytes(source.shape[-1])
    first = source.first * tensor.format.block_bytes

    def read() -> NDArray[np.uint8]:
        return tensor.read(first, row_count * row_bytes).reshape(row_count, row_bytes)

    return read


def _transposed(tensor: ShardTensor, source: Source) -> Read:
    """Outputs `first` and on of a matrix that lies as [inputs, outputs]."""
    inputs, outputs = source.published_shape
    row_bytes = tensor.format.row_bytes(outputs)
    step = max(1, CHUNK_BYTES // row_bytes)
    number = np.dtype(f"<u{tensor.format.block_bytes}")
    ours = slice(source.first, source.first + source.shape[0])

    def read() -> NDArray[np.uint8]:
        rows = np.empty((source.shape[0], inputs), dtype=number)
        for start in range(0, inputs, step):
            count = min(step, inputs - start)
            piece = tensor.read(start * row_bytes, count * row_bytes).view(number).reshape(count, outputs)
            rows[:, start : start + count] = piece[:, ours].T
        return rows.view(np.uint8)

    return read
