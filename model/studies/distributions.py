"""Distributions given as probabilities, put through the product's filters.

Knows no logits' origin and no files. Always: ids count from 0; probabilities over a whole vocabulary are float64.
"""

from collections.abc import Sequence

import numpy as np

from model.decoding.filters import Candidates, Doubles, Floats, distribution

Logits = Sequence[float] | Floats


def row_of(logits: Logits) -> Floats:
    """Logits as an op set gives them: float32 [vocabulary]."""
    return np.asarray(logits, dtype=np.float32)


def candidates(probabilities: Sequence[float]) -> Candidates:
    """The tokens of positive probability, with exactly these probabilities as weights."""
    ids = np.flatnonzero(np.asarray(probabilities) > 0.0)
    weights = np.asarray(probabilities, dtype=np.float64)[ids]
    scaled = np.log(weights / weights.max())
    return Candidates(ids, scaled.astype(np.float32), scaled, weights)


def dense(kept: Candidates, size: int) -> Doubles:
    """Probabilities over the whole vocabulary [size], 0 outside what is kept."""
    probabilities = np.zeros(size)
    probabilities[kept.token_ids] = kept.probabilities()
    return probabilities


def tempered(logits: Logits, temperature: float) -> Doubles:
    """p_τ = softmax(z/τ), τ > 0 (definition 4.1) [vocabulary]."""
    row = row_of(logits)
    return dense(distribution(row, temperature=temperature), len(row))


def total_variation(p: Doubles, q: Doubles) -> float:
    """½ Σ |p_i - q_i| over one vocabulary."""
    return 0.5 * float(np.abs(p - q).sum())
