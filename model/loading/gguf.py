"""A GGUF file as a `Checkpoint`: configuration, vocabulary and weights of a known family, each checked first.

Knows no op sets. Weights stay in the file until an op set reads them, and are held by none of this.
Always: the tensors are exactly those of the architecture, in their shapes, finite; anything that could change
the model and is not implemented is refused by name; every failure is a ModelFileError.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.config import ModelConfig
from model.family import FAMILIES
from model.loading import ggml
from model.loading.checkpoint import Checkpoint, GenerationDefaults, Vocabulary
from model.loading.cursor import shown
from model.loading.gguf_config import read_config, scaling_of
from model.loading.gguf_metadata import Metadata
from model.loading.gguf_reader import TensorInfo, Value, read_header
from model.loading.gguf_rules import check_keys
from model.loading.gguf_vocabulary import MAX_NAME_BYTES, read_chat_template, read_defaults, read_vocabulary
from model.loading.hub import PUBLISHED_MODELS
from model.loading.model_file import CHUNK_BYTES, ModelFile
from model.loading.names import fused_from_gguf, gguf_name, name_from_gguf
from model.loading.shapes import decoder_shapes
from model.loading.tensor import StoredTensor

ROPE_FACTORS = "rope_freqs.weight"


def load_gguf(path: Path) -> Checkpoint:
    """Check the whole file and describe it. Reads every byte twice, and keeps none.

    Raises ModelFileError, with the reason in one line and the place in the file where it is known.
    """
    file = ModelFile(path)
    header = read_header(file)
    said = read_description(file, header.metadata)
    parts = _parts(file, header.tensors, decoder_shapes(said.config))
    for info in header.tensors.values():
        _check_finite(file, info)
    config = _with_scaling(file, said.config, header.tensors.get(ROPE_FACTORS))
    sha256 = file.sha256()
    published = PUBLISHED_MODELS.get(sha256)
    defaults = said.defaults
    if published and defaults == GenerationDefaults():
        defaults = published.defaults
    return Checkpoint(
        name=published.name if published else said.name,
        sha256=sha256,
        config=config,
        tensors={part.name: _stored(file, config, part) for part in parts},
        vocabulary=said.vocabulary,
        chat_template=said.chat_template,
        defaults=defaults,
    )


@dataclass(frozen=True, slots=True)
class Description:
    """What a file says beside its weights. `config` lacks the rotary scaling, which a tensor describes."""

    name: str
    config: ModelConfig
    vocabulary: Vocabulary
    chat_template: str | None
    defaults: GenerationDefaults


def read_description(file: ModelFile, values: Mapping[str, Value]) -> Description:
    """Raises ModelFileError for a family that is not known, or one with a key that is not implemented."""
    metadata = Metadata(file, values)
    architecture = metadata.text("general.architecture", MAX_NAME_BYTES)
    family = FAMILIES.get(architecture)
    if family is None:
        known = ", ".join(map(repr, FAMILIES))
        metadata.refuse(
            "general.architecture",
            f"is {shown(architecture)}, whose decoder would have to be built; supported are {known}",
        )
    check_keys(metadata, family)
    vocabulary = read_vocabulary(metadata)
    config = read_config(metadata, family, len(vocabulary.tokens))
    name = metadata.text("general.name", MAX_NAME_BYTES, default=file.path.stem)
    return Description(
        name or file.path.stem, config, vocabulary, read_chat_template(metadata), read_defaults(metadata)
    )


def load_description(path: Path) -> tuple[ModelFile, Description]:
    """A file that holds no weights: what it says, rotary scaling and all. Raises ModelFileError."""
    file = ModelFile(path)
    header = read_header(file)
    said = read_description(file, header.metadata)
    for info in header.tensors.values():
        if info.name != ROPE_FACTORS:
            raise file.error(f"tensor {shown(info.name)} does not belong into a file without weights", info.offset)
        _check_finite(file, info)
    return file, replace(said, config=_with_scaling(file, said.config, header.tensors.get(ROPE_FACTORS)))


@dataclass(frozen=True, slots=True)
class _Part:
    """One of our tensors, and the rows of a file's tensor that it is."""

    name: str
    shape: tuple[int, ...]
    info: TensorInfo
    first_row: int = 0


