"""Uniform quantisation: definition 8.1 to example 8.3, exercise 10.4, and the code of section 8."""

from dataclasses import astuple
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.compression.grids import GridSpec, Levels, Whole, fit, round_to_nearest
from model.compression.hessian import Matrix
from model.compression.matrix import GridMatrix
from model.studies.uniform_error import SEED, UniformErrorStudy, quantised, sample, study, uniform, with_outlier

BITS = range(1, 9)
ROUNDED_ONCE = 1 + 2**-20
"""Room for what float32 rounds of a weight near the end of its range."""


def exact_levels(a: Fraction, bits: int) -> list[Fraction]:
    """-a + jΔ, straight from the definition."""
    step = 2 * a / (2**bits - 1)
    return [-a + j * step for j in range(2**bits)]


def levels_from(a: float, bits: int) -> Levels:
    return fit(np.array([[-a, a]]), uniform(bits))


def step_of(matrix: GridMatrix) -> float:
    return float(matrix.scales[0, 0])


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    """Random, or all at half a step, at an end, or at zero but for one outlier."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, columns = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    kind = draw(st.sampled_from(["normal", "heavy", "halves", "ends", "outlier"]))
    normal = rng.normal(0, 0.05, (rows, columns))
    weights = {
        "normal": normal,
        "heavy": normal**5 * 1000,
        "halves": rng.integers(-15, 16, (rows, columns)) / 15,
        "ends": rng.choice([-1.0, 1.0], (rows, columns)),
        "outlier": normal * 1e-3,
    }[kind]
    if kind in ("halves", "outlier"):
        weights[0, 0] = 1.0
    return weights


@pytest.mark.parametrize("bits", BITS)
def test_d8_1_there_are_two_to_the_b_levels_from_minus_a_to_a(bits: int) -> None:
    """D8.1: levels -a + jΔ with Δ = 2a/(2^b - 1), for j = 0 … 2^b - 1."""
    codes = np.arange(2**bits, dtype=np.uint8)[None]
    scale = np.array([[2 / (2**bits - 1)]], np.float32)
    levels = Levels(bits, 2**bits, scale, np.array([[-1.0]], np.float32))

    fitted = levels_from(1.0, bits)

    assert fitted.offsets.tolist() == levels.offsets.tolist()
    np.testing.assert_allclose(fitted.scales, scale, rtol=2**-23)
    expected = [float(level) for level in exact_levels(Fraction(1), bits)]
    np.testing.assert_allclose(levels.matrix(codes).dequantised()[0], expected, atol=1e-6)


@given(weight=st.floats(-1, 1), bits=st.sampled_from(BITS))
def test_d8_1_a_weight_goes_to_a_nearest_level(weight: float, bits: int) -> None:
    """D8.1: Q(w) is a level of least distance; of two at the same distance, either."""
    nearest = min(abs(Fraction(weight) - level) for level in exact_levels(Fraction(1), bits))

    (found,) = quantised(levels_from(1.0, bits), np.array([[weight, 1.0]]))[:, 0]

    assert float(abs(Fraction(weight) - Fraction(float(found)))) <= float(nearest) + 1e-6


def test_d8_1_one_range_is_stored_for_a_matrix() -> None:
    """D8.1: b bits a weight, and one a."""
    weights = np.random.default_rng(0).normal(size=(5, 6))

    matrix = round_to_nearest(weights, uniform(4))

    assert 1 == len(np.unique(matrix.scales))
    assert 1 == len(np.unique(matrix.offsets))
    assert float(np.abs(weights).max()) == pytest.approx(-float(matrix.offsets[0, 0]), rel=2**-22)


@given(weights=matrices(), bits=st.sampled_from(BITS))
def test_p8_2_1_no_weight_moves_more_than_half_a_step(weights: Matrix, bits: int) -> None:
    """P8.2.1: |w - Q(w)| ≤ Δ/2."""
    matrix = round_to_nearest(weights, uniform(bits))
    reach = np.abs(weights).max()

    assert np.abs(weights - matrix.dequantised()).max() <= step_of(matrix) / 2 + reach * (ROUNDED_ONCE - 1)


@given(weights=matrices(), bits=st.sampled_from(BITS))
def test_p8_2_2_the_error_of_a_matrix_is_bounded(weights: Matrix, bits: int) -> None:
    """P8.2.2: ‖W - Q‖_F ≤ (Δ/2)√(mn)."""
    matrix = round_to_nearest(weights, uniform(bits))
    bound = (step_of(matrix) / 2 + np.abs(weights).max() * (ROUNDED_ONCE - 1)) * np.sqrt(weights.size)

    assert np.linalg.norm(weights - matrix.dequantised()) <= bound * ROUNDED_ONCE


@given(weights=matrices(), bits=st.sampled_from(BITS), seed=st.integers(0, 2**32))
def test_p8_2_2_the_error_of_an_output_is_bounded(weights: Matrix, bits: int, seed: int) -> None:
    """P8.2.2: ‖(W - Q)x‖ ≤ (Δ/2)√(mn)‖x‖; also for the worst x, the error's own first singular vector."""
    matrix = round_to_nearest(weights, uniform(bits))
    error = weights - matrix.dequantised()
    bound = (step_of(matrix) / 2 + np.abs(weights).max() * (ROUNDED_ONCE - 1)) * np.sqrt(weights.size)
    worst = np.linalg.svd(error)[2][0]

    for x in (np.random.default_rng(seed).normal(size=weights.shape[1]), worst):
        assert np.linalg.norm(error @ x) <= bound * np.linalg.norm(x) * ROUNDED_ONCE


