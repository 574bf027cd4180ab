"""Scalar multiplications with and without a cache of keys and values, and the numbers in it (theorem 7.3).

Knows shapes, no weights. One rule counts: a product of an a × b and a b × c matrix takes abc. Embedding, head, norms
and the exponentials of softmax are not counted.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from model.config import ModelConfig

FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True)
class CostShape:
    """The sizes that the cost of a decoder depends on.

    Args:
        layers: L.
        width: d.
        query_width: heads times their width; d in the theorem.
        kv_width: numbers in the keys of one position of a layer; d in the theorem, less where heads share keys.
        feed_forward: d_ff.
        feed_forward_matrices: 2 in the theorem, 3 with a gate.
    """

    layers: int
    width: int
    query_width: int
    kv_width: int
    feed_forward: int
    feed_forward_matrices: int

    @classmethod
    def plain(cls, width: int, *, layers: int = 1, feed_forward: int | None = None) -> Self:
        """As the theorem has it; its feed-forward is four times as wide unless it is given."""
        return cls(layers, width, width, width, feed_forward or 4 * width, 2)

    @classmethod
    def of(cls, config: ModelConfig) -> Self:
        """A model with grouped heads and a gated feed-forward."""
        return cls(config.layer_count, config.width, config.query_width, config.kv_width, config.feed_forward_width, 3)

    @property
    def linear(self) -> int:
        """Multiplications of the linear maps for one position of one layer: 4d² + 2d·d_ff in the theorem."""
        projections = 2 * self.query_width + 2 * self.kv_width
        return self.width * (projections + self.feed_forward_matrices * self.feed_forward)

    @property
    def overtaken_at(self) -> int:
        """The least n for which attention takes more than the linear maps in n steps with a cache: 12d if d_ff = 4d."""
        return self.linear // self.query_width

    def position(self, t: int) -> int:
        """Multiplications of one layer for position t, counted from 1, with a cache: 2td + 4d² + 2d·d_ff."""
        return self.attention(t) + self.linear

    def attention(self, t: int) -> int:
        """The part of them that scores and weighted sums take."""
        return 2 * t * self.query_width

    def cached(self, n: int) -> int:
        """C_cache(n) over all layers: d·n(n+1) + n(4d² + 2d·d_ff) each."""
        return self.layers * (self.query_width * n * (n + 1) + n * self.linear)

    def full(self, n: int) -> int:
        """C_full(n) over all layers, everything anew at each step: d·n(n+1)(2n+1)/3 + n(n+1)/2·(4d² + 2d·d_ff) each."""
        attention = self.query_width * n * (n + 1) * (2 * n + 1) // 3
        return self.layers * (attention + n * (n + 1) // 2 * self.linear)

    def cached_numbers(self, n: int) -> int:
        """Keys and values of n positions in all layers: 2Lnd in the theorem."""
        return 2 * self.layers * n * self.kv_width


@dataclass(frozen=True, slots=True)
class Cost:
    """What n positions cost a shape.

    Args:
        shape: its name.
        n: positions.
        cached, full: multiplications with and without a cache.
        ratio: full/cached.
        last_position: multiplications of one layer for position n with a cache.
        attention_share: the share of attention in those.
        numbers: in the cache.
        float32_bytes: what they take up as float32.
    """

    shape: str
    n: int
    cached: int
    full: int
    ratio: float
    last_position: int
    attention_share: float
    numbers: int
    float32_bytes: int


@dataclass(frozen=True, slots=True)
class CostCase:
    """A shape, and the lengths at which it is looked at."""

    name: str
    shape: CostShape
    lengths: tuple[int, ...]


EXAMPLES = (
    CostCase("section 7: d = 32, L = 2", CostShape.plain(32, layers=2), (8, 16, 32, 64)),
    CostCase("example 7.4: d = 1000, one layer", CostShape.plain(1000), (1000,)),
    CostCase("exercise 10.3: d = 768, L = 12", CostShape.plain(768, layers=12), (1024,)),
)


def study(cases: Iterable[CostCase]) -> tuple[Cost, ...]:
    """Every case at each of its lengths, of at least 1."""
    return tuple(cost(case, n) for case in cases for n in case.lengths)


def cost(case: CostCase, n: int) -> Cost:
    """One case at one length."""
    shape = case.shape
    cached, full, numbers = shape.cached(n), shape.full(n), shape.cached_numbers(n)
    return Cost(
        shape=case.name,
        n=n,
        cached=cached,
        full=full,
        ratio=full / cached,
        last_position=shape.position(n),
        attention_share=shape.attention(n) / shape.position(n),
        numbers=numbers,
        float32_bytes=FLOAT32_BYTES * numbers,
    )
