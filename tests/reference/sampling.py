"""Choosing tokens the slow, plain way: full sorts, Python loops, and the textbook's own definitions.

The first half restates the rules of sampling literally, one number at a time. The second half is Philox4x64-10 in
integers. Nothing here imports the project.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

Exp = Callable[[float], float]


def softmax(logits: Sequence[float], temperature: float = 1.0) -> list[float]:
    """Definition 4.1: e^{z_i/τ} / Σ e^{z_j/τ}."""
    peak = max(logits)
    weights = [math.exp((logit - peak) / temperature) for logit in logits]
    return [weight / math.fsum(weights) for weight in weights]


def entropy(probabilities: Sequence[float]) -> float:
    return -math.fsum(p * math.log(p) for p in probabilities if p > 0.0)


def ranking(scores: Sequence[float]) -> list[int]:
    """Definition 5.1's π: score descending, index ascending."""
    return sorted(range(len(scores)), key=lambda index: (-scores[index], index))


def top_k_set(probabilities: Sequence[float], k: int) -> list[int]:
    """Definition 5.1: the first k of the ranking, in its order."""
    return ranking(probabilities)[:k]


def top_p_set(probabilities: Sequence[float], mass: float) -> list[int]:
    """Definition 5.1 in floating point: π(1) … π(k) with k the least j that has c_j ≥ ρ; all where none has."""
    chosen, reached = [], 0.0
    for index in ranking(probabilities):
        chosen.append(index)
        reached += probabilities[index]
        if reached >= mass:
            break
    return chosen


def restrict(probabilities: Sequence[float], kept: Collection[int]) -> list[float]:
    """Definition 5.1: p_S = p/p(S) on S, 0 elsewhere."""
    mass = math.fsum(probabilities[index] for index in kept)
    return [p / mass if index in kept else 0.0 for index, p in enumerate(probabilities)]


def total_variation(p: Sequence[float], q: Sequence[float]) -> float:
    return 0.5 * math.fsum(abs(a - b) for a, b in zip(p, q, strict=True))


def inverse_cdf(probabilities: Sequence[float], uniform: float) -> int | None:
    """Proposition 6.1 to the letter: the least j with C_j ≥ U; None where rounding leaves none."""
    cumulative = 0.0
    for index, probability in enumerate(probabilities):
        cumulative += probability
        if cumulative >= uniform:
            return index
    return None


def right_bisection(probabilities: Sequence[float], uniform: float) -> int:
    """The common short form: how many C_j are ≤ U. It may answer N, one past the end."""
    cumulative, count = 0.0, 0
    for probability in probabilities:
        cumulative += probability
        count += cumulative <= uniform
    return count


def alias_table(probabilities: Sequence[float]) -> list[tuple[float, int]]:
    """Walker's method: column i is drawn with 1/N, and gives i with its first number, else its second."""
    count = len(probabilities)
    heights = [probability * count for probability in probabilities]
    table = [(1.0, index) for index in range(count)]
    short = [index for index, height in enumerate(heights) if height < 1.0]
    tall = [index for index, height in enumerate(heights) if height >= 1.0]
    while short and tall:
        low, high = short.pop(), tall.pop()
        table[low] = (heights[low], high)
        heights[high] -= 1.0 - heights[low]
        (short if heights[high] < 1.0 else tall).append(high)
    return table


@dataclass(frozen=True, slots=True)
class Kept:
    """What the filters leave of a row: ids ascending, their scaled logits, and unnormalised weights."""

    token_ids: tuple[int, ...]
    scaled: tuple[float, ...]
    weights: tuple[float, ...]


def filtered(
    logits: Sequence[float],
    *,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    exp: Exp = math.exp,
) -> Kept:
    """Temperature, top-k, top-p, min-p in this order over a full sort, every filter on what earlier ones left.

    Sums run one by one: ascending ids for a total, the ranking for c_j. `exp` fixes the last bit of the weights.
    """
    order = ranking(logits)
    peak = logits[order[0]]
    scaled = {token: (logits[token] - peak) / temperature for token in order}
    weights = {token: exp(scaled[token]) for token in order}
    order = order[:top_k] if top_k else order
    order = [token for token in order if weights[token] > 0.0]
    if top_p < 1.0:
        order = _shortest_prefix(order, weights, top_p)
    order = [token for token in order if weights[token] >= min_p]
    ids = tuple(sorted(order))
    return Kept(ids, tuple(scaled[token] for token in ids), tuple(weights[token] for token in ids))


def _shortest_prefix(order: list[int], weights: dict[int, float], mass: float) -> list[int]:
    target = mass * sum_in_order([weights[token] for token in sorted(order)])
    reached = 0.0
    for count, token in enumerate(order, start=1):
        reached += weights[token]
        if reached >= target:
            return order[:count]
    return order


def sum_in_order(numbers: Sequence[float]) -> float:
    """Left to right, each partial sum rounded; the built-in `sum` compensates from Python 3.12 on."""
    total = 0.0
    for number in numbers:
        total += number
    return total


def drawn(kept: Kept, uniform: float) -> int:
    """The first kept id, ascending, with C_j > u·C_last."""
    target = uniform * sum_in_order(kept.weights)
    cumulative = 0.0
    for token, weight in zip(kept.token_ids, kept.weights, strict=True):
        cumulative += weight
        if cumulative > target:
            return token
    raise AssertionError("u·C_last reached C_last")


def greedy(logits: Sequence[float]) -> int:
    """Definition 3.2: the lowest index among the maxima."""
    return ranking(logits)[0]


def log_softmax(scaled: Sequence[float]) -> list[float]:
    peak = max(scaled)
    log_total = math.log(math.fsum(math.exp(value - peak) for value in scaled))
    return [value - peak - log_total for value in scaled]


MASK = 2**64 - 1
ROUNDS = 10
MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)


def philox4x64(key: tuple[int, int], counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Philox4x64-10 (Salmon et al., SC 2011): four random words for a key and a counter."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(ROUNDS):
        first, second = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (second >> 64) ^ c1 ^ k0, second & MASK, (first >> 64) ^ c3 ^ k1, first & MASK
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return c0, c1, c2, c3


def uniform(seed: int, sample: int, position: int) -> float:
    """The top 53 bits of the first word for key (seed, sample) and counter (position, 0, 0, 0), in [0, 1)."""
    return (philox4x64((seed, sample), (position, 0, 0, 0))[0] >> 11) * 2.0**-53
