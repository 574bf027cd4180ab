"""The constants of a model, read from the metadata of a GGUF file.

Knows no weights but the frequency factors of Llama 3's rotary scaling. Always: a configuration that is returned
keeps the rules of `ModelConfig`, and its widths are bounded.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from model.config import ModelConfig, RopeScaling, SlidingWindow
from model.family import Family
from model.loading.gguf_metadata import Metadata
from model.rope import frequency_factors

MAX_LAYERS = 512
MAX_WIDTH = 1 << 20
MAX_HEADS = 1 << 16
MAX_CONTEXT = 1 << 24
MAX_WINDOW = (1 << 31) - 1
MAX_VOCABULARY = 1 << 24
DEFAULT_ROPE_BASE = 10_000.0
GEMMA_WINDOW_PATTERN = 6
GEMMA_LARGEST = 62
"""Layers of the one Gemma 3 (27B) whose scores are scaled by the width of heads that fill its hidden states."""


def read_config(metadata: Metadata, family: Family, token_count: int) -> ModelConfig:
    """The configuration without rotary scaling, which a tensor describes. `token_count`: length of the vocabulary."""
    return _Reader(metadata, family).config(token_count)


@dataclass(frozen=True, slots=True)
class _Reader:
    """The keys behind the name of an architecture."""

    metadata: Metadata
    family: Family

    def key(self, name: str) -> str:
        return f"{self.family.name}.{name}"

    def integer(self, name: str, least: int, most: int, default: int | None = None) -> int:
        return self.metadata.integer(self.key(name), least, most, default)

    def number(self, name: str, least: float, most: float, default: float | None = None) -> float:
        return self.metadata.number(self.key(name), least, most, default)

    def config(self, token_count: int) -> ModelConfig:
        width = self.integer("embedding_length", 1, MAX_WIDTH)
        heads = self.integer("attention.head_count", 1, MAX_HEADS)
        kv_heads = self.integer("attention.head_count_kv", 1, heads, default=heads)
        if heads % kv_heads:
            key = self.key("attention.head_count_kv")
            self.metadata.refuse(key, f"is {kv_heads}, which does not divide {heads} heads")
        vocabulary_size = self.integer("vocab_size", 1, MAX_VOCABULARY, default=token_count)
        if vocabulary_size != token_count:
            key = self.key("vocab_size")
            self.metadata.refuse(key, f"is {vocabulary_size}, but the file lists {token_count} tokens")
        epsilon = "layer_norm_epsilon" if self.family.has_layer_norms else "layer_norm_rms_epsilon"
        config = ModelConfig(
            architecture=self.family.name,
            layer_count=self.integer("block_count", 1, MAX_LAYERS),
            width=width,
            head_count=heads,
            kv_head_count=kv_heads,
            head_width=self.head_width(width, heads),
            feed_forward_width=self.integer("feed_forward_length", 1, MAX_WIDTH),
            vocabulary_size=vocabulary_size,
            context_length=self.integer("context_length", 1, MAX_CONTEXT),
            rope_base=self.number("rope.freq_base", 1, 1e12, default=DEFAULT_ROPE_BASE),
            norm_epsilon=self.number(f"attention.{epsilon}", 1e-12, 1),
        )
        config = self.with_gemma(config) if self.family.name == "gemma3" else self.with_window(config)
        return self.with_scale(config)

    def head_width(self, width: int, heads: int) -> int:
        key = self.key("attention.key_length")
        if key in self.metadata:
            head_width = self.metadata.integer(key, 1, MAX_WIDTH)
        elif width % heads:
            reason = f"is {heads}, which does not divide a width of {width}"
            self.metadata.refuse(self.key("attention.head_count"), reason)
        else:
            head_width = width // heads
        if head_width % 2:
            self.metadata.refuse(key, f"is {head_width}; rotary positions need an even width")
        for name in ("attention.value_length", "rope.dimension_count"):
            other = self.integer(name, 1, MAX_WIDTH, default=head_width)
            if other != head_width:
                reason = f"is {other}, but heads are {head_width} wide: a difference is not implemented"
                self.metadata.refuse(self.key(name), reason)
        return head_width

    def with_window(self, config: ModelConfig) -> ModelConfig:
        """A window over all layers, where there is one that the context does not fit into."""
        width = self.integer("attention.sliding_window", 0, MAX_WINDOW, default=0)
        return replace(config, window=SlidingWindow(width)) if 0 < width < config.context_length else config

    def with_gemma(self, config: ModelConfig) -> ModelConfig:
        """What Gemma 3 has in every size: windows but for every sixth layer, two bases, scaled embeddings."""
        window = SlidingWindow(
            self.integer("attention.sliding_window", 1, MAX_WINDOW),
            full_every=self.integer("attention.sliding_window_pattern", 1, MAX_LAYERS, default=GEMMA_WINDOW_PATTERN),
            rope_base=self.number("rope.freq_base_swa", 1, 1e12, default=DEFAULT_ROPE_BASE),
        )
        is_largest = config.layer_count == GEMMA_LARGEST
        return replace(
            config,
            window=window,
            embedding_scale=float(np.float32(math.sqrt(config.width))),
            query_scale=1 / math.sqrt(config.width / config.head_count) if is_largest else None,
        )

    def with_scale(self, config: ModelConfig) -> ModelConfig:
        key = self.key("attention.scale")
        if key not in self.metadata:
            return config
        scale = self.metadata.number(key, 1e-6, 1e6)
        return (
            config if math.isclose(scale, config.attention_scale, rel_tol=1e-6) else replace(config, query_scale=scale)
        )


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
