"""What follows from the mathematics of pruning: closed forms, optimality, sweeps, and matrices beyond one row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.compression.hessian import Matrix, Vector, downdate, quadratic_form
from model.compression.matrix import Mask
from model.compression.obs import brain_compression, compensated, removal_loss, surgery
from model.compression.refit import refitted
from model.compression.selection import Share
from model.compression.sparsegpt import sparsegpt
from model.studies.obs_correlation import SHARED
from tests.claims.trials import HALF, WIDTH, trial

EXACT = 1e-12


@given(seed=st.integers(0, 20), shared=st.sampled_from(SHARED), count=st.integers(1, 15))
def test_the_closed_form_is_what_surgery_reaches(seed: int, shared: float, count: int) -> None:
    """Survivors are w - H⁻¹[:,P] (H⁻¹[P,P])⁻¹ w_P, and the losses of the steps add up to ½ w_Pᵀ (H⁻¹[P,P])⁻¹ w_P."""
    case = trial(seed, shared, 16)
    result = surgery(case.weights, case.inverse, count)
    closed = compensated(case.weights, case.inverse, result.removed)
    loss = removal_loss(case.weights, case.inverse, result.removed)

    np.testing.assert_allclose(result.weights[0], closed, atol=EXACT)
    assert loss == pytest.approx(result.losses.sum(), rel=EXACT)
    assert loss == pytest.approx(quadratic_form((closed - case.weights)[None], case.hessian), rel=1e-10)


def test_the_closed_form_does_not_hang_on_the_order_of_removal() -> None:
    case = trial(6, 0.9)
    removed = surgery(case.weights, case.inverse, HALF).removed

    backwards = compensated(case.weights, case.inverse, removed[::-1])

    np.testing.assert_allclose(backwards, compensated(case.weights, case.inverse, removed), atol=EXACT)


@given(seed=st.integers(0, 2**32))
def test_no_other_weights_with_the_same_zeros_lose_less(seed: int) -> None:
    """Optimality on a fixed mask."""
    case, rng = trial(7, 0.7, 16), np.random.default_rng(seed)
    removed = np.flatnonzero(rng.random(16) < 0.5)
    best = compensated(case.weights, case.inverse, removed)
    other = best + rng.normal(0, 10.0 ** rng.uniform(-4, 0), 16)
    other[removed] = 0.0

    losses = [quadratic_form((row - case.weights)[None], case.hessian) for row in (best, other)]

    assert losses[0] <= losses[1] + EXACT


def by_downdates_to_the_right(weights: Vector, inverse: Matrix, mask: Mask) -> Vector:
    """From the first column to the last: a removed one moves those to its right; each is then frozen."""
    current, inverse = weights.copy(), inverse.copy()
    for q, keep in enumerate(mask):
        if not keep:
            current -= current[q] / inverse[q, q] * inverse[:, q]
            current[q] = 0.0
        downdate(inverse, np.array([q]))
    return current


@pytest.mark.parametrize("shared", SHARED)
def test_a_sweep_is_surgery_restricted_to_the_columns_on_the_right(shared: float) -> None:
    """SparseGPT with U equals repeated R12 on what lies to the right; its loss is at least the closed form's."""
    case = trial(8, shared)
    mask = np.random.default_rng(1).random(WIDTH) < 0.5
    result = sparsegpt(case.weights[None], case.hessian, mask[None], dampening=0.0)

    np.testing.assert_allclose(
        result.weights[0], by_downdates_to_the_right(case.weights, case.inverse, mask), atol=1e-11
    )
    assert result.loss is not None
    assert result.loss >= removal_loss(case.weights, case.inverse, np.flatnonzero(~mask)) - EXACT


def test_a_row_of_a_matrix_is_as_the_row_alone() -> None:
    """Beyond one row: with a fixed mask, the rows of SparseGPT do not know of each other."""
    case, rng = trial(9, 0.7), np.random.default_rng(2)
    weights, mask = rng.normal(size=(5, WIDTH)), rng.random((5, WIDTH)) < 0.5
    together = sparsegpt(weights, case.hessian, mask).weights

    for row in range(5):
        alone = sparsegpt(weights[row : row + 1], case.hessian, mask[row : row + 1]).weights[0]

        np.testing.assert_allclose(together[row], alone, atol=EXACT)


def test_brain_compression_is_surgery_on_every_row() -> None:
    """Beyond one row: each row is what surgery makes of it alone, and the count of all rows is exact."""
    case, weights = trial(10, 0.7, 16), np.random.default_rng(3).normal(size=(4, 16))
    pruned, mask = brain_compression(weights, case.inverse, Share(0.5))

    assert 32 == int((~mask).sum()) == int((pruned == 0).sum())
    for row in range(4):
        alone = surgery(weights[row], case.inverse, int((~mask[row]).sum()))

        np.testing.assert_allclose(pruned[row], alone.weights[0], atol=EXACT)


def test_refitting_what_remains_lowers_the_loss_and_keeps_the_mask() -> None:
    """Beyond no retraining: the closed form on the mask that magnitude chose."""
    case = trial(11, 0.9)
    pruned = case.by_magnitude(HALF)[None]
    fitted = refitted(case.weights[None], case.hessian, pruned != 0)

    assert quadratic_form(fitted - case.weights, case.hessian) < quadratic_form(pruned - case.weights, case.hessian)
    assert (pruned == 0).tolist() == (fitted == 0).tolist()
