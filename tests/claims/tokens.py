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

from model.decoding.filters import Candidates, drawn_position, keep_top_p
from model.decoding.params import Draw
from model.decoding.torch_choice import choose
from model.studies.distributions import candidates, row_of

LAST_UNIFORM = 1.0 - 2.0**-53
UNIT = 64
"""Exact probabilities are multiples of 1/64."""


def logarithms(probabilities: Sequence[float]) -> list[float]:
    """Logits whose softmax at τ = 1 these are."""
    return [math.log(p) if p > 0.0 else -math.inf for p in probabilities]


def top_p_ids(probabilities: Sequence[float], mass: float) -> list[int]:
    return list(keep_top_p(candidates(probabilities), mass).token_ids)


def greedy(*rows: Sequence[float]) -> list[int | None]:
    """What temperature 0 picks from each row."""
    draws = [Draw(row=index, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, uniform=0.5) for index in range(len(rows))]
    return [drawn.token_id for drawn in choose(torch.from_numpy(np.stack([row_of(r) for r in rows])), draws)]


def drawn(logits: Sequence[float], uniform: float, **filters: Any) -> int | None:
    """What one draw picks from a row."""
    plain = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    draw = Draw(row=0, uniform=uniform, **(plain | filters))
    return choose(torch.from_numpy(row_of(logits)[None]), [draw])[0].token_id


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
