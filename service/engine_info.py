"""The engine's fixed numbers, known once the model is loaded. Always: they never change while it runs."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What a caller may rely on: limits, the price of a token in the cache, and how far answers repeat."""

    engine: str
    kv_cache_bytes: int
    kv_bytes_per_token: int
    page_count: int
    page_size: int
    """Positions in a page."""
    max_queue_tokens: int
    context_length: int
    reproducibility_level: Literal["bitwise", "best_effort"]
    fingerprint: str
    """Names the model file and every engine setting that may change a number."""

    @property
    def page_bytes(self) -> int:
        return self.page_size * self.kv_bytes_per_token
