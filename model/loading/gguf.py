"""A GGUF file as a `Checkpoint`: configuration, vocabulary and weights of a Llama, each checked first.

Knows no op sets. Weights stay in the file until an op set reads them, and are held by none of this.
Always: the tensors are exactly those of the architecture, in their shapes, finite; anything that could change
the model and is not implemented is refused by name; every failure is a ModelFileError.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.config import ModelConfig
from model.loading import ggml
from model.loading.checkpoint import Checkpoint, GenerationDefaults, Vocabulary
from model.loading.cursor import shown
from model.loading.gguf_config import read_config, scaling_of
from model.loading.gguf_metadata import Metadata
from model.loading.gguf_reader import TensorInfo, Value, read_header
from model.loading.gguf_rules import check_attention, check_keys
from model.loading.gguf_vocabulary import MAX_NAME_BYTES, read_chat_template, read_defaults, read_vocabulary
from model.loading.hub import PUBLISHED_MODELS
from model.loading.model_file import CHUNK_BYTES, ModelFile
from model.loading.names import gguf_name, name_from_gguf
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
    _check_tensors(file, header.tensors, decoder_shapes(said.config))
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
        tensors=_stored(file, config, header.tensors),
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
    """Raises ModelFileError for anything that is no plain Llama, or says what is not implemented."""
    metadata = Metadata(file, values)
    architecture = metadata.text("general.architecture", MAX_NAME_BYTES)
    if architecture != "llama":
        metadata.refuse("general.architecture", f"is {shown(architecture)}; supported is 'llama'")
    check_keys(metadata)
    vocabulary = read_vocabulary(metadata)
    config = read_config(metadata, len(vocabulary.tokens))
    check_attention(metadata, config)
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


def _check_tensors(file: ModelFile, infos: Mapping[str, TensorInfo], shapes: Mapping[str, tuple[int, ...]]) -> None:
    for info in infos.values():
        if info.name == ROPE_FACTORS:
            continue
        shape = shapes.get(name_from_gguf(info.name) or "")
        if shape is None:
            raise file.error(f"tensor {shown(info.name)} is not implemented: no plain Llama has it", info.offset)
        if info.shape != shape:
            raise file.error(f"tensor {info.name} has shape {info.shape}; expected is {shape}", info.offset)
        if len(shape) == 1 and info.format.block_size > 1:
            raise file.error(f"tensor {info.name} is a gain vector stored as {info.format.name}", info.offset)
    for name in shapes:
        if name != "head" and gguf_name(name) not in infos:
            raise file.error(f"tensor {gguf_name(name)} is missing")


def _check_finite(file: ModelFile, info: TensorInfo) -> None:
    step = CHUNK_BYTES // info.format.block_bytes * info.format.block_bytes
    for start in range(0, info.byte_count, step):
        data = file.read(info.offset + start, min(step, info.byte_count - start))
        if not ggml.are_finite(info.format, data.reshape(-1, info.format.block_bytes)):
            raise file.error(f"tensor {info.name} holds a NaN or an infinity", info.offset + start)


def _with_scaling(file: ModelFile, config: ModelConfig, info: TensorInfo | None) -> ModelConfig:
    if info is None:
        return config
    scaling = None
    if info.shape == (config.head_width // 2,) and info.format is ggml.F32:
        scaling = scaling_of(config, file.read(info.offset, info.byte_count).view("<f4").astype(np.float32))
    if scaling is None:
        raise file.error(
            f"tensor {info.name} is not implemented: its rotary scaling is not that of Llama 3", info.offset
        )
    return replace(config, rope_scaling=scaling)


def _stored(file: ModelFile, config: ModelConfig, infos: Mapping[str, TensorInfo]) -> dict[str, StoredTensor]:
    tensors = {}
    for info in infos.values():
        name = name_from_gguf(info.name)
        if name is None:
            continue
        permuted = {"query": config.head_count, "key": config.kv_head_count}.get(name.rpartition(".")[2])
        tensors[name] = StoredTensor(name, info.shape, info.format, _reader(file, info, permuted))
    return tensors


def _reader(file: ModelFile, info: TensorInfo, permuted_heads: int | None) -> Callable[[], NDArray[np.uint8]]:
    row_count = prod(info.shape[:-1])

    def read() -> NDArray[np.uint8]:
        rows = file.read(info.offset, info.byte_count).reshape(row_count, -1)
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
