"""GPTQ: what it chooses, that blocks change nothing, and what it does where a Hessian is no help."""

from typing import Any

import numpy as np
import pytest

from model.compression.gptq import gptq
from model.compression.grids import GridSpec, round_to_nearest
from model.compression.hessian import conditioned, quadratic_form
from model.compression.ranges import Searched
from tests.model.compression.layers import layer

SPECS = [
    GridSpec(4, 16),
    GridSpec(3, 16, "symmetric"),
    GridSpec(4, "row", "uniform"),
    GridSpec(2, 32, "minimum"),
    GridSpec(3, "matrix"),
    GridSpec(3, 16, range=Searched(20)),
]


@pytest.mark.parametrize("by_activity", [False, True])
@pytest.mark.parametrize("spec", SPECS)
def test_it_loses_less_than_rounding_to_nearest(spec: GridSpec, by_activity: bool) -> None:
    case = layer()
    result = gptq(case.weights, case.hessian, spec, by_activity=by_activity).matrix

    assert case.loss(result.dequantised()) < case.loss(round_to_nearest(case.weights, spec).dequantised())


@pytest.mark.parametrize("by_activity", [False, True])
@pytest.mark.parametrize("block", [1, 7, 8, 32, 64, 1000])
def test_blocks_change_nothing(block: int, by_activity: bool) -> None:
    case, spec = layer(), GridSpec(4, 16)
    whole = gptq(case.weights, case.hessian, spec, by_activity=by_activity, block=64)
    result = gptq(case.weights, case.hessian, spec, by_activity=by_activity, block=block)

    assert whole.matrix.codes.tolist() == result.matrix.codes.tolist()
    assert whole.loss == pytest.approx(result.loss, rel=1e-10)


@pytest.mark.parametrize("by_activity", [False, True])
def test_its_loss_is_the_quadratic_form_of_its_error(by_activity: bool) -> None:
    case = layer()
    result = gptq(case.weights, case.hessian, GridSpec(3, 16), by_activity=by_activity)
    error = result.matrix.dequantised() - case.weights

    assert result.loss == pytest.approx(quadratic_form(error, conditioned(case.hessian).matrix), rel=1e-9)


@pytest.mark.parametrize("by_activity", [False, True])
def test_uncorrelated_inputs_leave_nothing_to_compensate(by_activity: bool) -> None:
    case, spec = layer(), GridSpec(4, 16)
    result = gptq(case.weights, np.diag(np.arange(1.0, 65.0)), spec, by_activity=by_activity)

    assert round_to_nearest(case.weights, spec).codes.tolist() == result.matrix.codes.tolist()


def test_groups_are_those_of_the_weights_as_given() -> None:
    """So the order of the sweep leaves no trace in what is stored."""
    case, spec = layer(), GridSpec(4, 16)
    result = gptq(case.weights, case.hessian, spec, by_activity=True).matrix
    nearest = round_to_nearest(case.weights, spec)

    assert nearest.scales.tolist() == result.scales.tolist()
    assert nearest.offsets.tolist() == result.offsets.tolist()


def test_the_first_column_is_rounded_to_nearest_and_the_others_make_up_for_it() -> None:
    case, spec = layer(columns=2), GridSpec(2, "row", "uniform")
    hessian = np.array([[2.0, 1.0], [1.0, 2.0]])
    result = gptq(case.weights, hessian, spec, dampening=0.0, by_activity=False).matrix
    nearest = round_to_nearest(case.weights, spec)
    errors = case.weights[:, 0] - nearest.dequantised()[:, 0]
    moved = np.stack([case.weights[:, 0], case.weights[:, 1] + errors / 2], axis=1)
    levels = nearest.dequantised()

    assert levels[:, 0].tolist() == result.dequantised()[:, 0].tolist()
    steps = result.scales[:, 0].astype(np.float64)
    reach = -result.offsets[:, 0].astype(np.float64)
    expected = np.clip(moved[:, 1], -reach, reach)
    assert (np.abs(result.dequantised()[:, 1] - expected) <= steps / 2 * 1.001).all()


def test_dead_columns_become_zero_and_are_counted() -> None:
    case = layer()
    hessian = case.hessian.copy()
    hessian[5, :] = hessian[:, 5] = 0.0
    result = gptq(case.weights, hessian, GridSpec(4, 16))

    assert 1 == result.dead_columns
    assert (result.matrix.dequantised()[:, 5] == 0).all()


def test_dampening_that_had_to_grow_is_reported() -> None:
    result = gptq(np.ones((1, 2)), np.diag([2.05, -0.05]), GridSpec(4, 2))

    assert 0.1 == pytest.approx(result.dampening)
    assert not result.fell_back


@pytest.mark.parametrize("hessian", [np.full((64, 64), np.nan), np.diag([-2.0] * 63 + [1.0])])
def test_where_no_dampening_helps_it_rounds_to_nearest_and_says_so(hessian: Any) -> None:
    case, spec = layer(), GridSpec(4, 16)
    result = gptq(case.weights, hessian, spec)

    assert result.fell_back
    assert (None, None) == (result.loss, result.dampening)
    assert round_to_nearest(case.weights, spec).codes.tolist() == result.matrix.codes.tolist()


def test_neither_weights_nor_hessian_are_changed() -> None:
    case = layer()
    before = (case.weights.tolist(), case.hessian.tolist())
    gptq(case.weights, case.hessian, GridSpec(4, 16))

    assert before == (case.weights.tolist(), case.hessian.tolist())
