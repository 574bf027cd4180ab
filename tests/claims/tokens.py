"""What the claims about distributions share: exact probabilities, and the project's filters and draw on them.

Probabilities with power-of-two denominators make sums exact, so that theorems are tested without tolerance.
Ids count from 0 where the statements count from 1.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from model.decoding.filters import (
    Candidates,
    Doubles,
    Floats,
    distribution,
    drawn_position,
    keep_top_p,
)
from model.decoding.params import Draw
from model.decoding.torch_choice import choose

LAST_UNIFORM = 1.0 - 2.0**-53
UNIT = 64
"""Exact probabilities are multiples of 1/64."""


def candidates(probabilities: Sequence[float]) -> Candidates:
    """The tokens of positive probability, with exactly these probabilities as weights."""
    ids = np.flatnonzero(np.asarray(probabilities) > 0.0)
    weights = np.asarray(probabilities, dtype=np.float64)[ids]
    scaled = np.log(weights / weights.max())
    return Candidates(ids, scaled.astype(np.float32), scaled, weights)


def row(logits: Sequence[float]) -> Floats:
    return np.asarray(logits, dtype=np.float32)


def logarithms(probabilities: Sequence[float]) -> list[float]:
    """Logits whose softmax at τ = 1 these are."""
    return [math.log(p) if p > 0.0 else -math.inf for p in probabilities]


def dense(kept: Candidates, size: int) -> Doubles:
    """Probabilities over the whole vocabulary, 0 outside what is kept."""
    probabilities = np.zeros(size)
    probabilities[kept.token_ids] = kept.probabilities()
    return probabilities


def tempered(logits: Sequence[float], temperature: float) -> Doubles:
    return dense(distribution(row(logits), temperature=temperature), len(logits))


def top_p_ids(probabilities: Sequence[float], mass: float) -> list[int]:
    return list(keep_top_p(candidates(probabilities), mass).token_ids)


def greedy(*rows: Sequence[float]) -> list[int | None]:
    """What temperature 0 picks from each row."""
    draws = [Draw(row=index, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, uniform=0.5) for index in range(len(rows))]
    return [drawn.token_id for drawn in choose(torch.from_numpy(np.stack([row(r) for r in rows])), draws)]


def drawn(logits: Sequence[float], uniform: float, **filters: Any) -> int | None:
    """What one draw picks from a row."""
    plain = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    draw = Draw(row=0, uniform=uniform, **(plain | filters))
    return choose(torch.from_numpy(row(logits)[None]), [draw])[0].token_id


def frequencies(kept: Candidates, uniforms: Sequence[float]) -> dict[int, int]:
    return Counter(int(kept.token_ids[drawn_position(kept, uniform)]) for uniform in uniforms)


def midpoints(count: int) -> list[float]:
    """One uniform in the middle of each of `count` equal parts of [0, 1)."""
    return [(index + 0.5) / count for index in range(count)]


def exact_distributions(max_size: int = 6, smallest: int = 0) -> st.SearchStrategy[list[float]]:
    """Probabilities that are multiples of 1/64 and sum to 1 exactly."""
    counts = st.lists(st.integers(smallest, 14), max_size=max_size - 1).filter(
        lambda drawn_counts: sum(drawn_counts) < UNIT
    )
    return counts.flatmap(lambda some: st.permutations([*some, UNIT - sum(some)])).map(
        lambda all_counts: [count / UNIT for count in all_counts]
    )


exact_masses = st.integers(1, UNIT).map(lambda count: count / UNIT)
plain_logits = st.lists(st.floats(-8.0, 8.0, width=32), min_size=1, max_size=12)
plain_temperatures = st.floats(0.1, 10.0)


LOGITS_OF_SECTION_6 = [3.0, 2.5, 1.0, 0.2, -1.0, -2.0]
