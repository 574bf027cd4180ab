"""Tiny random checkpoints that never touch a file: any shape, weights exactly those of `tiny_weights`."""

import numpy as np
from numpy.typing import NDArray

from model.config import ModelConfig, RopeScaling
from model.loading.checkpoint import Checkpoint, Vocabulary
from model.loading.ggml import F32
from model.loading.names import name_from_gguf
from model.loading.tensor import StoredTensor
from tests.tiny_model import TinyShape, tiny_weights

DEFAULT_SHAPE = TinyShape()
NO_VOCABULARY = Vocabulary(
    pre_tokenizer="smollm",
    tokens=(),
    merges=(),
    control_token_ids=frozenset(),
    user_defined_token_ids=frozenset(),
    eos_token_ids=frozenset(),
)


def memory_checkpoint(shape: TinyShape = DEFAULT_SHAPE, *, seed: int = 0) -> Checkpoint:
    """The model that `tiny_hf_model` of the same shape and seed computes, without its vocabulary."""
    tensors = [
        stored_in_memory(name_from_gguf(name) or name, weight)
        for name, weight in tiny_weights(shape, seed=seed).items()
    ]
    return Checkpoint(
        name="tiny",
        sha256="",
        config=config_of(shape),
        tensors={tensor.name: tensor for tensor in tensors},
        vocabulary=NO_VOCABULARY,
    )


def config_of(shape: TinyShape) -> ModelConfig:
    scaling = shape.rope_factor and RopeScaling(
        factor=shape.rope_factor, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context_length=8192
    )
    return ModelConfig(
        architecture="llama",
        layer_count=shape.layers,
        width=shape.width,
        head_count=shape.heads,
        kv_head_count=shape.kv_heads,
        head_width=shape.head_width,
        feed_forward_width=shape.feed_forward,
        vocabulary_size=shape.vocabulary,
        context_length=shape.context,
        rope_base=shape.rope_base,
        norm_epsilon=float(np.float32(shape.epsilon)),
        rope_scaling=scaling or None,
    )


def stored_in_memory(name: str, weight: NDArray[np.float32]) -> StoredTensor:
    """A float32 weight as a file would hold it; what it reads cannot be written to."""
    rows = np.atleast_2d(weight).copy().view(np.uint8)
    rows.flags.writeable = False
    return StoredTensor(name, weight.shape, F32, lambda: rows)
