"""Columns and neurons that go, what the rest becomes."""

import numpy as np
import pytest

from model.compression.hessian import Matrix, conditioned, quadratic_form
from model.compression.obs import Indices, column_surgery, compensated
from model.compression.structured import narrowed, removal_count, rows_that_stay
from tests.model.compression.layers import layer

SMALL = layer(3, rows=6, columns=24)
DAMPED = conditioned(SMALL.hessian)


def widened(weights: Matrix, columns: Indices) -> Matrix:
    whole = np.zeros_like(SMALL.weights)
    whole[:, columns] = weights
    return whole


@pytest.mark.parametrize("unit", [1, 4])
def test_the_rest_is_the_closed_form_in_every_row(unit: int) -> None:
    result = narrowed(SMALL.weights, DAMPED.inverse(), 12 // unit, unit=unit)

    for row, left in zip(SMALL.weights, result.weights, strict=True):
        best = compensated(row, DAMPED.inverse(), result.removed)

        np.testing.assert_allclose(left, best[result.kept], atol=1e-12)


@pytest.mark.parametrize("unit", [1, 4])
def test_losses_add_up_to_the_quadratic_form(unit: int) -> None:
    result = narrowed(SMALL.weights, DAMPED.inverse(), 12 // unit, unit=unit)
    error = widened(result.weights, result.kept) - SMALL.weights

    assert quadratic_form(error, DAMPED.matrix) == pytest.approx(result.losses.sum(), rel=1e-9)


@pytest.mark.parametrize("unit", [1, 2, 8])
def test_whole_units_go_and_the_matrix_is_narrower(unit: int) -> None:
    result = narrowed(SMALL.weights, DAMPED.inverse(), 2, unit=unit)

    assert (6, 24 - 2 * unit) == result.weights.shape
    assert sorted(result.kept.tolist() + result.removed.tolist()) == list(range(24))
    assert {unit} == {len([c for c in result.removed if c // unit == u]) for u in set(result.removed // unit)}


@pytest.mark.parametrize("unit", [1, 4])
def test_the_first_unit_to_go_is_the_one_whose_removal_costs_least(unit: int) -> None:
    def loss(start: int) -> float:
        gone = np.arange(start, start + unit)
        rows = np.array([compensated(row, DAMPED.inverse(), gone) for row in SMALL.weights])
        return quadratic_form(rows - SMALL.weights, DAMPED.matrix)

    losses = {start: loss(start) for start in range(0, 24, unit)}
    result = column_surgery(SMALL.weights, DAMPED.inverse(), 1, unit=unit)

    assert min(losses, key=losses.__getitem__) == result.removed[0]
    assert min(losses.values()) == pytest.approx(result.losses[0], rel=1e-9)


def test_a_narrower_block_computes_what_the_masked_one_does() -> None:
    rng = np.random.default_rng(4)
    gate, up, x = rng.normal(size=(24, 5)), rng.normal(size=(24, 5)), rng.normal(size=5)
    down = narrowed(SMALL.weights, DAMPED.inverse(), 8)
    stay = rows_that_stay(down.kept, unit=1, rows=1)
    masked = column_surgery(SMALL.weights, DAMPED.inverse(), 8)

    def neurons(some_gate: Matrix, some_up: Matrix) -> Matrix:
        gated = some_gate @ x
        result: Matrix = gated / (1 + np.exp(-gated)) * (some_up @ x)
        return result

    assert (6, 16) == down.weights.shape
    np.testing.assert_allclose(
        down.weights @ neurons(gate[stay], up[stay]), masked.weights @ neurons(gate, up), atol=1e-12
    )


def mixed_values(query: Matrix, key: Matrix, value: Matrix, x: Matrix) -> Matrix:
    """The inputs of output [query heads · 4] at the last of several positions x [positions, 6]; heads of width 4."""
    heads = len(key) // 4
    queries = (query @ x[-1]).reshape(heads, -1, 4)
    keys, values = ((x @ rows.T).reshape(len(x), heads, 4) for rows in (key, value))
    scores = np.exp(np.einsum("hqw,phw->hqp", queries, keys) / 2)
    mixed: Matrix = np.einsum("hqp,phw->hqw", scores / scores.sum(axis=-1, keepdims=True), values).reshape(-1)
    return mixed


def test_attention_with_fewer_heads_computes_what_the_masked_one_does() -> None:
    """Three key heads, two query heads to each."""
    rng = np.random.default_rng(6)
    query, key, value = (rng.normal(size=(rows, 6)) for rows in (24, 12, 12))
    x = rng.normal(size=(5, 6))
    output = narrowed(SMALL.weights, DAMPED.inverse(), 1, unit=8)
    masked = column_surgery(SMALL.weights, DAMPED.inverse(), 1, unit=8)
    of_queries = rows_that_stay(output.kept, unit=8, rows=8)
    of_keys = rows_that_stay(output.kept, unit=8, rows=4)

    assert (16, 8) == (len(of_queries), len(of_keys))
    np.testing.assert_allclose(
        output.weights @ mixed_values(query[of_queries], key[of_keys], value[of_keys], x),
        masked.weights @ mixed_values(query, key, value, x),
        atol=1e-12,
    )


def test_narrowing_loses_less_than_dropping_the_same_columns() -> None:
    result = narrowed(SMALL.weights, DAMPED.inverse(), 12)
    dropped = widened(SMALL.weights[:, result.kept], result.kept)

    assert SMALL.loss(widened(result.weights, result.kept)) < SMALL.loss(dropped)


@pytest.mark.parametrize(("count", "unit"), [(24, 1), (-1, 1), (3, 8), (1, 5), (0, 0)])
def test_what_cannot_go_is_refused(count: int, unit: int) -> None:
    with pytest.raises(ValueError, match="unit"):
        narrowed(SMALL.weights, DAMPED.inverse(), count, unit=unit)


def test_columns_that_cannot_go_are_not_taken_instead() -> None:
    with pytest.raises(ValueError, match="only 1 of 2 units"):
        narrowed(np.ones((2, 3)), np.diag([1.0, -1.0, 0.0]), 2)


def test_a_unit_without_a_positive_inverse_stays() -> None:
    inverse = np.diag([1.0, -1.0, 2.0, 2.0])

    assert [2, 3] == column_surgery(np.ones((2, 4)), inverse, 2, unit=2).removed.tolist()


@pytest.mark.parametrize(("share", "removed"), [(0.5, 768), (0.0, 0), (0.3, 448), (1.0, 1504)])
def test_what_is_kept_is_a_multiple_of_32(share: float, removed: int) -> None:
    assert removed == removal_count(1536, share)


def test_a_share_or_a_width_that_leaves_no_multiple_is_refused() -> None:
    for units, share in ((1530, 0.5), (1536, 1.5)):
        with pytest.raises(ValueError, match="cannot leave a multiple"):
            removal_count(units, share)
