"""How a token was chosen, stage by stage: how many candidates each left, and how much of the probability that was.

Knows one row and its draw. For the torch op set.
Always: the stages are those of the choice itself, with the same filters, so that the last leaves what was drawn from.
"""

import math
from collections.abc import Iterator

import numpy as np

from model.decoding.edits import biased, has_mask, masked, penalised, penalises
from model.decoding.filters import (
    Candidates,
    Doubles,
    Floats,
    Indices,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    leading,
    running_sum,
    with_temperature,
)
from model.decoding.params import Draw, Explanation, LogitEdits, Stage, StageName

LISTED = 10
"""The likeliest tokens that a stage names."""

Stages = Iterator[tuple[StageName, Candidates]]


def explain(row: Floats, draw: Draw) -> Explanation:
    """Of a draw that gives a token from a row [vocabulary] of raw logits."""
    stages = []
    given = np.zeros(len(row))
    for name, left in _stages(row, draw):
        stages.append(_stage(name, given, left))
        given = _dense(left, len(row))
    uniform = draw.uniform if draw.temperature > 0.0 else None
    return Explanation(entropy(_all(row)), uniform, tuple(stages))


def _stages(row: Floats, draw: Draw) -> Stages:
    """What is left after each stage that is switched on; those before the temperature see τ = 1."""
    yield "model", _all(row)
    if draw.edits is not None:
        yield from _edits(row, draw.edits)
        row = penalised(biased(row, draw.edits), draw.edits)
    if has_mask(draw):
        row = masked(row, draw)
        yield "mask", _all(row)
    if draw.temperature > 0.0:
        yield from _filters(row, draw)


def _edits(row: Floats, edits: LogitEdits) -> Stages:
    row = biased(row, edits)
    if edits.bias_ids.size:
        yield "bias", _all(row)
    if penalises(edits):
        yield "penalties", _all(penalised(row, edits))


def _filters(row: Floats, draw: Draw) -> Stages:
    if draw.temperature != 1.0:
        yield "temperature", _all(row, draw.temperature)
    kept = with_temperature(row, keep_top_k(row, draw.top_k), draw.temperature)
    if draw.top_k:
        yield "top_k", kept
    kept = keep_top_p(kept, draw.top_p)
    if draw.top_p < 1.0:
        yield "top_p", kept
    if draw.min_p > 0.0:
        yield "min_p", keep_min_p(kept, draw.min_p)


def _all(row: Floats, temperature: float = 1.0) -> Candidates:
    return with_temperature(row, np.arange(len(row), dtype=np.int64), temperature)


def _dense(kept: Candidates, size: int) -> Doubles:
    weights = np.zeros(size)
    weights[kept.token_ids] = kept.weights
    return weights


def _stage(name: StageName, given: Doubles, left: Candidates) -> Stage:
    kept = given[left.token_ids]
    dropped = np.count_nonzero(kept) < np.count_nonzero(given)
    mass = float(running_sum(kept)[-1] / running_sum(given)[-1]) if dropped else 1.0
    return Stage(name, len(left.token_ids), mass, _likeliest(left))


def _likeliest(left: Candidates) -> tuple[tuple[int, float], ...]:
    first: Indices = leading(left.logits, LISTED)
    probabilities = left.weights[first] / running_sum(left.weights)[-1]
    entries = zip(left.token_ids[first].tolist(), probabilities.tolist(), strict=True)
    return tuple(sorted(entries, key=lambda entry: (-entry[1], entry[0])))


def entropy(candidates: Candidates) -> float:
    """Of what is left, renormalised, in nats: log W − Σ w · s / W, where w = e^s and W = Σ w."""
    total: float = running_sum(candidates.weights)[-1]
    return math.log(total) - float((candidates.weights * candidates.scaled).sum() / total)
