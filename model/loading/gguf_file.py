"""Writes GGUF version 3: metadata and tensors in the order given.

Knows the container and how a checkpoint's own description becomes keys; does not choose formats. Always: what is
written here is read back by `gguf.py` as the same description and the same weights.
"""

import os
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.config import ModelConfig
from model.loading.checkpoint import Checkpoint, GenerationDefaults, ModelFileError, Vocabulary
from model.loading.ggml import F32, FORMATS
from model.loading.gguf import ROPE_FACTORS
from model.loading.gguf_reader import DEFAULT_ALIGNMENT, MAGIC, ValueType
from model.loading.gguf_vocabulary import BYTE, CONTROL, ENDS, FORMS, IGNORES_MERGES, NORMAL, UNUSED, USER_DEFINED
from model.loading.tensor import BlockFormat
from model.pre_tokenizers import IGNORE_MERGES
from model.rope import frequency_factors

VERSION = 3
QUANTISATION_VERSION = 2
_NUMBERS = {format.name: number for number, format in FORMATS.items()}
FILE_TYPES: Mapping[str, int] = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q8_0": 7,
    "Q5_0": 8,
    "Q5_1": 9,
    "Q2_K": 10,
    "Q3_K": 11,
    "Q4_K": 14,
    "Q5_K": 16,
    "Q6_K": 18,
    "IQ4_NL": 25,
    "BF16": 32,
}
"""What llama.cpp calls a file of mostly this format (its `llama_ftype`); of K-quants the plain mixture, "small"."""
_SCALARS: Mapping[ValueType, str] = {
    ValueType.UINT32: "<I",
    ValueType.INT32: "<i",
    ValueType.FLOAT32: "<f",
    ValueType.BOOL: "<?",
}

Scalar = str | int | float | bool
Key = tuple[str, ValueType, Scalar | Sequence[str] | Sequence[int] | Sequence[float]]
"""A key, the type of its value or of the elements of its list, and the value."""


@dataclass(frozen=True, slots=True)
class Written:
    """A tensor to be written: `read` is called once, and gives [rows, bytes per row]."""

    format: BlockFormat
    shape: tuple[int, ...]
    read: Callable[[], NDArray[np.uint8]]

    @property
    def byte_count(self) -> int:
        return prod(self.shape[:-1]) * self.format.row_bytes(self.shape[-1])


def write_gguf_file(path: Path, checkpoint: Checkpoint, tensors: Mapping[str, Written]) -> None:
    """Write a new file with the checkpoint's description, and the tensors by their names in GGUF. Raises OSError."""
    keys = [*description_keys(checkpoint), *_file_type(tensors)]
    tensors = {**tensors, **_rope_factors(checkpoint.config)}
    header = MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(keys))
    header += b"".join(_key(*key) for key in keys)
    offset = 0
    for name, tensor in tensors.items():
        sizes = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *reversed(tensor.shape))
        header += _text(name) + sizes + struct.pack("<IQ", _NUMBERS[tensor.format.name], offset)
        offset += tensor.byte_count + _padding(tensor.byte_count)
    with path.open("xb") as sink:
        sink.write(header + b"\0" * _padding(len(header)))
        for piece in _data(tensors):
            sink.write(piece)
        sink.flush()
        os.fsync(sink.fileno())


def description_keys(checkpoint: Checkpoint) -> list[Key]:
    """Everything that a checkpoint says beside its weights and its rotary scaling."""
    keys: list[Key] = [
        ("general.architecture", ValueType.STRING, checkpoint.config.architecture),
        ("general.name", ValueType.STRING, checkpoint.name),
        ("general.quantization_version", ValueType.UINT32, QUANTISATION_VERSION),
        *_default_keys(checkpoint.defaults),
        *_config_keys(checkpoint.config),
        *_vocabulary_keys(checkpoint.vocabulary),
    ]
    if checkpoint.chat_template is not None:
        keys.append(("tokenizer.chat_template", ValueType.STRING, checkpoint.chat_template))
    return keys


def _file_type(tensors: Mapping[str, Written]) -> Iterator[Key]:
    """The format that most weights of linear layers have, by its number among types of files; none without weights."""
    weights: Counter[str] = Counter()
    for name, tensor in tensors.items():
        if name.startswith("blk.") and len(tensor.shape) > 1:
            weights[tensor.format.name] += prod(tensor.shape)
    for format, _ in weights.most_common(1):
        yield "general.file_type", ValueType.UINT32, FILE_TYPES[format]


def as_a_file_holds(config: ModelConfig) -> ModelConfig:
    """The configuration with the float32 numbers that a file has room for."""
    window = config.window
    if window is not None and window.rope_base is not None:
        window = replace(window, rope_base=_float32(window.rope_base))
    return replace(
        config,
        rope_base=_float32(config.rope_base),
        norm_epsilon=_float32(config.norm_epsilon),
        query_scale=None if config.query_scale is None else _float32(config.query_scale),
        window=window,
    )


def _float32(number: float) -> float:
    return float(np.float32(number))


