"""Top-k and top-p: definition 5.1 to example 5.6, exercise 10.2, and the code of section 6 on sets."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.decoding.filters import (
    distribution,
    keep_top_k,
    keep_top_p,
    leading,
    running_sum,
)
from model.studies.distributions import candidates, dense, row_of, tempered
from model.studies.sampling import EXAMPLE
from tests.claims.tokens import (
    UNIT,
    exact_distributions,
    exact_masses,
    frequencies,
    greedy,
    logarithms,
    midpoints,
    plain_logits,
    top_p_ids,
)
from tests.reference import sampling as reference


def subsets(size: int) -> Iterator[tuple[int, ...]]:
    for count in range(1, size + 1):
        yield from combinations(range(size), count)


def mass_of(probabilities: Sequence[float], some: Sequence[int]) -> float:
    return sum(probabilities[i] for i in some)


@given(probabilities=exact_distributions())
def test_d5_1_the_order_is_probability_descending_index_ascending(probabilities: list[float]) -> None:
    """D5.1: π sorts by probability, and equal ones by index."""
    assert reference.ranking(probabilities) == leading(row_of(logarithms(probabilities)), 6).tolist()


@given(probabilities=exact_distributions(), k=st.integers(1, 6))
def test_d5_1_top_k_keeps_the_first_k(probabilities: list[float], k: int) -> None:
    """D5.1: S^(k) = {π(1), …, π(k)}."""
    expected = sorted(reference.top_k_set(probabilities, k))

    assert expected == keep_top_k(row_of(logarithms(probabilities)), k).tolist()


@given(probabilities=exact_distributions(), mass=exact_masses)
def test_d5_1_top_p_keeps_the_shortest_prefix_that_reaches_the_mass(probabilities: list[float], mass: float) -> None:
    """D5.1: k(ρ) is the least j that has c_j ≥ ρ, and S_ρ = {π(1), …, π(k(ρ))}."""
    assert sorted(reference.top_p_set(probabilities, mass)) == top_p_ids(probabilities, mass)


@given(probabilities=exact_distributions(), mass=exact_masses)
def test_p5_2_1_truncation_is_the_conditional_distribution(probabilities: list[float], mass: float) -> None:
    """D5.1, P5.2.1: p_S(i) = p_i/p(S) = P(X = i | X ∈ S), and the draws from both agree in frequency."""
    whole, kept = candidates(probabilities), keep_top_p(candidates(probabilities), mass)
    hits = frequencies(whole, midpoints(UNIT))
    inside = sum(hits[token] for token in kept.token_ids)

    conditional = [hits[token] / inside for token in kept.token_ids]

    assert conditional == kept.probabilities().tolist()
    assert reference.restrict(probabilities, kept.token_ids.tolist()) == dense(kept, len(probabilities)).tolist()


@given(logits=plain_logits, k=st.integers(1, 12))
def test_p5_2_2_truncation_keeps_ratios(logits: list[float], k: int) -> None:
    """P5.2.2: p_S(i)/p_S(j) = p_i/p_j inside S."""
    whole = tempered(logits, 1.0)
    kept = distribution(row_of(logits), temperature=1.0, top_k=k)
    inside, before = kept.probabilities(), whole[kept.token_ids]

    assert pytest.approx(before / before[0], rel=1e-12) == inside / inside[0]


@given(logits=plain_logits, k=st.integers(1, 12))
def test_p5_2_3_the_distance_is_the_mass_cut_off(logits: list[float], k: int) -> None:
    """P5.2.3: ½ Σ|p − p_S| = 1 − p(S)."""
    whole = tempered(logits, 1.0)
    kept = distribution(row_of(logits), temperature=1.0, top_k=k)

    distance = reference.total_variation(whole.tolist(), dense(kept, len(logits)).tolist())

    assert pytest.approx(1.0 - whole[kept.token_ids].sum(), abs=1e-14) == distance


@given(logits=plain_logits, mass=st.one_of(st.just(0.9), st.floats(0.01, 1.0)))
def test_p5_2_corollary_top_p_moves_at_most_one_minus_rho(logits: list[float], mass: float) -> None:
    """P5.2: p(S_ρ) ≥ ρ, so the distribution moves by at most 1 − ρ; ρ = .9 moves it by .1 or less."""
    kept = distribution(row_of(logits), temperature=1.0, top_p=mass)

    distance = reference.total_variation(tempered(logits, 1.0).tolist(), dense(kept, len(logits)).tolist())

    assert distance <= 1.0 - mass + 1e-14


def test_p5_2_corollary_top_k_has_no_such_bound() -> None:
    """P5.2: on a flat distribution top-k throws away nearly everything."""
    logits = [0.0] * 1000
    kept = distribution(row_of(logits), temperature=1.0, top_k=1)

    assert pytest.approx(0.999) == reference.total_variation([0.001] * 1000, dense(kept, 1000).tolist())


@given(probabilities=exact_distributions(smallest=1))
def test_l5_3_the_top_j_have_the_most_mass_of_j_tokens(probabilities: list[float]) -> None:
    """L5.3: p(T) ≤ c_|T| for every T; with distinct probabilities only the top set itself reaches it."""
    order = leading(row_of(logarithms(probabilities)), len(probabilities))
    sums = running_sum(np.asarray(probabilities)[order])

    for some in subsets(len(probabilities)):
        mass, top_mass = sum(probabilities[i] for i in some), sums[len(some) - 1]
        assert mass <= top_mass
        if len(set(probabilities)) == len(probabilities):
            assert (mass == top_mass) == (set(some) == set(order[: len(some)].tolist()))


@given(probabilities=exact_distributions(), mass=exact_masses)
def test_t5_4_1_the_top_p_set_is_unique(probabilities: list[float], mass: float) -> None:
    """T5.4.1: exactly one prefix of the ranking reaches ρ while the one before it does not."""
    order = reference.ranking(probabilities)
    prefixes = [
        sorted(order[:count])
        for count in range(1, len(order) + 1)
        if sum(probabilities[i] for i in order[:count]) >= mass
        and sum(probabilities[i] for i in order[: count - 1]) < mass
    ]

    assert prefixes == [top_p_ids(probabilities, mass)]


@given(probabilities=exact_distributions(), mass=exact_masses)
def test_t5_4_2_no_smaller_set_reaches_the_mass(probabilities: list[float], mass: float) -> None:
    """T5.4.2: k(ρ) = min{|T| : p(T) ≥ ρ}."""
    reaching = [len(some) for some in subsets(len(probabilities)) if mass_of(probabilities, some) >= mass]

    assert min(reaching) == len(top_p_ids(probabilities, mass))


@given(probabilities=exact_distributions(smallest=1), mass=exact_masses)
def test_t5_4_3_no_set_of_its_size_has_more_mass(probabilities: list[float], mass: float) -> None:
    """T5.4.3: S_ρ has the greatest mass of its size, alone if all probabilities differ."""
    kept = top_p_ids(probabilities, mass)
    same_size = {some: mass_of(probabilities, some) for some in combinations(range(len(probabilities)), len(kept))}
    best = [some for some, reached in same_size.items() if reached == max(same_size.values())]

    assert tuple(kept) in best
    if len(set(probabilities)) == len(probabilities):
        assert [tuple(kept)] == best


@given(probabilities=exact_distributions(), masses=st.tuples(exact_masses, exact_masses))
def test_t5_4_4_the_set_grows_with_the_mass(probabilities: list[float], masses: tuple[float, float]) -> None:
    """T5.4.4: ρ ≤ ρ′ gives S_ρ ⊂ S_ρ′."""
    smaller, larger = (set(top_p_ids(probabilities, mass)) for mass in sorted(masses))

    assert smaller <= larger


@given(probabilities=exact_distributions())
def test_t5_4_5_the_ends_are_greedy_and_the_support(probabilities: list[float]) -> None:
    """T5.4.5: ρ ≤ p_max keeps the greedy token alone; ρ = 1 keeps {i : p_i > 0}."""
    logits = logarithms(probabilities)
    support = [index for index, p in enumerate(probabilities) if p > 0.0]

    assert greedy(logits) == top_p_ids(probabilities, max(probabilities))
    assert support == top_p_ids(probabilities, 1.0)
    assert support == distribution(row_of(logits), temperature=1.0, top_p=1.0).token_ids.tolist()


def test_r5_5_a_smallest_set_need_not_be_the_top_p_set() -> None:
    """R5.5: of (.5, .3, .2) at ρ = .6, {0, 2} has size 2 and mass .7 as well; top-p takes {0, 1}, mass .8."""
    probabilities = [0.5, 0.3, 0.2]
    kept = top_p_ids(probabilities, 0.6)

    assert [0, 1] == kept
    assert pytest.approx(0.8) == mass_of(probabilities, kept)
    assert pytest.approx(0.7) == mass_of(probabilities, [0, 2])


def test_e5_6_at_sixty_per_cent() -> None:
    """E5.6: (.5, .2, .2, .1) at ρ = .6 keeps {0, 1}, renormalised (.714, .286); the equal third stays out."""
    kept = keep_top_p(candidates([0.5, 0.2, 0.2, 0.1]), 0.6)

    assert [0, 1] == kept.token_ids.tolist()
    assert [0.714, 0.286] == np.round(kept.probabilities(), 3).tolist()


def test_e5_6_top_p_follows_the_shape_and_top_k_does_not() -> None:
    """E5.6: at ρ = .9 a peak keeps 1 and a uniform four keep 4, while k = 2 always keeps 2."""
    peak, flat, mixed = [0.97, 0.01, 0.01, 0.01], [0.25] * 4, [0.5, 0.2, 0.2, 0.1]

    assert 1 == len(top_p_ids(peak, 0.9))
    assert 4 == len(top_p_ids(flat, 0.9))
    assert {2} == {len(keep_top_k(row_of(logarithms(p)), 2)) for p in (peak, flat, mixed)}


def test_trap_t5_rounding_decides_at_the_threshold() -> None:
    """E5.6, trap T5: exactly, .5 + .2 + .2 reaches .9; in float64 it is .8999999999999999 and a fourth is kept.

    Comparing with ρ times the sum of the same rounded numbers gives the exact answer here; any rule in floating
    point has its own such thresholds.
    """
    probabilities = [0.5, 0.2, 0.2, 0.1]

    assert [0, 1, 2] == reference.top_p_set([5, 2, 2, 1], 9)
    assert [0, 1, 2, 3] == reference.top_p_set(probabilities, 0.9)
    assert [0, 1, 2] == top_p_ids(probabilities, 0.9)


def test_c6_the_printed_sets() -> None:
    """C6: (.5, .2, .2, .1) at ρ = .3, .6, .9, 1, the cumulative sums and top-2, as the short textbook code has it."""
    probabilities = [0.5, 0.2, 0.2, 0.1]

    sets = [reference.top_p_set(probabilities, mass) for mass in (0.3, 0.6, 0.9, 1.0)]

    assert [[0], [0, 1], [0, 1, 2, 3], [0, 1, 2, 3]] == sets
    assert [[0], [0, 1], [0, 1, 2, 3]] == [top_p_ids(probabilities, mass) for mass in (0.3, 0.6, 1.0)]
    assert [0.5, 0.7, 0.8999999999999999, 0.9999999999999999] == running_sum(np.array(probabilities)).tolist()
    assert [0, 1] == keep_top_k(row_of(logarithms(probabilities)), 2).tolist()


def test_c6_the_truncated_distribution() -> None:
    """C6: τ = .8 and ρ = .95 keep three of six, mass .9765, at distance .0235 = 1 − p(S)."""
    whole = tempered(EXAMPLE, 0.8)
    kept = distribution(row_of(EXAMPLE), temperature=0.8, top_p=0.95)
    mass = whole[kept.token_ids].sum()

    assert [0.6038, 0.3232, 0.0496, 0.0182, 0.0041, 0.0012] == np.round(whole, 4).tolist()
    assert [0, 1, 2] == kept.token_ids.tolist()
    assert 0.9765 == round(mass, 4)
    assert [0.6183, 0.331, 0.0508, 0.0, 0.0, 0.0] == np.round(dense(kept, 6), 4).tolist()
    assert 0.0235 == round(reference.total_variation(whole.tolist(), dense(kept, 6).tolist()), 4)
    assert 0.0235 == round(1.0 - mass, 4)


def test_x10_2_the_sets_of_five_tokens() -> None:
    """X10.2: (.4, .3, .15, .1, .05) keeps 2, 3, 4 at ρ = .5, .8, .95; at .8 (.471, .353, .176), moved .15 ≤ .2."""
    probabilities = [0.4, 0.3, 0.15, 0.1, 0.05]
    kept = keep_top_p(candidates(probabilities), 0.8)
    distance = reference.total_variation(probabilities, dense(kept, 5).tolist())

    assert [[0, 1], [0, 1, 2], [0, 1, 2, 3]] == [top_p_ids(probabilities, mass) for mass in (0.5, 0.8, 0.95)]
    assert [0.471, 0.353, 0.176] == np.round(kept.probabilities(), 3).tolist()
    assert pytest.approx(0.15) == distance
    assert distance <= 0.2


def test_trap_t4_rho_of_one_keeps_no_token_of_probability_zero() -> None:
    """Trap T4: rounding keeps c_N below 1, so the short code keeps p = 0 too; here ρ = 1 keeps exactly the support."""
    probabilities = [0.5, 0.2, 0.2, 0.1, 0.0]

    assert [0, 1, 2, 3, 4] == reference.top_p_set(probabilities, 1.0)
    assert [0, 1, 2, 3] == distribution(row_of(logarithms(probabilities)), temperature=1.0).token_ids.tolist()
