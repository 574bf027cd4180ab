"""SparseGPT: exact counts, patterns, blocks, zeros on grids, and what it loses beside other ways."""

from typing import Any

import numpy as np
import pytest

from model.compression.grids import GridSpec, round_to_nearest
from model.compression.hessian import conditioned, quadratic_form
from model.compression.scores import input_norms, magnitude, wanda
from model.compression.selection import Pattern, Share, Sparsity, kept
from model.compression.sparsegpt import sparsegpt
from tests.model.compression.layers import Layer, layer

HALF, TWO_OF_FOUR = Share(0.5), Pattern(2, 4)
GRIDS = [GridSpec(4, 16), GridSpec(3, 32, "symmetric"), GridSpec(8, "row", stored="float32")]


def wide() -> Layer:
    """A selection of 128 columns, and a ragged one of 32."""
    return layer(1, rows=12, columns=160, tokens=600)


def by_magnitude(case: Layer, sparsity: Sparsity) -> Any:
    return case.weights * kept(magnitude(case.weights), sparsity)


def by_wanda(case: Layer, sparsity: Sparsity) -> Any:
    return case.weights * kept(wanda(case.weights, input_norms(case.hessian)), sparsity, "row")


@pytest.mark.parametrize("sparsity", [HALF, TWO_OF_FOUR, Share(0.25), Pattern(4, 8)])
@pytest.mark.parametrize("other", [by_magnitude, by_wanda])
def test_it_loses_less_than_what_compensates_nothing(sparsity: Sparsity, other: Any) -> None:
    case = wide()

    assert case.loss(sparsegpt(case.weights, case.hessian, sparsity).weights) < case.loss(other(case, sparsity))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.777, 1.0])
def test_a_share_is_exact(share: float) -> None:
    case = wide()
    result = sparsegpt(case.weights, case.hessian, Share(share))

    assert round(share * case.weights.size) == int((result.weights == 0).sum()) == int((~result.mask).sum())


def test_a_share_is_exact_though_weights_tie() -> None:
    case = wide()
    weights = np.sign(case.weights)

    assert 960 == int((~sparsegpt(weights, np.eye(160), HALF).mask).sum())


def test_every_selection_loses_its_share() -> None:
    case = wide()
    gone = ~sparsegpt(case.weights, case.hessian, HALF).mask

    assert [64 * 12, 16 * 12] == [int(gone[:, :128].sum()), int(gone[:, 128:].sum())]


@pytest.mark.parametrize(("zeros", "of"), [(2, 4), (1, 2), (4, 8), (3, 16)])
def test_a_pattern_is_exact_in_every_group_of_neighbours(zeros: int, of: int) -> None:
    case = wide()
    result = sparsegpt(case.weights, case.hessian, Pattern(zeros, of))

    assert {zeros} == set((result.weights == 0).reshape(-1, of).sum(axis=1).tolist())


@pytest.mark.parametrize(
    ("sparsity", "blocks"),
    [(HALF, (128, 256)), (TWO_OF_FOUR, (4, 8, 64, 128)), (np.arange(1920).reshape(12, 160) % 3 > 0, (1, 7, 8, 128))],
)
@pytest.mark.parametrize("spec", [None, *GRIDS])
def test_blocks_change_nothing(sparsity: Any, blocks: tuple[int, ...], spec: GridSpec | None) -> None:
    case = wide()
    whole = sparsegpt(case.weights, case.hessian, sparsity, spec=spec, block=160)

    for block in blocks:
        result = sparsegpt(case.weights, case.hessian, sparsity, spec=spec, block=block)

        assert (whole.mask == result.mask).all()
        np.testing.assert_allclose(result.weights, whole.weights, atol=1e-10)


def test_its_loss_is_the_quadratic_form_of_its_error() -> None:
    case = wide()
    result = sparsegpt(case.weights, case.hessian, HALF)
    expected = quadratic_form(result.weights - case.weights, conditioned(case.hessian).matrix)

    assert result.loss == pytest.approx(expected, rel=1e-9)


def test_a_given_mask_is_kept() -> None:
    case = wide()
    mask = kept(magnitude(case.weights), TWO_OF_FOUR)

    assert (mask == (sparsegpt(case.weights, case.hessian, mask).weights != 0)).all()


def test_by_activity_the_columns_come_back_in_their_own_order() -> None:
    case = wide()
    mask = kept(magnitude(case.weights), HALF)
    result = sparsegpt(case.weights, case.hessian, mask, by_activity=True)

    assert (mask == (result.weights != 0)).all()
    assert case.loss(result.weights) < case.loss(case.weights * mask)


@pytest.mark.parametrize("sparsity", [HALF, TWO_OF_FOUR])
@pytest.mark.parametrize("spec", GRIDS)
def test_on_a_grid_zeros_are_exact_and_the_rest_is_on_it(spec: GridSpec, sparsity: Sparsity) -> None:
    case = wide()
    result = sparsegpt(case.weights, case.hessian, sparsity, spec=spec)

    assert result.grid is not None
    assert result.grid.dequantised().astype(np.float64).tolist() == result.weights.tolist()
    assert (result.weights[~result.mask] == 0).all()
    assert 960 == int((~result.mask).sum())


@pytest.mark.parametrize("sparsity", [HALF, TWO_OF_FOUR])
@pytest.mark.parametrize("spec", GRIDS)
def test_together_they_lose_less_than_pruning_and_then_rounding(spec: GridSpec, sparsity: Sparsity) -> None:
    case = wide()
    pruned = sparsegpt(case.weights, case.hessian, sparsity)
    rounded = round_to_nearest(pruned.weights, spec, pruned.mask).dequantised()

    assert case.loss(sparsegpt(case.weights, case.hessian, sparsity, spec=spec).weights) < case.loss(rounded)


def test_dead_columns_go_first_and_are_counted() -> None:
    case = wide()
    hessian = case.hessian.copy()
    hessian[5, :] = hessian[:, 5] = 0.0
    result = sparsegpt(case.weights, hessian, HALF)

    assert 1 == result.dead_columns
    assert not result.mask[:, 5].any()


def test_where_no_dampening_helps_it_prunes_by_magnitude_and_says_so() -> None:
    case = wide()
    result = sparsegpt(case.weights, np.full((160, 160), np.nan), TWO_OF_FOUR)

    assert result.fell_back
    assert (None, None) == (result.loss, result.dampening)
    assert by_magnitude(case, TWO_OF_FOUR).tolist() == result.weights.tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spec": GridSpec(4, 16, "uniform")}, "no exact zero"),
        ({"spec": GridSpec(4, 16, "minimum")}, "no exact zero"),
        ({"sparsity": Pattern(2, 3)}, "no whole number of 3 neighbours"),
        ({"sparsity": TWO_OF_FOUR, "block": 6}, "block is 6, no whole number of 4 columns"),
        ({"block": 64}, "block is 64, no whole number of 128 columns"),
        ({"sparsity": TWO_OF_FOUR, "by_activity": True}, "cannot be swept by activity"),
        ({"sparsity": np.ones((3, 3), np.bool_)}, "mask is"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    case = wide()
    options: dict[str, Any] = {"sparsity": HALF} | changes
    with pytest.raises(ValueError, match=message):
        sparsegpt(case.weights, case.hessian, options.pop("sparsity"), **options)
