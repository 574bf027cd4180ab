"""The best values for what was kept: weights on a mask, and scales on a grid."""

from typing import Any

import numpy as np
import pytest

from model.compression.grids import GridSpec, round_to_nearest
from model.compression.hessian import conditioned, quadratic_form
from model.compression.obs import compensated
from model.compression.refit import refitted, rescaled, row_scales
from model.compression.scores import magnitude
from model.compression.selection import Share, kept
from tests.model.compression.layers import layer

SMALL = layer(3, rows=6, columns=24)
DAMPED = conditioned(SMALL.hessian)


def test_refitted_weights_are_the_closed_form() -> None:
    mask = kept(magnitude(SMALL.weights), Share(0.5))
    fitted = refitted(SMALL.weights, DAMPED.matrix, mask)

    for row, keep, found in zip(SMALL.weights, mask, fitted, strict=True):
        np.testing.assert_allclose(found, compensated(row, DAMPED.inverse(), np.flatnonzero(~keep)), atol=1e-11)


def test_a_row_of_which_nothing_is_kept_is_zero() -> None:
    assert not refitted(SMALL.weights, DAMPED.matrix, np.zeros(SMALL.weights.shape, np.bool_)).any()


def test_row_scales_lose_least_of_all_factors() -> None:
    coarse = round_to_nearest(SMALL.weights, GridSpec(2, "row")).dequantised().astype(np.float64)
    best = row_scales(SMALL.weights, coarse, DAMPED.matrix)[:, None]
    losses = [
        quadratic_form(factors * coarse - SMALL.weights, DAMPED.matrix)
        for factors in (best, np.ones_like(best), best * 1.01, best * 0.99)
    ]

    assert min(losses) == losses[0]


def test_a_row_of_zeros_keeps_its_scale() -> None:
    assert [1.0] * 6 == row_scales(SMALL.weights, np.zeros_like(SMALL.weights), DAMPED.matrix).tolist()


@pytest.mark.parametrize("stored", ["float16", "float32"])
@pytest.mark.parametrize("form", ["affine", "symmetric", "uniform", "minimum"])
def test_rescaling_a_grid_lowers_the_loss_and_moves_no_code(form: Any, stored: Any) -> None:
    coarse = round_to_nearest(SMALL.weights, GridSpec(2, 8, form, stored=stored))
    better = rescaled(coarse, SMALL.weights, DAMPED.matrix)
    losses = [quadratic_form(some.dequantised() - SMALL.weights, DAMPED.matrix) for some in (coarse, better)]

    assert losses[1] < losses[0]
    assert coarse.codes is better.codes
    assert (coarse.scales.dtype, coarse.offsets.dtype) == (better.scales.dtype, better.offsets.dtype)


@pytest.mark.parametrize("stored", ["float16", "float32"])
@pytest.mark.parametrize("form", ["affine", "symmetric"])
def test_pruned_weights_stay_zero_when_a_grid_is_rescaled(form: Any, stored: Any) -> None:
    mask = kept(magnitude(SMALL.weights), Share(0.5))
    coarse = round_to_nearest(SMALL.weights, GridSpec(3, 8, form, stored=stored), mask)
    better = rescaled(coarse, SMALL.weights, DAMPED.matrix)

    assert better.scales.tolist() != coarse.scales.tolist()
    assert (better.dequantised()[~mask] == 0).all()


def test_no_row_is_worse_for_rescaling() -> None:
    """Where the factor is nearly 1, rounding it to float16 could be."""
    fine = round_to_nearest(SMALL.weights, GridSpec(8, 8))
    better = rescaled(fine, SMALL.weights, DAMPED.matrix)
    losses = [
        [quadratic_form(row[None], DAMPED.matrix) for row in some.dequantised() - SMALL.weights]
        for some in (fine, better)
    ]

    assert all(after <= before for before, after in zip(*losses, strict=True))
