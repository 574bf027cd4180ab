"""The constants of a Llama, read from the metadata of a GGUF file.

Knows no weights but the frequency factors of Llama 3's rotary scaling. Always: a configuration that is returned
keeps the rules of `ModelConfig`, and its widths are bounded.
"""

import numpy as np
from numpy.typing import NDArray

from model.config import ModelConfig, RopeScaling
from model.loading.gguf_metadata import Metadata
from model.rope import frequency_factors

MAX_LAYERS = 512
MAX_WIDTH = 1 << 20
MAX_HEADS = 1 << 16
MAX_CONTEXT = 1 << 24
MAX_VOCABULARY = 1 << 24
DEFAULT_ROPE_BASE = 10_000.0


def read_config(metadata: Metadata, token_count: int) -> ModelConfig:
    """The configuration without rotary scaling, which a tensor describes. `token_count`: length of the vocabulary."""
    width = metadata.integer("llama.embedding_length", 1, MAX_WIDTH)
    heads = metadata.integer("llama.attention.head_count", 1, MAX_HEADS)
    kv_heads = metadata.integer("llama.attention.head_count_kv", 1, heads, default=heads)
    if heads % kv_heads:
        metadata.refuse("llama.attention.head_count_kv", f"is {kv_heads}, which does not divide {heads} heads")
    vocabulary_size = metadata.integer("llama.vocab_size", 1, MAX_VOCABULARY, default=token_count)
    if vocabulary_size != token_count:
        metadata.refuse("llama.vocab_size", f"is {vocabulary_size}, but the file lists {token_count} tokens")
    return ModelConfig(
        architecture="llama",
        layer_count=metadata.integer("llama.block_count", 1, MAX_LAYERS),
        width=width,
        head_count=heads,
        kv_head_count=kv_heads,
        head_width=_read_head_width(metadata, width, heads),
        feed_forward_width=metadata.integer("llama.feed_forward_length", 1, MAX_WIDTH),
        vocabulary_size=vocabulary_size,
        context_length=metadata.integer("llama.context_length", 1, MAX_CONTEXT),
        rope_base=metadata.number("llama.rope.freq_base", 1, 1e12, default=DEFAULT_ROPE_BASE),
        norm_epsilon=metadata.number("llama.attention.layer_norm_rms_epsilon", 1e-12, 1),
    )


def _read_head_width(metadata: Metadata, width: int, heads: int) -> int:
    if "llama.attention.key_length" in metadata:
        head_width = metadata.integer("llama.attention.key_length", 1, MAX_WIDTH)
    elif width % heads:
        metadata.refuse("llama.attention.head_count", f"is {heads}, which does not divide a width of {width}")
    else:
        head_width = width // heads
    if head_width % 2:
        metadata.refuse("llama.attention.key_length", f"is {head_width}; rotary positions need an even width")
    for key in ("llama.attention.value_length", "llama.rope.dimension_count"):
        other = metadata.integer(key, 1, MAX_WIDTH, default=head_width)
        if other != head_width:
            metadata.refuse(key, f"is {other}, but heads are {head_width} wide: a difference is not implemented")
    return head_width


def scaling_of(config: ModelConfig, factors: NDArray[np.float32]) -> RopeScaling | None:
    """The scaling with these frequency factors, [head_width / 2]; None when it is not the one of Llama 3.

    Files hold the factors and not the constants that they come from; every Llama 3 has the same but for `factor`,
    which is the largest.
    """
    scaling = RopeScaling(
        factor=float(factors.max()),
        low_frequency_factor=1.0,
        high_frequency_factor=4.0,
        original_context_length=8192,
    )
    matches = scaling.factor >= 1 and np.allclose(factors, frequency_factors(config, scaling), rtol=1e-4, atol=0)
    return scaling if matches else None
