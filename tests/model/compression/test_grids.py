"""Grids: where levels lie, how they are rounded before codes are chosen, and how far they reach."""

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.compression.grids import Form, GridSpec, fit, round_to_nearest
from model.compression.hessian import Matrix
from model.compression.matrix import GridMatrix
from model.compression.ranges import Maximum, Percentile, Range, Searched, power_losses
from model.compression.stored import zero_codes

FORMS: tuple[Any, ...] = get_args(Form)
WITH_ZERO: tuple[Any, ...] = ("affine", "symmetric")


@st.composite
def weights(draw: st.DrawFn, columns: int = 8) -> Matrix:
    """Groups of one sign, of zeros, with outliers, tiny and great."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    found = rng.normal(0, 10.0 ** draw(st.integers(-6, 2)), (3, columns))
    kind = draw(st.sampled_from(["mixed", "positive", "negative", "constant", "zero", "sparse"]))
    changed: dict[str, Matrix] = {
        "mixed": found,
        "positive": np.abs(found),
        "negative": -np.abs(found),
        "constant": np.full_like(found, found[0, 0]),
        "zero": np.zeros_like(found),
        "sparse": found * (rng.random(found.shape) < 0.3),
    }
    return changed[kind]


def errors(matrix: GridMatrix, exact: Matrix) -> Matrix:
    return np.abs(matrix.dequantised() - exact).reshape(*matrix.scales.shape, matrix.group)


@pytest.mark.parametrize("stored", ["float16", "float32"])
@pytest.mark.parametrize("form", ["uniform", *WITH_ZERO])
@given(exact=weights(), bits=st.integers(2, 8))
def test_no_weight_moves_more_than_half_a_stored_step(form: Any, stored: Any, exact: Matrix, bits: int) -> None:
    """Also where the step was rounded to float16, and for groups of one sign."""
    matrix = round_to_nearest(exact, GridSpec(bits, 4, form, stored=stored))
    steps = matrix.scales.astype(np.float64)[..., None]

    assert (errors(matrix, exact) <= steps / 2 * (1 + 2**-10) + 2**-24 * np.abs(exact).max()).all()


@pytest.mark.parametrize("stored", ["float16", "float32"])
@pytest.mark.parametrize("form", WITH_ZERO)
@given(exact=weights(), bits=st.integers(2, 8))
def test_zero_is_exactly_zero_on_a_grid_that_has_one(form: Any, stored: Any, exact: Matrix, bits: int) -> None:
    exact[:, ::3] = 0.0

    matrix = round_to_nearest(exact, GridSpec(bits, 4, form, stored=stored))

    assert (matrix.dequantised()[:, ::3] == 0).all()


@pytest.mark.parametrize("form", WITH_ZERO)
@given(exact=weights(), bits=st.integers(2, 8), seed=st.integers(0, 99))
def test_pruned_weights_stay_zero(form: Any, exact: Matrix, bits: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random(exact.shape) < 0.5

    matrix = round_to_nearest(exact, GridSpec(bits, 4, form), mask)

    assert (matrix.dequantised()[~mask] == 0).all()


@pytest.mark.parametrize("form", FORMS)
@given(exact=weights(), bits=st.integers(2, 8))
def test_codes_are_the_nearest_of_the_levels_as_stored(form: Any, exact: Matrix, bits: int) -> None:
    matrix = round_to_nearest(exact, GridSpec(bits, 4, form))
    steps = np.arange(2**bits) * matrix.scales.astype(np.float64)[..., None]
    levels = (steps + matrix.offsets.astype(np.float64)[..., None])[:, :, None, :]
    distances = np.abs(levels - exact.reshape(3, 2, 4)[..., None]).min(axis=-1)

    np.testing.assert_allclose(errors(matrix, exact), distances, atol=2**-22 * np.abs(levels).max() + 1e-300)


@pytest.mark.parametrize("form", ["affine", "symmetric", "minimum"])
def test_weights_on_a_grid_do_not_move_in_its_groups(form: Any) -> None:
    """Both ends of each group in use. With a minimum: files of type Q4_1, 4 bits in groups of 32."""
    rng = np.random.default_rng(1)
    least = 1 if form == "symmetric" else 0
    codes = rng.integers(least, 16, (16, 2, 32)).astype(np.float32)
    codes[..., 0], codes[..., 1] = least, 15
    steps = rng.uniform(0.001, 0.02, (16, 2, 1)).astype(np.float16).astype(np.float32)
    offsets = {
        "affine": -steps * rng.integers(0, 16, (16, 2, 1)).astype(np.float32),
        "symmetric": -8 * steps,
        "minimum": rng.uniform(-0.2, 0.2, (16, 2, 1)).astype(np.float16).astype(np.float32),
    }
    stored = (steps * codes + offsets[form]).reshape(16, 64)

    again = round_to_nearest(stored.astype(np.float64), GridSpec(4, 32, form))

    assert stored.tolist() == again.dequantised().tolist()


def test_a_symmetric_group_of_one_sign_is_not_clipped() -> None:
    """Steps of max/7 at 4 bits, whatever the sign."""
    exact = np.array([[0.1, 0.45, 1.0, 0.0]])

    found = round_to_nearest(exact, GridSpec(4, 4, "symmetric", stored="float32")).dequantised()

    assert [1 / 7, 3 / 7, 1.0, 0.0] == pytest.approx(found[0].tolist(), abs=1e-6)


def test_an_affine_group_of_one_sign_reaches_zero() -> None:
    matrix = round_to_nearest(np.array([[0.5, 1.0, 0.75, 1.5]]), GridSpec(4, 4, stored="float32"))

    assert [[0.0]] == matrix.offsets.tolist()
    assert 0.1 == pytest.approx(float(matrix.scales[0, 0]))


@pytest.mark.parametrize("sign", [1, -1, 0])
def test_the_zero_of_an_affine_group_of_one_sign_is_stored_as_a_code(sign: int) -> None:
    weights = np.abs(np.random.default_rng(3).normal(size=(4, 64))) * sign

    assert zero_codes(round_to_nearest(weights, GridSpec(4, 32))) is not None


def test_an_affine_offset_is_a_whole_number_of_steps_to_the_bit() -> None:
    """-scale · z, which float16 could not hold."""
    matrix = round_to_nearest(np.random.default_rng(2).normal(size=(8, 64)), GridSpec(8, 16))
    zeros = np.rint(-matrix.offsets.astype(np.float64) / matrix.scales.astype(np.float64))

    assert matrix.scales.dtype == np.float16
    assert (matrix.offsets.astype(np.float64) == -matrix.scales.astype(np.float64) * zeros).all()


def test_a_tie_goes_to_the_even_code() -> None:
    exact = np.array([[0.0, 0.5, 1.5, 2.5, 3.0, 3.0]])

    assert [0, 0, 2, 2, 3, 3] == round_to_nearest(exact, GridSpec(2, 6)).codes[0].tolist()


@pytest.mark.parametrize("group", [128, 5, 0, -64])
def test_a_group_that_does_not_divide_the_columns_is_refused(group: int) -> None:
    with pytest.raises(ValueError, match=f"group is {group}, which does not divide 576 columns"):
        fit(np.ones((1, 576)), GridSpec(4, group))


@pytest.mark.parametrize("group", [16, 32, 48, 64, 96, 192, "row", "matrix"])
def test_groups_that_divide_576_columns(group: Any) -> None:
    exact = np.random.default_rng(3).normal(size=(2, 576))

    matrix = round_to_nearest(exact, GridSpec(8, group))

    assert 576 % matrix.group == 0
    np.testing.assert_allclose(matrix.dequantised(), exact, atol=float(matrix.scales.max()))


def test_every_row_or_the_matrix_has_one_scale() -> None:
    exact = np.random.default_rng(4).normal(size=(5, 8))

    assert (5, 1) == fit(exact, GridSpec(4, "row")).scales.shape
    assert 5 == len(np.unique(fit(exact, GridSpec(4, "row")).scales))
    assert 1 == len(np.unique(fit(exact, GridSpec(4, "matrix")).scales))


@pytest.mark.parametrize(("bits", "form"), [(0, "affine"), (9, "uniform"), (1, "symmetric")])
def test_bits_that_make_no_grid_are_refused(bits: int, form: Any) -> None:
    with pytest.raises(ValueError, match=f"bits is {bits}"):
        GridSpec(bits, form=form)


@pytest.mark.parametrize("form", FORMS)
def test_what_float16_cannot_reach_is_refused(form: Any) -> None:
    with pytest.raises(ValueError, match="float16 holds no scale"):
        fit(np.array([[1e7, -1e7]]), GridSpec(4, 2, form))


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        fit(np.array([[1.0, number]]), GridSpec(4, 2))


def lost(exact: Matrix, form: Any, reach: Range, bits: int = 3) -> Matrix:
    """What each group loses."""
    matrix = round_to_nearest(exact, GridSpec(bits, 8, form, reach, "float32"))
    return power_losses((matrix.dequantised() - exact).reshape(-1, 8))


@pytest.mark.parametrize("form", FORMS)
@given(exact=weights(32))
def test_a_searched_range_is_never_worse_than_the_full_one(form: Any, exact: Matrix) -> None:
    room = 1e-5 * np.abs(exact).max() ** 2.4

    assert (lost(exact, form, Searched(20)) <= lost(exact, form, Maximum()) * (1 + 1e-5) + room).all()


@pytest.mark.parametrize("form", FORMS)
def test_a_searched_range_is_better_where_there_are_outliers(form: Any) -> None:
    exact = np.random.default_rng(5).standard_t(3, (64, 32))

    assert lost(exact, form, Searched()).sum() < 0.95 * lost(exact, form, Maximum()).sum()


def test_of_equal_losses_the_widest_range_wins() -> None:
    exact = np.array([[-1.0, 1.0]])
    low, high = Searched().ends(exact, lambda low, high: np.zeros(1))

    assert ([-1.0], [1.0]) == (low.tolist(), high.tolist())


def test_a_search_tries_shares_down_to_its_least() -> None:
    tried: list[float] = []

    def losses(low: Matrix, high: Matrix) -> Matrix:
        tried.append(round(float(high[0]), 3))
        return np.ones(1)

    Searched(10, 0.5).ends(np.array([[-1.0, 1.0]]), losses)

    assert [1.0, 0.9, 0.8, 0.7, 0.6] == tried


def test_a_percentile_clips_the_rest() -> None:
    exact = np.concatenate([np.linspace(-1, 1, 101), [50.0]])[None]

    low, high = Percentile(95).ends(exact, lambda low, high: low)

    assert [-0.899] == pytest.approx(low.tolist())
    assert [0.919] == pytest.approx(high.tolist())


@pytest.mark.parametrize("reach", [lambda: Percentile(50), lambda: Percentile(101), lambda: Searched(0)])
def test_a_range_that_is_none_is_refused(reach: Any) -> None:
    with pytest.raises(ValueError, match=r"percentage|search"):
        reach()
