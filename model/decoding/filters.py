"""Temperature, top-k, top-p, min-p, and the place of a uniform number in what they leave, on the host.

Knows one row, ids and numbers; nothing of sequences, seeds or the end of a text. For the torch op set only.
Always: tokens rank by logit descending, id ascending. The softmax is strictly increasing (theorem 4.2), so
this is definition 5.1's order by probability, untouched by what exponentials round to.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Indices = NDArray[np.int64]

DEPTHS = (*range(2, 50, 2), math.inf)
"""How many powers of e below the likeliest token top-p looks, until it has found its mass."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The tokens that are still in, all arrays [kept]; filters return a part of what they were given.

    Weights are e^scaled, not divided by their sum: each filter compares with the sum over what is left, which
    is to see the distribution renormalised.
    """

    token_ids: Indices
    """Ascending."""
    logits: Floats
    scaled: Doubles
    """(z − max)/τ."""
    weights: Doubles
    """In (0, 1]; the likeliest has 1."""

    def take(self, positions: NDArray[Any]) -> "Candidates":
        """Those at `positions`: ascending indices, or a mask."""
        return Candidates(
            self.token_ids[positions], self.logits[positions], self.scaled[positions], self.weights[positions]
        )

    def probabilities(self) -> Doubles:
        """[kept], summing to 1 but for rounding."""
        total: float = running_sum(self.weights)[-1]
        return self.weights / total


def running_sum(weights: Doubles) -> Doubles:
    """C_j = w_1 + … + w_j, added one after the other in float64."""
    sums: Doubles = torch.from_numpy(weights).cumsum(dim=0).numpy()  # numpy's takes four times as long
    return sums


def ranking(logits: Floats) -> Indices:
    """Every position, by logit descending and then position ascending: definition 5.1's π.

    A float's bits, read as an integer, order like the float once the sign is mended; with the position below
    them, one plain sort of distinct integers settles ties as well.
    """
    bits = (logits + np.float32(0.0)).view(np.uint32)  # −0 becomes 0, its equal
    falling = np.where(bits >> 31, bits, bits ^ np.uint32(0x7FFFFFFF)).astype(np.uint64)
    keys = np.sort(falling << np.uint64(32) | np.arange(len(logits), dtype=np.uint64))
    return (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)


def leading(logits: Floats, count: int) -> Indices:
    """The first `count` positions of the ranking, in its order, without ranking the rest."""
    if count == 0:
        return np.empty(0, dtype=np.int64)
    if count >= len(logits):
        return ranking(logits)
    level = torch.from_numpy(logits).topk(count, sorted=False).values.min().item()
    near = np.flatnonzero(logits >= level)
    return near[ranking(logits[near])][:count]


def keep_top_k(row: Floats, count: int) -> Indices:
    """Ids, ascending, of the `count` likeliest tokens of a row [vocabulary]; 0 keeps all.

    Asks for no temperature, since that changes no order: so exponentials are only computed of what is kept.
    """
    if count == 0 or count >= len(row):
        return np.arange(len(row), dtype=np.int64)
    return np.sort(leading(row, count))


def with_temperature(row: Floats, token_ids: Indices, temperature: float) -> Candidates:
    """The tokens of positive probability in softmax(z/τ) over `token_ids`, τ > 0 (definition 4.1).

    Differences come before the division, in float64: no τ makes ∞ − ∞ of a finite logit.
    """
    logits = row if len(token_ids) == len(row) else row[token_ids]
    scaled = torch.from_numpy(logits).to(torch.float64)
    scaled = scaled.sub_(float(logits.max())).div_(temperature)
    candidates = Candidates(token_ids, logits, scaled.numpy(), scaled.exp().numpy())
    positive = candidates.weights > 0.0
    return candidates if positive.all() else candidates.take(positive)


def keep_top_p(kept: Candidates, mass: float) -> Candidates:
    """The shortest prefix of the ranking with c_j ≥ ρ, where ρ = `mass` in (0, 1]; 1 keeps all (theorem 5.4).

    Only tokens near the likeliest are ranked, and more when those do not reach ρ. Every trial set is a prefix
    of the ranking, so its running sums are those of the whole. Where rounding keeps c_N below ρ, all are kept.
    """
    if mass >= 1.0:
        return kept
    target = mass * running_sum(kept.weights)[-1]
    for depth in DEPTHS:
        near = np.flatnonzero(kept.scaled >= -depth)
        if kept.weights[near].sum() < target:
            continue
        near = near[ranking(kept.logits[near])]
        sums = running_sum(kept.weights[near])
        if sums[-1] >= target:
            count = int(np.searchsorted(sums, target, side="left")) + 1
            return kept.take(np.sort(near[:count]))
    return kept


def keep_min_p(kept: Candidates, ratio: float) -> Candidates:
    """Those at least `ratio` times as likely as the likeliest, in [0, 1]; 0 keeps all."""
    return kept if ratio == 0.0 else kept.take(kept.weights >= ratio)


def distribution(
    row: Floats, *, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> Candidates:
    """What is left of a row [vocabulary] without NaN or +∞ after all filters, τ > 0. Never empty."""
    kept = with_temperature(row, keep_top_k(row, top_k), temperature)
    return keep_min_p(keep_top_p(kept, top_p), min_p)


def drawn_position(kept: Candidates, uniform: float) -> int:
    """The position of the first kept token, by ascending id, with C_j > u·C_last, u in [0, 1).

    Proposition 6.1 with its inequality strict, so that u = 0 takes no token of weight zero, and scaled by
    C_last, so that no u falls off the end: u·C_last rounds below C_last for every u ≤ 1 − 2⁻⁵³.
    """
    sums = running_sum(kept.weights)
    return int(np.searchsorted(sums, uniform * sums[-1], side="right"))