def test_p8_2_3_a_bit_more_is_less_than_half_the_step() -> None:
    """P8.2.3: Δ_{b+1}/Δ_b = (2^b - 1)/(2^{b+1} - 1) < ½, and tends to ½."""
    steps = [float(levels_from(1.0, bits).scales[0, 0]) for bits in BITS]
    ratios = [later / earlier for earlier, later in pairwise(steps)]

    assert [(2**b - 1) / (2 ** (b + 1) - 1) for b in BITS[:-1]] == pytest.approx(ratios, rel=1e-6)
    assert max(ratios) < 0.5
    assert sorted(ratios) == ratios


@pytest.mark.parametrize("bits", [3, 4, 6, 8])
def test_p8_2_4_errors_of_evenly_spread_weights_are_as_the_model_says(bits: int) -> None:
    """P8.2.4: for weights that are spread evenly, E e = 0 and Var e = Δ²/12."""
    weights = np.random.default_rng(bits).uniform(-1, 1, (200, 200))
    matrix = round_to_nearest(weights, uniform(bits))
    errors = weights - matrix.dequantised()
    step, deviation = step_of(matrix), step_of(matrix) / np.sqrt(12)

    assert abs(errors.mean()) <= 4 * deviation / np.sqrt(errors.size)
    assert errors.var() == pytest.approx(step**2 / 12, rel=4 * np.sqrt(0.8 / errors.size))


def test_p8_2_4_the_typical_error_is_0_577_of_the_bound() -> None:
    """P8.2.4: √(mn/12) over √(mn)/2."""
    weights = np.random.default_rng(1).normal(0, 0.05, (300, 300))
    matrix = round_to_nearest(weights, uniform(8))
    bound = step_of(matrix) / 2 * np.sqrt(weights.size)

    assert np.linalg.norm(weights - matrix.dequantised()) / bound == pytest.approx(0.577, abs=0.005)


@pytest.mark.parametrize(("bits", "levels", "step", "error"), [(8, 256, ".00784", ".0039"), (4, 16, ".133", ".067")])
def test_e8_3_steps_and_bounds_of_8_and_4_bits(bits: int, levels: int, step: str, error: str) -> None:
    """E8.3: b = 8 and 4 with a = 1."""
    matrix = round_to_nearest(np.linspace(-1, 1, 10_000)[None], uniform(bits))
    delta = step_of(matrix)

    assert levels == len(np.unique(matrix.dequantised()))
    assert step == f"{delta:.{len(step) - 1}f}"[1:]
    assert error == f"{delta / 2:.{len(error) - 1}f}"[1:]


def test_e8_3_the_levels_of_2_bits() -> None:
    """E8.3: -1, -⅓, ⅓, 1."""
    matrix = round_to_nearest(np.array([[-1.0, -0.3, 0.3, 1.0]]), uniform(2))

    assert [-1, -1 / 3, 1 / 3, 1] == pytest.approx(matrix.dequantised()[0].tolist(), abs=1e-6)


def test_e8_3_bounds_grow_seventeenfold_and_fivefold() -> None:
    """E8.3: from 8 bits to 4 by 17, from 4 to 2 by 5."""
    step = {bits: float(levels_from(1.0, bits).scales[0, 0]) for bits in (8, 4, 2)}

    assert 17 == pytest.approx(step[4] / step[8], rel=1e-6)
    assert 5 == pytest.approx(step[2] / step[4], rel=1e-6)


