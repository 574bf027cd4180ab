"""Whether draws follow the distribution that they are made from (proposition 6.1), by the product's own draws.

Knows one row of logits. Always: draw i takes the uniform that the i-th token of a text with this seed takes, and is
made by the compiled sampler; the distribution to compare with comes from the reference filters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import erfc, exp, lgamma, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from model.decoding.filters import Doubles, distribution
from model.decoding.params import Draw
from model.native._native import philox_uniform
from model.ops.native_choice import NativeChooser
from model.studies.distributions import dense, row_of, tempered, total_variation

EXAMPLE = (3.0, 2.5, 1.0, 0.2, -1.0, -2.0)
"""The logits of the code of section 6, drawn from at τ = 0.8 and ρ = 0.95."""
AT_ONCE = 10_000
"""Draws made in one call."""


@dataclass(frozen=True, slots=True)
class Frequency:
    """One token: its probability before and after truncation, and its share of all draws."""

    token_id: int
    probability: float
    restricted: float
    frequency: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well the first `draws` draws agree with the distribution.

    Args:
        draws: how many.
        moved: the total variation between frequencies and q.
        expected: what that is on average for so many independent draws, by the normal approximation.
        chi_square: Pearson's statistic over the kept tokens.
        tail: the probability of so great a statistic if the draws follow q; 1 where only one token is kept.
    """

    draws: int
    moved: float
    expected: float
    chi_square: float
    tail: float


@dataclass(frozen=True, slots=True)
class SamplingStudy:
    """Draws from a row.

    Args:
        seed, temperature, top_p: what was drawn with.
        kept: ids of the kept tokens, ascending.
        mass: p(S), their probability before truncation.
        moved: the total variation between p and q, which is 1 - mass.
        frequencies: of every token, by id, after all draws.
        agreements: after some numbers of draws, ascending; all of them last.
    """

    seed: int
    temperature: float
    top_p: float
    kept: tuple[int, ...]
    mass: float
    moved: float
    frequencies: tuple[Frequency, ...]
    agreements: tuple[Agreement, ...]


def study(
    logits: Sequence[float],
    *,
    draws: int,
    seed: int,
    temperature: float,
    top_p: float,
    on_draws: Callable[[], None] = lambda: None,
) -> SamplingStudy:
    """At least one draw from some finite logits. `on_draws` is told of each `AT_ONCE` draws, or the rest."""
    row = row_of(logits)
    whole, kept = tempered(row, temperature), distribution(row, temperature=temperature, top_p=top_p)
    restricted = dense(kept, len(row))
    with_uniform = partial(Draw, 0, temperature, 0, top_p, 0.0)
    drawn = _drawn(row[None], with_uniform, draws, seed, on_draws)
    shares = np.bincount(drawn, minlength=len(row)) / draws
    each = zip(whole.tolist(), restricted.tolist(), shares.tolist(), strict=True)
    return SamplingStudy(
        seed=seed,
        temperature=temperature,
        top_p=top_p,
        kept=tuple(kept.token_ids.tolist()),
        mass=float(whole[kept.token_ids].sum()),
        moved=total_variation(whole, restricted),
        frequencies=tuple(Frequency(token_id, *numbers) for token_id, numbers in enumerate(each)),
        agreements=tuple(_agreement(drawn[:count], restricted) for count in _counts(draws)),
    )


def chi_square_tail(statistic: float, degrees: int) -> float:
    """P(χ² ≥ statistic) for whole degrees of freedom; 1 for none. A finite sum, since degrees/2 is n or n + ½."""
    half = statistic / 2
    if degrees == 0 or half == 0.0:
        return 1.0
    first = 0.5 * (degrees % 2)
    terms = (exp(-half + power * log(half) - lgamma(power + 1)) for power in np.arange(first, degrees / 2).tolist())
    return (erfc(sqrt(half)) if degrees % 2 else 0.0) + sum(terms)


def _drawn(
    rows: NDArray[np.float32],
    with_uniform: Callable[[float], Draw],
    draws: int,
    seed: int,
    on_draws: Callable[[], None],
) -> NDArray[np.int64]:
    """Ids of the drawn tokens [draws]."""
    chooser, found = NativeChooser(), np.empty(draws, np.int64)
    for first in range(0, draws, AT_ONCE):
        places = range(first, min(first + AT_ONCE, draws))
        chosen = chooser.choose(rows, [with_uniform(philox_uniform(seed, 0, place)) for place in places])
        found[places.start : places.stop] = np.array([each.token_id for each in chosen], np.int64)
        on_draws()
    return found


def _counts(draws: int) -> list[int]:
    """100, 1000, … below the number of draws, and that."""
    return [*(10**power for power in range(2, 20) if 10**power < draws), draws]


def _agreement(drawn: NDArray[np.int64], restricted: Doubles) -> Agreement:
    draws = len(drawn)
    counts = np.bincount(drawn, minlength=len(restricted))
    expected = draws * restricted
    possible = expected > 0.0
    statistic = float(((counts - expected)[possible] ** 2 / expected[possible]).sum())
    deviations = np.sqrt(2 * restricted * (1 - restricted) / (pi * draws))
    return Agreement(
        draws=draws,
        moved=total_variation(counts / draws, restricted),
        expected=0.5 * float(deviations.sum()),
        chi_square=statistic,
        tail=chi_square_tail(statistic, int(possible.sum()) - 1),
    )
