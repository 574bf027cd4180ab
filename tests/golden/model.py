"""A small model made of integers alone, and a digest of what the native op set computes with it.

Always: the same bytes on every machine and with every version of every library.
"""

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from model.batch import Batch, Segment
from model.config import ModelConfig
from model.kv_cache import pages_for
from model.loading import ggml
from model.loading.checkpoint import Checkpoint
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
PROMPT_LENGTH = 150
PAGES = pages_for(PROMPT_LENGTH)
PROMPT = tuple(7 * position % CONFIG.vocabulary_size for position in range(PROMPT_LENGTH))
CHUNKS = (1, 49, 100)
DIGITS = 16


def model_digest(isa: Isa, kv_type: KvType, *, threads: int = 1) -> str:
    """Of the logits after a prompt of 150 tokens, and after two of its beginnings."""
    ops = NativeOps(CONFIG, PAGES, isa=isa, kv_type=kv_type, threads=threads)
    runner = ModelRunner(ops, golden_checkpoint())
    digest, start = hashlib.sha256(), 0
    for count in CHUNKS:
        segment = Segment(PROMPT[start : start + count], start, tuple(range(PAGES)), asks=1)
        digest.update(runner.forward(Batch((segment,))).numpy().astype("<f4").tobytes())
        start += count
    return digest.hexdigest()[:DIGITS]


def golden_checkpoint() -> Checkpoint:
    """Weights in every block format that the native op set keeps as stored, and in float16, which it rounds."""
    return Checkpoint("golden", "", CONFIG, {tensor.name: tensor for tensor in _tensors()}, NO_VOCABULARY)


def _tensors() -> Iterator[StoredTensor]:
    width, kv_width, wide = CONFIG.width, CONFIG.kv_head_count * CONFIG.head_width, CONFIG.feed_forward_width
    yield _matrix("embedding", CONFIG.vocabulary_size, width, ggml.Q8_0)
    yield _gain("output_norm")
    for layer in range(CONFIG.layer_count):
        prefix = f"layers.{layer}."
        yield _gain(f"{prefix}attention_norm")
        for name, outputs in (("query", width), ("key", kv_width), ("value", kv_width)):
            yield _matrix(f"{prefix}{name}", outputs, width, ggml.Q4_1)
        yield _matrix(f"{prefix}attention_output", width, width, ggml.Q4_0)
        yield _gain(f"{prefix}feed_forward_norm")
        for name in ("gate", "up"):
            yield _matrix(f"{prefix}{name}", wide, width, ggml.Q4_1)
        yield _matrix(f"{prefix}down", width, wide, ggml.F16)


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


def _gain(name: str) -> StoredTensor:
    gains = (512 + _random_bytes(name, CONFIG.width, 1).astype("<f4")) * np.float32(2**-9)
    rows = gains.reshape(1, -1).view(np.uint8)
    return StoredTensor(name, (CONFIG.width,), ggml.F32, lambda: rows)


def _write_halves(blocks: NDArray[np.uint8], place: int, values: NDArray[np.float32]) -> None:
    blocks[:, 2 * place : 2 * place + 2] = values.astype("<f2").reshape(-1, 1).view(np.uint8)


def _random_bytes(name: str, rows: int, width: int) -> NDArray[np.uint8]:
    drawn = hashlib.shake_128(name.encode()).digest(rows * width)
    return np.frombuffer(drawn, dtype=np.uint8).reshape(rows, width)
