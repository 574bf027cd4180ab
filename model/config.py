"""The shape and constants of one transformer, read from a model file and never changed.

Knows no tensors and no files. Always: `head_count` is a multiple of `kv_head_count`.
"""

import math
from dataclasses import dataclass, replace

from model.family import FAMILIES, Family


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3's frequency-dependent stretching of rotary positions."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_context_length: int


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Layers whose rows see only the positions just before them."""

    width: int
    """Positions that a row sees, its own among them."""
    full_every: int = 0
    """Layers full_every − 1, 2 · full_every − 1, … see everything; with 0 none does."""
    rope_base: float | None = None
    """Of the layers with the window, where it is another than the others'; they have no scaling then."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything the decoder's mathematics depends on beside the weights."""

    architecture: str
    """The name of its family."""
    layer_count: int
    width: int
    head_count: int
    kv_head_count: int
    head_width: int
    feed_forward_width: int
    vocabulary_size: int
    context_length: int
    rope_base: float
    norm_epsilon: float
    rope_scaling: RopeScaling | None = None
    window: SlidingWindow | None = None
    query_scale: float | None = None
    """What scores are multiplied by; None for 1/√head_width."""
    embedding_scale: float = 1.0
    """What embeddings are multiplied by; a float32, as published implementations have it."""

    @property
    def family(self) -> Family:
        """Raises KeyError for one that is not known."""
        return FAMILIES[self.architecture]

    @property
    def query_width(self) -> int:
        return self.head_count * self.head_width

    @property
    def kv_width(self) -> int:
        """Numbers in the keys (or the values) of one position of one layer."""
        return self.kv_head_count * self.head_width

    @property
    def cached_numbers_per_position(self) -> int:
        """Keys and values over all layers: 2·L·n_kv·d_head (theorem 7.3, for grouped heads)."""
        return 2 * self.layer_count * self.kv_width

    @property
    def attention_scale(self) -> float:
        return 1 / math.sqrt(self.head_width) if self.query_scale is None else self.query_scale

    def window_of(self, layer: int) -> SlidingWindow | None:
        """The window of one layer; None where its rows see every position before them."""
        if self.window is None or (self.window.full_every and (layer + 1) % self.window.full_every == 0):
            return None
        return self.window

    def of_layer(self, layer: int) -> "ModelConfig":
        """A model of that layer alone."""
        window = self.window_of(layer)
        return replace(self, layer_count=1, window=None if window is None else replace(window, full_every=0))

    def rope_of(self, layer: int) -> tuple[float, RopeScaling | None] | None:
        """Base and scaling of the rotary positions of one layer; None where positions are learned."""
        if self.family.has_learned_positions:
            return None
        window = self.window_of(layer)
        if window is not None and window.rope_base is not None:
            return window.rope_base, None
        return self.rope_base, self.rope_scaling