def _config_keys(config: ModelConfig) -> Iterator[Key]:
    family, window = config.family, config.window
    integers = {
        "block_count": config.layer_count,
        "context_length": config.context_length,
        "embedding_length": config.width,
        "feed_forward_length": config.feed_forward_width,
        "attention.head_count": config.head_count,
        "attention.head_count_kv": config.kv_head_count,
        "attention.key_length": config.head_width,
        "attention.value_length": config.head_width,
        **({} if family.has_learned_positions else {"rope.dimension_count": config.head_width}),
        "vocab_size": config.vocabulary_size,
        **({} if window is None else {"attention.sliding_window": window.width}),
        **({"attention.sliding_window_pattern": window.full_every} if window and window.full_every else {}),
    }
    epsilon = "attention.layer_norm_epsilon" if family.has_layer_norms else "attention.layer_norm_rms_epsilon"
    numbers = {
        **({} if family.has_learned_positions else {"rope.freq_base": config.rope_base}),
        epsilon: config.norm_epsilon,
        **({} if config.query_scale is None else {"attention.scale": config.query_scale}),
        **({"rope.freq_base_swa": window.rope_base} if window and window.rope_base else {}),
    }
    for name, number in integers.items():
        yield f"{family.name}.{name}", ValueType.UINT32, number
    for name, value in numbers.items():
        yield f"{family.name}.{name}", ValueType.FLOAT32, value


def _vocabulary_keys(vocabulary: Vocabulary) -> Iterator[Key]:
    byte_level = vocabulary.form == "byte_level"
    named = next(name for name, form in FORMS.items() if form == vocabulary.form)
    yield "tokenizer.ggml.model", ValueType.STRING, named
    yield "tokenizer.ggml.pre", ValueType.STRING, vocabulary.pre_tokenizer if byte_level else "default"
    yield "tokenizer.ggml.tokens", ValueType.STRING, vocabulary.tokens
    types = [_token_type(vocabulary, token_id) for token_id in range(len(vocabulary.tokens))]
    yield "tokenizer.ggml.token_type", ValueType.INT32, types
    if vocabulary.form == "sentencepiece":
        yield "tokenizer.ggml.scores", ValueType.FLOAT32, vocabulary.scores
    else:
        yield "tokenizer.ggml.merges", ValueType.STRING, vocabulary.merges
    if vocabulary.ignores_merges != (vocabulary.pre_tokenizer in IGNORE_MERGES):
        yield IGNORES_MERGES, ValueType.BOOL, vocabulary.ignores_merges
    if vocabulary.bos_token_id is not None:
        yield "tokenizer.ggml.bos_token_id", ValueType.UINT32, vocabulary.bos_token_id
    if len(vocabulary.eos_token_ids) > len(ENDS):
        raise ModelFileError(f"{len(vocabulary.eos_token_ids)} ids end a text; a GGUF file names {len(ENDS)} at most")
    for key, token_id in zip(ENDS, sorted(vocabulary.eos_token_ids), strict=False):
        yield key, ValueType.UINT32, token_id
    yield "tokenizer.ggml.add_bos_token", ValueType.BOOL, vocabulary.adds_bos
    yield "tokenizer.ggml.add_space_prefix", ValueType.BOOL, vocabulary.adds_space_prefix


def _token_type(vocabulary: Vocabulary, token_id: int) -> int:
    kinds = {
        CONTROL: vocabulary.control_token_ids,
        USER_DEFINED: vocabulary.user_defined_token_ids,
        UNUSED: vocabulary.unused_token_ids,
        BYTE: vocabulary.byte_token_ids,
    }
    return next((kind for kind, ids in kinds.items() if token_id in ids), NORMAL)


def _default_keys(defaults: GenerationDefaults) -> Iterator[Key]:
    for name, number in (("temp", defaults.temperature), ("top_p", defaults.top_p), ("min_p", defaults.min_p)):
        if number is not None:
            yield f"general.sampling.{name}", ValueType.FLOAT32, number
    if defaults.top_k is not None:
        yield "general.sampling.top_k", ValueType.INT32, defaults.top_k


def _rope_factors(config: ModelConfig) -> dict[str, Written]:
    if config.rope_scaling is None:
        return {}
    factors = frequency_factors(config, config.rope_scaling).astype("<f4").reshape(1, -1)
    return {ROPE_FACTORS: Written(F32, (factors.size,), lambda: factors.view(np.uint8))}


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _key(name: str, kind: ValueType, value: Scalar | Sequence[str] | Sequence[int] | Sequence[float]) -> bytes:
    if isinstance(value, str | int | float | bool):
        return _text(name) + struct.pack("<I", kind) + _element(kind, value)
    elements = b"".join(_element(kind, element) for element in value)
    return _text(name) + struct.pack("<IIQ", ValueType.ARRAY, kind, len(value)) + elements


def _element(kind: ValueType, value: Scalar) -> bytes:
    return _text(value) if isinstance(value, str) else struct.pack(_SCALARS[kind], value)


def _padding(count: int) -> int:
    return -count % DEFAULT_ALIGNMENT


def _data(tensors: Mapping[str, Written]) -> Iterator[bytes | memoryview]:
    for name, tensor in tensors.items():
        data = np.ascontiguousarray(tensor.read()).reshape(-1)
        if data.size != tensor.byte_count:
            raise ValueError(f"{name} has {data.size} bytes, not {tensor.byte_count}")
        yield data.data
        yield b"\0" * _padding(data.size)
