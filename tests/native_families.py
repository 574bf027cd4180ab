"""Tiny random models of every family in memory, for the native op set: windows that end many times in a prompt.

Always: the same name and changes give the same weights; every gain and every bias is random.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.batch import Batch, Segment
from model.config import ModelConfig, SlidingWindow
from model.kv_cache import pages_for
from model.loading.checkpoint import Checkpoint
from model.loading.shapes import decoder_shapes
from model.ops.native_ops import NativeOps
from model.runner import ModelRunner
from tests.memory_checkpoint import NO_VOCABULARY, stored_in_memory

Logits = NDArray[np.float32]
PAGES = 48
_PLAIN = ModelConfig(
    architecture="llama",
    layer_count=2,
    width=64,
    head_count=4,
    kv_head_count=2,
    head_width=16,
    feed_forward_width=96,
    vocabulary_size=320,
    context_length=512,
    rope_base=10_000.0,
    norm_epsilon=1e-5,
)
_GEMMA = replace(
    _PLAIN,
    architecture="gemma3",
    layer_count=4,
    kv_head_count=1,
    head_width=32,
    rope_base=1e6,
    window=SlidingWindow(24, full_every=3, rope_base=10_000.0),
    embedding_scale=8.0,
    query_scale=20**-0.5,
)
CONFIGS: Mapping[str, ModelConfig] = {
    "mistral": replace(_PLAIN, window=SlidingWindow(24)),
    "mistral, a window over blocks": replace(_PLAIN, window=SlidingWindow(130)),
    "qwen2": replace(_PLAIN, architecture="qwen2", rope_base=1e6),
    "qwen3": replace(_PLAIN, architecture="qwen3", head_width=32, rope_base=1e6),
    "gemma3": _GEMMA,
    "gemma3, the widest heads": replace(
        _GEMMA, layer_count=2, head_width=256, query_scale=None, window=SlidingWindow(24, 2, 10_000.0)
    ),
    "gpt2": replace(_PLAIN, architecture="gpt2", kv_head_count=4),
}


def family_checkpoint(name: str, **changes: Any) -> Checkpoint:
    """A model of one of CONFIGS, changed as given, without a vocabulary; its head is its embedding."""
    config = replace(CONFIGS[name], **changes)
    rng = np.random.default_rng(0)

    def made(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        normal = rng.standard_normal(shape, dtype=np.float32)
        if len(shape) > 1:
            great = np.float32(2 if name.endswith(("query", "key")) else 1)
            return normal * great / np.float32(np.sqrt(shape[1]))
        return np.float32(0.2) * normal + np.float32(0 if name.endswith("bias") else 1)

    shapes = {name: shape for name, shape in decoder_shapes(config).items() if name != "head"}
    tensors = {name: stored_in_memory(name, made(name, shape)) for name, shape in shapes.items()}
    return Checkpoint(name=name, sha256="", config=config, tensors=tensors, vocabulary=NO_VOCABULARY)


def native_runner(checkpoint: Checkpoint, **given: Any) -> ModelRunner:
    """On PAGES pages, all NaN until they are written."""
    ops = NativeOps(checkpoint.config, PAGES, **given)
    runner = ModelRunner(ops, checkpoint)
    ops.poison_pages()
    return runner


def last_logits(runner: ModelRunner, tokens: Sequence[int], *, chunk: int = 1 << 20) -> Logits:
    """Logits [vocabulary] of the last token, the prompt cut into chunks; it lies in the first pages."""
    logits: Logits = np.empty((1, 0), dtype=np.float32)
    for start in range(0, len(tokens), chunk):
        piece = tuple(tokens[start : start + chunk])
        end = start + len(piece)
        segment = Segment(piece, start, tuple(range(pages_for(end))), asks=int(end == len(tokens)))
        logits = runner.forward(Batch((segment,))).numpy()
    last: Logits = logits[0]
    return last
