"""Small models made of integers alone, and a digest of what the native op set computes with each.

Always: the same bytes on every machine and with every version of every library.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from model.batch import Batch, Segment
from model.config import ModelConfig, SlidingWindow
from model.kv_cache import pages_for
from model.loading import ggml
from model.loading.checkpoint import Checkpoint
from model.loading.shapes import decoder_shapes
from model.loading.tensor import BlockFormat, StoredTensor
from model.ops.native_ops import Isa, KvType, NativeOps
from model.runner import ModelRunner
from tests.memory_checkpoint import NO_VOCABULARY

CONFIG = ModelConfig(
    architecture="llama",
    layer_count=2,
    width=96,
    head_count=6,
    kv_head_count=2,
    head_width=16,
    feed_forward_width=160,
    vocabulary_size=300,
    context_length=512,
    rope_base=10000.0,
    norm_epsilon=1e-5,
)
FAMILIES: Mapping[str, ModelConfig] = {
    "model": CONFIG,
    "gemma3": replace(
        CONFIG,
        architecture="gemma3",
        layer_count=3,
        window=SlidingWindow(40, full_every=3, rope_base=5000.0),
        embedding_scale=9.75,
        query_scale=0.3125,
    ),
    "gpt2": replace(CONFIG, architecture="gpt2", kv_head_count=6),
}
"""Gemma has windows, norms of heads and outputs, and scales; GPT-2 has biases, LayerNorm and learned positions."""
PROMPT_LENGTH = 150
PAGES = pages_for(PROMPT_LENGTH)
PROMPT = tuple(7 * position % CONFIG.vocabulary_size for position in range(PROMPT_LENGTH))
FORMATS = {
    "embedding": ggml.Q8_0,
    "position_embedding": ggml.Q8_0,
    "query": ggml.Q4_1,
    "key": ggml.Q4_1,
    "value": ggml.Q4_1,
    "attention_output": ggml.Q4_0,
    "gate": ggml.Q4_1,
    "up": ggml.Q4_1,
    "down": ggml.F16,
}
CHUNKS = (1, 49, 100)
DIGITS = 16


def model_digest(family: str, isa: Isa, kv_type: KvType, *, threads: int = 1) -> str:
    """Of the logits after a prompt of 150 tokens, and after two of its beginnings."""
    config = FAMILIES[family]
    ops = NativeOps(config, PAGES, isa=isa, kv_type=kv_type, threads=threads)
    runner = ModelRunner(ops, golden_checkpoint(config))
    digest, start = hashlib.sha256(), 0
    for count in CHUNKS:
        segment = Segment(PROMPT[start : start + count], start, tuple(range(PAGES)), asks=1)
        digest.update(runner.forward(Batch((segment,))).numpy().astype("<f4").tobytes())
        start += count
    return digest.hexdigest()[:DIGITS]


def golden_checkpoint(config: ModelConfig) -> Checkpoint:
    """Weights in every block format that the native op set keeps as stored, and in float16, which it rounds."""
    shapes = {name: shape for name, shape in decoder_shapes(config).items() if name != "head"}
    tensors = {name: _tensor(name, shape) for name, shape in shapes.items()}
    return Checkpoint("golden", "", config, tensors, NO_VOCABULARY)


def _tensor(name: str, shape: tuple[int, ...]) -> StoredTensor:
    if len(shape) == 1:
        return _bias(name, *shape) if name.endswith("_bias") else _gain(name, *shape)
    outputs, inputs = shape
    return _matrix(name, outputs, inputs, FORMATS[name.rpartition(".")[2]])


def _matrix(name: str, outputs: int, inputs: int, format: BlockFormat) -> StoredTensor:
    blocks = _random_bytes(name, outputs * inputs // format.block_size, format.block_bytes).copy()
    steps = 8 + blocks[:, 0].astype(np.float32) % 8  # of 2⁻¹⁰ in a 4-bit grid
    if format is ggml.F16:
        _write_halves(blocks, 0, (blocks[:, 0].astype(np.float32) - 128) * np.float32(2**-9))
    elif format is ggml.Q8_0:
        _write_halves(blocks, 0, steps * np.float32(2**-11))
    else:
        _write_halves(blocks, 0, steps * np.float32(2**-9))
    if format is ggml.Q4_1:
        _write_halves(blocks, 1, steps * np.float32(-8 * 2**-9))
    rows = blocks.reshape(outputs, -1)
    return StoredTensor(name, (outputs, inputs), format, lambda: rows)


def _gain(name: str, width: int) -> StoredTensor:
    return _vector(name, (512 + _random_bytes(name, width, 1).astype("<f4")) * np.float32(2**-9))


def _bias(name: str, width: int) -> StoredTensor:
    return _vector(name, (_random_bytes(name, width, 1).astype("<f4") - 128) * np.float32(2**-9))


def _vector(name: str, values: NDArray[np.float32]) -> StoredTensor:
    rows = values.reshape(1, -1).view(np.uint8)
    return StoredTensor(name, (rows.shape[1] // 4,), ggml.F32, lambda: rows)


def _write_halves(blocks: NDArray[np.uint8], place: int, values: NDArray[np.float32]) -> None:
    blocks[:, 2 * place : 2 * place + 2] = values.astype("<f2").reshape(-1, 1).view(np.uint8)


def _random_bytes(name: str, rows: int, width: int) -> NDArray[np.uint8]:
    drawn = hashlib.shake_128(name.encode()).digest(rows * width)
    return np.frombuffer(drawn, dtype=np.uint8).reshape(rows, width)
