"""Temperature: definition 4.1, theorem 4.2, example 4.3 and exercise 10.1 on the project's distribution."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from model.studies.distributions import tempered
from tests.claims.tokens import LAST_UNIFORM, drawn, plain_logits, plain_temperatures
from tests.reference import sampling as reference


@given(logits=plain_logits, temperature=plain_temperatures)
def test_d4_1_temperature_is_the_softmax_of_divided_logits(logits: list[float], temperature: float) -> None:
    """D4.1: p_τ = softmax(z/τ) for τ > 0."""
    expected = reference.softmax(logits, temperature)

    assert pytest.approx(expected, abs=1e-14) == tempered(logits, temperature)


def test_d4_1_temperature_zero_is_a_branch_of_its_own() -> None:
    """D4.1: τ = 0 divides nothing and takes the maximum, the lowest index of several, for any uniform."""
    assert {1} == {drawn([1.0, 3.0, 3.0], u, temperature=0.0) for u in (0.0, 0.5, LAST_UNIFORM)}


@pytest.mark.parametrize("temperature", [1e-3, 1e-20, 1e-45, 5e-324])
def test_t4_2_1_low_temperature_tends_to_the_argmax_set(temperature: float) -> None:
    """T4.2.1: τ → 0⁺ gives 1/|I| to each maximum and 0 to the rest."""
    assert [0.0, 0.5, 0.0, 0.5] == tempered([1.0, 3.0, 2.0, 3.0], temperature).tolist()


def test_t4_2_2_high_temperature_tends_to_uniform() -> None:
    """T4.2.2: τ → ∞ gives 1/N everywhere."""
    assert pytest.approx([0.25] * 4, abs=1e-9) == tempered([1.0, -3.0, 2.0, 30.0], 1e12)


@given(
    logits=st.lists(st.integers(-5, 5), min_size=2, max_size=10),
    temperature=st.floats(0.05, 1e6),
)
def test_t4_2_3_temperature_keeps_order_and_equalities(logits: list[int], temperature: float) -> None:
    """T4.2.3: z_i > z_j gives p_i > p_j, and z_i = z_j gives p_i = p_j, at every τ."""
    probabilities = tempered(logits, temperature)

    for (z, p), (other_z, other_p) in combinations(zip(logits, probabilities, strict=True), 2):
        assert (z > other_z) == (p > other_p)
        assert (z == other_z) == (p == other_p)


@given(logits=plain_logits, temperature=st.floats(0.5, 4.0))
def test_t4_2_4_entropy_grows_with_temperature(logits: list[float], temperature: float) -> None:
    """T4.2.4: dH/dτ = Var(z)/τ³ ≥ 0, by central differences."""
    step = 1e-4 * temperature
    probabilities = tempered(logits, temperature)
    variance = probabilities @ np.square(logits) - (probabilities @ np.asarray(logits)) ** 2

    rise = reference.entropy(tempered(logits, temperature + step).tolist())
    fall = reference.entropy(tempered(logits, temperature - step).tolist())

    assert pytest.approx(variance / temperature**3, abs=1e-5) == (rise - fall) / (2.0 * step)


@given(logits=plain_logits)
def test_t4_2_4_entropy_grows_strictly_unless_all_logits_are_equal(logits: list[float]) -> None:
    """T4.2.4: the derivative is 0 exactly where every component is equal."""
    assume(max(logits) == min(logits) or max(logits) - min(logits) > 1e-2)
    low, high = (reference.entropy(tempered(logits, t).tolist()) for t in (1.0, 1.5))

    assert (max(logits) > min(logits)) == (high > low + 1e-9)


@pytest.mark.parametrize(
    ("temperature", "probabilities", "entropy"),
    [
        (0.1, [1.0, 0.0, 0.0], 0.0005),
        (0.5, [0.8668, 0.1173, 0.0159], 0.4411),
        (1.0, [0.6652, 0.2447, 0.0900], 0.8324),
        (2.0, [0.5065, 0.3072, 0.1863], 1.0202),
        (100.0, [0.3367, 0.3333, 0.3300], 1.0986),
    ],
)
def test_e4_3_and_c6_the_table_of_temperatures(temperature: float, probabilities: list[float], entropy: float) -> None:
    """E4.3, C6: z = (2, 1, 0) at five temperatures; the bound is log 3 = 1.0986."""
    actual = tempered([2.0, 1.0, 0.0], temperature)

    assert probabilities == np.round(actual, 4).tolist()
    assert entropy == round(reference.entropy(actual.tolist()), 4)
    assert round(math.log(3.0), 4) == 1.0986


def test_x10_1_the_temperature_of_ninety_per_cent() -> None:
    """X10.1: z = (1, 0) has p_1 = .9 at τ = 1/log 9 ≈ .455, entropy .325; at τ = 1 (.731, .269) and .582."""
    temperature = 1.0 / math.log(9.0)
    sharp, plain = tempered([1.0, 0.0], temperature), tempered([1.0, 0.0], 1.0)

    assert 0.455 == round(temperature, 3)
    assert pytest.approx([0.9, 0.1]) == sharp
    assert [0.731, 0.269] == np.round(plain, 3).tolist()
    assert 0.325 == round(reference.entropy(sharp.tolist()), 3)
    assert 0.582 == round(reference.entropy(plain.tolist()), 3)
