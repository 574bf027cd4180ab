"""Beam search the slow, plain way: every candidate of every beam in one list, which is sorted; whole token tuples.

Definition 3.2 to the letter. Nothing here imports the project.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Tokens = tuple[int, ...]
Row = NDArray[np.float32]
Model = Callable[[Tokens], Row]
"""Float32 logits after some generated tokens."""
Ends = Callable[[Tokens], str | None]
"""How a sequence that has just gained its last token ends; None when it goes on."""


@dataclass(frozen=True, slots=True)
class Found:
    """A sequence that ended."""

    tokens: Tokens
    logprob: float
    score: float
    reason: str


def never(tokens: Tokens) -> str | None:
    return None


def log_softmax(row: Row) -> list[float]:
    values = [float(value) for value in row]
    peak = max(values)
    log_total = math.log(math.fsum(math.exp(value - peak) for value in values))
    return [value - peak - log_total for value in values]


def beam_search(
    model: Model,
    *,
    width: int,
    most: int,
    alpha: float = 0.0,
    ends: Ends = never,
    excluded: Callable[[Tokens], bool] = lambda tokens: False,
) -> tuple[list[Found], str]:
    """The best `width` sequences, the best first, and why the search stopped."""
    live: list[tuple[Tokens, float]] = [((), 0.0)]
    pool: list[Found] = []
    for length in range(1, most + 1):
        candidates = sorted(_candidates(model, live, excluded), key=lambda each: each[0])
        pool += [
            Found(tokens, logprob, logprob / length**alpha, reason)
            for _, tokens, logprob in candidates[:width]
            if (reason := ends(tokens)) is not None
        ]
        pool = sorted(pool, key=lambda found: -found.score)[:width]
        live = [(tokens, logprob) for _, tokens, logprob in candidates if ends(tokens) is None][:width]
        if length == most and live:
            break
        best_length = most if alpha >= 0 else length + 1
        may_improve = any(logprob / best_length**alpha > pool[-1].score for _, logprob in live) if pool else True
        if not live or (len(pool) == width and not may_improve):
            return pool, "bound"
    pool += [Found(tokens, logprob, logprob / most**alpha, "length") for tokens, logprob in live]
    return sorted(pool, key=lambda found: -found.score)[:width], "length"


def _candidates(
    model: Model, live: Sequence[tuple[Tokens, float]], excluded: Callable[[Tokens], bool]
) -> Iterator[tuple[tuple[float, int, float, int], Tokens, float]]:
    for rank, (tokens, total) in enumerate(live):
        row = model(tokens)
        for token, logprob in enumerate(log_softmax(row)):
            if not excluded((*tokens, token)):
                key = (-(total + logprob), rank, -float(row[token]), token)
                yield key, (*tokens, token), total + logprob


def exhaustive(model: Model, vocabulary: int, length: int) -> tuple[Tokens, float]:
    """The likeliest sequence of this length among all, and its log-probability."""
    every = product(range(vocabulary), repeat=length)
    return max(((tokens, _logprob(model, tokens)) for tokens in every), key=lambda each: each[1])


def _logprob(model: Model, tokens: Tokens) -> float:
    total = 0.0
    for count, token in enumerate(tokens):
        total += log_softmax(model(tokens[:count]))[token]
    return total


def penalised(
    row: Row, tokens: Tokens, *, bias: dict[int, float], repetition: float, presence: float, frequency: float
) -> Row:
    """Bias, then penalties of what is among `tokens`, one number at a time in float32."""
    edited = [np.float32(value) for value in row]
    for token, value in bias.items():
        edited[token] += np.float32(value)
    for token in sorted(set(tokens)):
        logit, scale = edited[token], np.float32(repetition)
        changed = logit / scale if logit > 0 else logit * scale
        count = np.float32(tokens.count(token))
        edited[token] = changed - (np.float32(frequency) * count + np.float32(presence))
    return np.array(edited, dtype=np.float32)
