"""The shape and constants of one transformer, read from a model file and never changed.

Knows no tensors and no files. Always: `head_count` is a multiple of `kv_head_count`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3's frequency-dependent stretching of rotary positions."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_context_length: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything the decoder's mathematics depends on beside the weights."""

    architecture: str
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