@pytest.mark.parametrize("bits", BITS)
def test_e8_3_zero_is_never_a_level(bits: int) -> None:
    """E8.3: the nearest levels are ±Δ/2."""
    levels = levels_from(1.0, bits)
    zero = quantised(levels, np.zeros((1, 2)))[0, 0]

    assert abs(zero) == pytest.approx(float(levels.scales[0, 0]) / 2, rel=1e-4)


def test_e8_3_pruned_weights_are_refused_on_a_grid_without_zero() -> None:
    """E8.3: there they would come back as ±Δ/2."""
    with pytest.raises(ValueError, match="a uniform grid has no exact zero"):
        round_to_nearest(np.ones((2, 4)), uniform(4), np.ones((2, 4), np.bool_))


@cache
def section_8() -> UniformErrorStudy:
    return study(bits=(8, 4, 2))


@pytest.mark.parametrize(
    ("bits", "figures"),
    [
        (8, "0.00137 0.00069 0.00069 0.02211 0.03810 0.02200 0.02166 0.28016"),
        (4, "0.02337 0.01168 0.01169 0.37493 0.64773 0.37397 0.41510 4.76279"),
        (2, "0.11687 0.05842 0.05843 1.90140 3.23866 1.86984 2.34504 23.81393"),
    ],
)
def test_c8_the_table_of_section_8(bits: int, figures: str) -> None:
    """C8: Δ, max|e|, Δ/2, ‖E‖, its bound, Δ√(mn/12), ‖Ex‖, its bound, digit for digit."""
    (row,) = [row for row in section_8().by_bits if row.bits == bits]

    assert figures == " ".join(f"{figure:.5f}" for figure in astuple(row)[2:])


def outlier_figures(index: int) -> tuple[str, str, int, str]:
    row = section_8().outlier[index]
    return f"{row.reach:.4f}", f"{row.norm:.5f}", row.levels_in_use, f"{row.outlier_error:.4f}"


def test_c8_an_outlier_leaves_five_levels_to_the_rest() -> None:
    """C8: a = 1, because of one weight."""
    assert ("1.0000", "2.21452", 5, "0.0000") == outlier_figures(0)


def test_c8_clipping_the_outlier_costs_less() -> None:
    """C8: a = .1753, as without the outlier."""
    assert "0.1753" == f"{section_8().reach:.4f}"
    assert ("0.1753", "0.90588", 16, "0.8247") == outlier_figures(1)


def test_x10_4_three_bits() -> None:
    """X10.4: levels -1, -5/7, …, 1; Q(.2) = 1/7, Q(.5) = 3/7, and 0 is half a step away from its level."""
    levels = levels_from(1.0, 3)
    found = quantised(levels, np.array([[0.2, 0.5]]))[0].tolist()

    assert [1 / 7, 3 / 7] == pytest.approx(found, abs=1e-6)
    assert abs(quantised(levels, np.zeros((1, 2)))[0, 0]) == pytest.approx(1 / 7, abs=1e-6)
    assert [Fraction(2 * j - 7, 7) for j in range(8)] == exact_levels(Fraction(1), 3)


@pytest.mark.parametrize("form", ["uniform", "affine", "symmetric", "minimum"])
def test_t6_a_group_of_zeros_stays_zero(form: str) -> None:
    """T6: a range of zero divides by nothing."""
    weights = np.array([[0.0] * 4 + [0.5, -0.25, 0.125, 1.0]])

    matrix = round_to_nearest(weights, GridSpec(4, 4, form))  # type: ignore[arg-type]

    assert [0.0] * 4 == matrix.dequantised()[0, :4].tolist()


def test_t6_weights_outside_the_range_are_clipped_to_its_ends() -> None:
    """T6: the definition says nothing of them."""
    assert [-1.0, 1.0] == pytest.approx(quantised(levels_from(1.0, 4), np.array([[-3.0, 2.0]]))[0].tolist(), abs=1e-6)


def test_t7_finer_ranges_lose_less() -> None:
    """T7: one range for a matrix is the worst choice; one for a row is better, one for a group better still."""
    weights = with_outlier(sample(64, 48, SEED)[0])
    wholes: tuple[int | Whole, ...] = ("matrix", "row", 16)
    errors = [np.linalg.norm(weights - round_to_nearest(weights, uniform(4, whole)).dequantised()) for whole in wholes]

    assert sorted(errors, reverse=True) == errors
