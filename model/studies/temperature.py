"""What temperature does to a distribution: its probabilities, its entropy, and how fast that grows (theorem 4.2).

Knows one row of logits. Always: distributions and entropies are those that sampling uses and explains.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from model.decoding.explain import entropy
from model.decoding.filters import Floats, distribution, leading
from model.studies.distributions import dense

EXAMPLE = (2.0, 1.0, 0.0)
"""The logits of example 4.3."""
STEP = 1e-4
"""Of the central difference, relative to the temperature."""


@dataclass(frozen=True, slots=True)
class TemperaturePoint:
    """One temperature.

    Args:
        temperature: τ.
        probabilities: p_τ of the listed tokens.
        entropy: H(p_τ) in nats.
        variance: of the logits under p_τ.
        slope: dH/dτ = variance/τ³.
        measured_slope: (H(p_{τ+h}) - H(p_{τ-h}))/2h.
    """

    temperature: float
    probabilities: tuple[float, ...]
    entropy: float
    variance: float
    slope: float
    measured_slope: float


@dataclass(frozen=True, slots=True)
class TemperatureStudy:
    """One row of logits at several temperatures.

    Args:
        vocabulary: how many tokens there are.
        most_entropy: log of that, which no temperature exceeds.
        token_ids: the listed tokens, the likeliest first.
        points: in the order in which temperatures were given.
    """

    vocabulary: int
    most_entropy: float
    token_ids: tuple[int, ...]
    points: tuple[TemperaturePoint, ...]


def study(row: Floats, temperatures: Sequence[float], *, listed: int = 5) -> TemperatureStudy:
    """A row [vocabulary] of finite logits at temperatures above 0, with the `listed` likeliest tokens."""
    token_ids = leading(row, min(listed, len(row)))
    points = tuple(_point(row, temperature, token_ids.tolist()) for temperature in temperatures)
    return TemperatureStudy(len(row), log(len(row)), tuple(token_ids.tolist()), points)


def outlook(row: Floats, temperature: float, token_ids: Sequence[int]) -> tuple[tuple[float, ...], float]:
    """p_τ of these tokens, and H(p_τ)."""
    kept = distribution(row, temperature=temperature)
    return tuple(dense(kept, len(row))[list(token_ids)].tolist()), entropy(kept)


def _point(row: Floats, temperature: float, token_ids: Sequence[int]) -> TemperaturePoint:
    kept = distribution(row, temperature=temperature)
    probabilities, logits = dense(kept, len(row)), row.astype(np.float64)
    variance = float((probabilities * (logits - (probabilities * logits).sum()) ** 2).sum())
    step = STEP * temperature
    return TemperaturePoint(
        temperature=temperature,
        probabilities=tuple(probabilities[list(token_ids)].tolist()),
        entropy=entropy(kept),
        variance=variance,
        slope=variance / temperature**3,
        measured_slope=(_entropy(row, temperature + step) - _entropy(row, temperature - step)) / (2 * step),
    )


def _entropy(row: Floats, temperature: float) -> float:
    return entropy(distribution(row, temperature=temperature))
