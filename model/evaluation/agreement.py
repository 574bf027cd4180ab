"""How far one model's predictions are from another's, token by token. Pure arithmetic on logits, in float64.

Knows no models and no text. Always: both models are scored on the same tokens, so differences are paired.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROWS_AT_ONCE = 64
PERCENT = 100.0

Logits = NDArray[np.float32]
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TokenScores:
    """One entry for each predicted token."""

    reference_nll: Numbers
    """Negative log-likelihood of the token that came, in nats, by the reference."""
    nll: Numbers
    divergence: Numbers
    """Kullback-Leibler divergence of the model's distribution from the reference's, in nats."""
    same_top: NDArray[np.bool_]
    """Whether both find the same token most likely."""


@dataclass(frozen=True, slots=True)
class RelativePerplexity:
    """How much greater one perplexity is than another on the same tokens, with the standard errors of `Agreement`."""

    percent: float
    standard_error_percent: float
    window_standard_error_percent: float | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """Token-weighted figures over all tokens. Percentages are of 100."""

    tokens: int
    reference_perplexity: float
    perplexity: float
    relative_perplexity_percent: float
    """How much greater the perplexity is than the reference's."""
    standard_error_percent: float
    """Of the relative perplexity, from the paired differences of all tokens, as if each were drawn by itself."""
    window_standard_error_percent: float | None
    """The same from the mean differences of windows, whose tokens hang together; None for a single window."""
    mean_divergence: float
    divergence_99_percent: float
    """99 % of all tokens diverge by at most this much."""
    same_top_percent: float


def score(reference: Logits, logits: Logits, targets: Sequence[int]) -> TokenScores:
    """Compare predictions, [tokens, vocabulary] each, of the tokens that came."""
    return score_each(reference, [logits], targets)[0]


def score_each(reference: Logits, candidates: Sequence[Logits], targets: Sequence[int]) -> list[TokenScores]:
    """Compare the predictions of several models with one reference's, [tokens, vocabulary] each."""
    assert all(logits.shape == reference.shape == (len(targets), logits.shape[1]) for logits in candidates)
    wanted = np.asarray(targets)
    parts: list[list[TokenScores]] = [[] for _ in candidates]
    for rows in _chunks(len(targets)):
        expected = _log_softmax(reference[rows])
        for logits, scored in zip(candidates, parts, strict=True):
            scored.append(_score(expected, logits[rows], wanted[rows]))
    return [joined(scored) for scored in parts]


def negative_log_likelihoods(logits: Logits, targets: Sequence[int]) -> Numbers:
    """Of the tokens that came, in nats, by predictions [tokens, vocabulary]."""
    wanted = np.asarray(targets)
    found = [_log_softmax(logits[rows])[np.arange(len(wanted[rows])), wanted[rows]] for rows in _chunks(len(wanted))]
    return -np.concatenate(found)


def joined(parts: Sequence[TokenScores]) -> TokenScores:
    return TokenScores(
        np.concatenate([part.reference_nll for part in parts]),
        np.concatenate([part.nll for part in parts]),
        np.concatenate([part.divergence for part in parts]),
        np.concatenate([part.same_top for part in parts]),
    )


def agreement(scores: TokenScores, windows: int = 1) -> Agreement:
    """Put all tokens together; needs at least two. They are those of so many windows, as many of each, in order."""
    differences = scores.nll - scores.reference_nll
    difference = relative_perplexity(differences, windows)
    return Agreement(
        tokens=differences.size,
        reference_perplexity=float(np.exp(scores.reference_nll.mean())),
        perplexity=float(np.exp(scores.nll.mean())),
        relative_perplexity_percent=difference.percent,
        standard_error_percent=difference.standard_error_percent,
        window_standard_error_percent=difference.window_standard_error_percent,
        mean_divergence=float(scores.divergence.mean()),
        divergence_99_percent=float(np.quantile(scores.divergence, 0.99)),
        same_top_percent=PERCENT * float(scores.same_top.mean()),
    )


def relative_perplexity(differences: Numbers, windows: int = 1) -> RelativePerplexity:
    """From the paired differences of all tokens' negative log-likelihoods, those of so many windows in order."""
    ratio = float(np.exp(differences.mean()))
    by_window = differences.reshape(windows, -1).mean(axis=1)
    return RelativePerplexity(
        percent=PERCENT * (ratio - 1),
        standard_error_percent=PERCENT * ratio * standard_error(differences),
        window_standard_error_percent=PERCENT * ratio * standard_error(by_window) if windows > 1 else None,
    )


def standard_error(numbers: Numbers) -> float:
    """Of the mean of at least two numbers."""
    return float(numbers.std(ddof=1) / np.sqrt(numbers.size))


def _score(expected: Numbers, logits: Logits, targets: NDArray[np.int64]) -> TokenScores:
    found = _log_softmax(logits)
    rows = np.arange(len(targets))
    return TokenScores(
        reference_nll=-expected[rows, targets],
        nll=-found[rows, targets],
        divergence=np.einsum("ij,ij->i", np.exp(expected), expected - found),
        same_top=expected.argmax(axis=1) == found.argmax(axis=1),
    )


def _log_softmax(logits: Logits) -> Numbers:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _chunks(count: int) -> list[slice]:
    return [slice(first, first + ROWS_AT_ONCE) for first in range(0, count, ROWS_AT_ONCE)]