def _parts(file: ModelFile, infos: Mapping[str, TensorInfo], shapes: Mapping[str, tuple[int, ...]]) -> list[_Part]:
    """What the file's tensors are. Raises ModelFileError for one that does not belong, does not fit or is missing."""
    parts: dict[str, _Part] = {}
    for info in infos.values():
        if info.name == ROPE_FACTORS:
            continue
        for part in _parts_of(file, info, shapes):
            if part.name in parts:
                raise file.error(f"tensor {info.name} holds what {parts[part.name].info.name} holds", info.offset)
            parts[part.name] = part
    for name in shapes:
        if name != "head" and name not in parts:
            raise file.error(f"tensor {gguf_name(name)} is missing")
    return list(parts.values())


def _parts_of(file: ModelFile, info: TensorInfo, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[_Part]:
    names = fused_from_gguf(info.name) or (name_from_gguf(info.name) or "",)
    if not all(name in shapes for name in names):
        raise file.error(f"tensor {shown(info.name)} is not implemented: no such model has it", info.offset)
    expected = (sum(shapes[name][0] for name in names), *shapes[names[0]][1:])
    if info.shape != expected:
        raise file.error(f"tensor {info.name} has shape {info.shape}; expected is {expected}", info.offset)
    if len(expected) == 1 and info.format.block_size > 1:
        raise file.error(f"tensor {info.name} is a vector stored as {info.format.name}", info.offset)
    first = 0
    for name in names:
        yield _Part(name, shapes[name], info, first)
        first += shapes[name][0]


def _check_finite(file: ModelFile, info: TensorInfo) -> None:
    step = CHUNK_BYTES // info.format.block_bytes * info.format.block_bytes
    for start in range(0, info.byte_count, step):
        data = file.read(info.offset + start, min(step, info.byte_count - start))
        if not ggml.are_finite(info.format, data.reshape(-1, info.format.block_bytes)):
            raise file.error(f"tensor {info.name} holds a NaN or an infinity", info.offset + start)


def _with_scaling(file: ModelFile, config: ModelConfig, info: TensorInfo | None) -> ModelConfig:
    if info is None:
        return config
    scaling, rotates = None, not config.family.has_learned_positions
    if rotates and info.shape == (config.head_width // 2,) and info.format is ggml.F32:
        scaling = scaling_of(config, file.read(info.offset, info.byte_count).view("<f4").astype(np.float32))
    if scaling is None:
        raise file.error(
            f"tensor {info.name} is not implemented: "
            + ("its rotary scaling is not that of Llama 3" if rotates else "the model's positions are learned"),
            info.offset,
        )
    return replace(config, rope_scaling=scaling)


def _stored(file: ModelFile, config: ModelConfig, part: _Part) -> StoredTensor:
    heads = None
    if config.architecture == "llama":
        heads = {"query": config.head_count, "key": config.kv_head_count}.get(part.name.rpartition(".")[2])
    return StoredTensor(part.name, part.shape, part.info.format, _reader(file, part, heads))


def _reader(file: ModelFile, part: _Part, permuted_heads: int | None) -> Callable[[], NDArray[np.uint8]]:
    row_count = prod(part.shape[:-1])
    row_bytes = part.info.format.row_bytes(part.shape[-1])
    # A vector is one row, of which a part is some numbers.
    start = part.first_row * (row_bytes if len(part.shape) > 1 else part.info.format.block_bytes)

    def read() -> NDArray[np.uint8]:
        rows = file.read(part.info.offset + start, row_count * row_bytes).reshape(row_count, -1)
        return rows if permuted_heads is None else unpermute_rows(rows, permuted_heads)

    return read


def unpermute_rows(rows: NDArray[np.uint8], head_count: int) -> NDArray[np.uint8]:
    """Rows of a query or key matrix in the order of the published weights.

    Rotary positions turn row i of a head together with row i + half of it. GGUF files of Llama put such a pair
    side by side, (0, half, 1, half + 1, …); blocks run along a row, so moving whole rows back changes no weight.
    """
    half = rows.shape[0] // head_count // 2
    return rows.reshape(head_count, half, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def permute_rows(rows: NDArray[np.uint8], head_count: int) -> NDArray[np.uint8]:
    """Undoes `unpermute_rows`: the order in which GGUF files of Llama have them."""
    half = rows.shape[0] // head_count // 2
    return rows.reshape(head_count, 2, half, -1).swapaxes(1, 2).reshape(rows.shape)
