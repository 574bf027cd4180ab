"""Edits, masks, rankings and explanations the slow, plain way, one number at a time.

Logits are Python floats that hold float32 numbers exactly. Nothing here imports the project.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain

import numpy as np

from tests.reference.sampling import entropy, log_softmax, ranking, softmax

Row = list[float]


@dataclass(frozen=True, slots=True)
class Changes:
    """What a row goes through before it is chosen from."""

    bias: Mapping[int, float] = field(default_factory=dict)
    seen: Mapping[int, int] = field(default_factory=dict)
    """How often each token was generated."""
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    banned: Collection[int] = ()
    allowed: Collection[int] | None = None

    @property
    def penalises(self) -> bool:
        return bool(self.seen) and (self.repetition, self.presence, self.frequency) != (1.0, 0.0, 0.0)

    @property
    def masks(self) -> bool:
        return bool(self.banned) or self.allowed is not None


def float32(number: float) -> float:
    """The nearest float32."""
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def in_float32(operation: Callable[[np.float32, np.float32], np.float32], a: float, b: float) -> float:
    """One operation on two numbers that are rounded to float32, rounded to float32."""
    with np.errstate(all="ignore"):
        return float(operation(np.float32(a), np.float32(b)))


def add(a: float, b: float) -> float:
    return in_float32(lambda x, y: x + y, a, b)


def multiply(a: float, b: float) -> float:
    return in_float32(lambda x, y: x * y, a, b)


def divide(a: float, b: float) -> float:
    return in_float32(lambda x, y: x / y, a, b)


def biased(row: Sequence[float], changes: Changes) -> Row:
    return [add(logit, changes.bias[token]) if token in changes.bias else logit for token, logit in enumerate(row)]


def penalised(row: Sequence[float], changes: Changes) -> Row:
    """Keskar et al. (2019), then frequency and presence."""
    result = list(row)
    for token, count in changes.seen.items():
        logit = result[token]
        logit = divide(logit, changes.repetition) if logit > 0.0 else multiply(logit, changes.repetition)
        if count > 0:
            logit = add(logit, -add(multiply(changes.frequency, count), changes.presence))
        result[token] = logit
    return result


def masked(row: Sequence[float], changes: Changes) -> Row:
    def may_be_chosen(token: int) -> bool:
        return token not in changes.banned and (changes.allowed is None or token in changes.allowed)

    return [logit if may_be_chosen(token) else -math.inf for token, logit in enumerate(row)]


def is_broken(row: Sequence[float]) -> bool:
    return any(math.isnan(logit) or logit == math.inf for logit in row)


def edited(row: Sequence[float], changes: Changes) -> Row | None:
    """After bias and penalties; None where the row is broken, before or after."""
    if is_broken(row) or max(row) == -math.inf:
        return None
    result = penalised(biased(row, changes), changes)
    return None if is_broken(result) else result


def changed(row: Sequence[float], changes: Changes) -> Row | None:
    """What is chosen from; None where nothing can be."""
    after_edits = edited(row, changes)
    if after_edits is None:
        return None
    left = masked(after_edits, changes)
    return None if max(left) == -math.inf else left


def ranked(row: Sequence[float], changes: Changes, count: int) -> list[tuple[int, float, float]]:
    """(id, log-probability, logit) of the likeliest that are left; probabilities are of the row before the mask."""
    after_edits, left = edited(row, changes), changed(row, changes)
    if after_edits is None or left is None:
        return []
    logprobs = log_softmax(after_edits)
    kept = [token for token in ranking(left) if left[token] > -math.inf]
    return [(token, logprobs[token], after_edits[token]) for token in kept[:count]]


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    probabilities: dict[int, float]
    """Of every candidate that is left, likeliest first."""
    mass: float


def explained(
    row: Sequence[float], changes: Changes, *, temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[float, list[Stage]]:
    """Entropy of the row as it is, and what each stage that is switched on leaves."""
    stages: list[Stage] = []
    given = [0.0] * len(row)
    left = masked(penalised(biased(row, changes), changes), changes)
    filters = _filters(left, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    for name, logits, probabilities in chain(_stages(row, changes), filters if temperature > 0.0 else ()):
        kept = [token for token in ranking(logits) if probabilities[token] > 0.0]
        dropped = any(p > 0.0 and probabilities[token] == 0.0 for token, p in enumerate(given))
        mass = math.fsum(given[token] for token in kept) if dropped else 1.0
        stages.append(Stage(name, {token: probabilities[token] for token in kept}, mass))
        given = probabilities
    return entropy(softmax(row)), stages


def _stages(row: Sequence[float], changes: Changes) -> Iterator[tuple[str, Row, list[float]]]:
    """Name, logits and distribution after each stage before the temperature."""
    logits = list(row)
    yield "model", logits, softmax(logits)
    if changes.bias:
        logits = biased(logits, changes)
        yield "bias", logits, softmax(logits)
    if changes.penalises:
        logits = penalised(logits, changes)
        yield "penalties", logits, softmax(logits)
    if changes.masks:
        logits = masked(logits, changes)
        yield "mask", logits, softmax(logits)


def _filters(
    logits: Row, *, temperature: float, top_k: int, top_p: float, min_p: float
) -> Iterator[tuple[str, Row, list[float]]]:
    """The same after each filter, τ > 0."""
    p = softmax(logits, temperature)
    if temperature != 1.0:
        yield "temperature", logits, p
    order = ranking(logits)
    if top_k > 0:
        p = _only(p, set(order[:top_k]))
        yield "top_k", logits, p
    if top_p < 1.0:
        reached = accumulate((p[token] for token in order), initial=0.0)
        p = _only(p, {token for token, before in zip(order, reached, strict=False) if before < top_p})
        yield "top_p", logits, p
    if min_p > 0.0:
        yield "min_p", logits, _only(p, {token for token, each in enumerate(p) if each >= min_p * max(p)})


def _only(probabilities: Sequence[float], kept: Collection[int]) -> list[float]:
    total = math.fsum(probabilities[token] for token in kept)
    return [each / total if token in kept else 0.0 for token, each in enumerate(probabilities)]


def distance_to_a_cut(logits: Sequence[float], *, temperature: float, top_k: int, top_p: float, min_p: float) -> float:
    """How near top-p or min-p come to another set of candidates, in probability mass, or in parts of the likeliest."""
    p = softmax(logits, temperature)
    order = ranking(logits)
    if top_k > 0:
        p = _only(p, set(order[:top_k]))
    distances = [math.inf]
    if top_p < 1.0:
        distances += [abs(reached - top_p) for reached in accumulate(p[token] for token in order)]
    if min_p > 0.0:
        distances += [abs(each / max(p) - min_p) for each in p]
    return min(distances)
