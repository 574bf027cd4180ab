"""Hessians: how they add up, how they are dampened, and their factor."""

import numpy as np
import pytest

from model.compression.hessian import (
    HessianSum,
    NotPositiveDefinite,
    conditioned,
    quadratic_form,
    upper_factor,
)
from tests.model.compression.layers import layer


def test_a_hessian_is_twice_the_mean_outer_product() -> None:
    sums = HessianSum(2)
    sums.add(np.array([[1.0, 2.0], [3.0, 4.0]], np.float32))

    assert [[10.0, 14.0], [14.0, 20.0]] == sums.mean().tolist()


def test_batches_add_up_to_the_whole() -> None:
    inputs = np.random.default_rng(0).integers(-8, 9, (30, 5)).astype(np.float64)
    whole, parts = HessianSum(5), HessianSum(5)
    whole.add(inputs)
    for start in range(0, 30, 7):
        parts.add(inputs[start : start + 7])

    assert whole.mean().tolist() == parts.mean().tolist()
    assert 30 == parts.tokens


def test_single_precision_inputs_are_added_in_double() -> None:
    sums = HessianSum(1)
    sums.add(np.array([[4096.0]] + [[0.25]] * 1000, np.float32))

    assert 2 * (4096.0**2 + 62.5) / 1001 == sums.mean()[0, 0]


@pytest.mark.parametrize("shape", [(3,), (3, 4), (1, 3, 5)])
def test_inputs_of_another_width_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="inputs are"):
        HessianSum(5).add(np.zeros(shape))


def test_no_inputs_make_no_hessian() -> None:
    with pytest.raises(ValueError, match="no inputs"):
        HessianSum(3).mean()


def test_the_factor_of_a_matrix_of_whole_numbers() -> None:
    inverse = np.array([[4.0, 2.0, 6.0], [2.0, 5.0, 7.0], [6.0, 7.0, 22.0]])

    upper = upper_factor(np.linalg.inv(inverse))

    assert upper is not None
    np.testing.assert_allclose(upper, [[2, 1, 3], [0, 2, 2], [0, 0, 3]], atol=1e-12)


def test_pivots_are_the_inverse_diagonals_of_what_remains() -> None:
    hessian = conditioned(layer().hessian)
    expected = [np.linalg.inv(hessian.matrix[i:, i:])[0, 0] for i in range(64)]

    np.testing.assert_allclose(np.diag(hessian.upper) ** 2, expected, rtol=1e-10)


def test_the_inverse_is_the_inverse() -> None:
    hessian = conditioned(layer().hessian)

    np.testing.assert_allclose(hessian.inverse() @ hessian.matrix, np.eye(64), atol=1e-9)


def test_dampening_adds_a_share_of_the_mean_diagonal() -> None:
    assert [[1.2, 0.0], [0.0, 3.2]] == conditioned(np.diag([1.0, 3.0]), 0.1).matrix.tolist()


def test_a_dead_column_counts_as_one() -> None:
    hessian = conditioned(np.diag([0.0, 3.0]), 0.1)

    assert [True, False] == hessian.dead.tolist()
    assert [1.2, 3.2] == pytest.approx(np.diag(hessian.matrix).tolist())


@pytest.mark.parametrize(
    ("least", "asked", "taken"), [(-0.05, 0.01, 0.1), (-0.5, 0.01, 1.0), (-0.005, 0.0, 0.01), (1.0, 0.0, 0.0)]
)
def test_dampening_grows_tenfold_until_it_is_enough(least: float, asked: float, taken: float) -> None:
    """The mean of the diagonal is 1, so the least eigenvalue says how much it takes."""
    assert taken == pytest.approx(conditioned(np.diag([2 - least, least]), asked).dampening)


@pytest.mark.parametrize("hessian", [np.diag([4.0, -2.0]), np.full((2, 2), np.nan), np.diag([np.inf, 1.0])])
def test_what_no_dampening_helps_is_refused(hessian: np.ndarray) -> None:
    with pytest.raises(NotPositiveDefinite):
        conditioned(hessian)


@pytest.mark.parametrize("dampening", [-0.1, np.nan, np.inf])
def test_a_dampening_that_is_none_is_refused(dampening: float) -> None:
    with pytest.raises(ValueError, match="dampening is"):
        conditioned(np.eye(2), dampening)


def test_the_quadratic_form_is_the_squared_error_of_outputs() -> None:
    case = layer()
    error = np.random.default_rng(1).normal(size=case.weights.shape)
    outputs = ((error @ case.inputs.T) ** 2).sum() / len(case.inputs)

    assert quadratic_form(error, case.hessian) == pytest.approx(outputs)
