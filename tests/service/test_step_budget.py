"""Time turned into rows."""

import random

import pytest

from service.step_budget import EXTRA_ROW, FIRST, LEAST, MOST, RowCost, StepBudget


def taught(fixed: float, per_row: float) -> StepBudget:
    budget = StepBudget(decoding_s=0.06, prefilling_s=0.3)
    noise = random.Random(0)
    for _ in range(40):
        rows = noise.choice((1, 2, 8, 20, 64))
        budget.observe(rows, (fixed + per_row * rows) * noise.uniform(0.95, 1.05))
    return budget


def test_before_anything_was_measured_a_modest_chunk_is_granted() -> None:
    assert StepBudget().prefill_rows(0) == FIRST


def test_rows_fill_the_time_that_decoding_leaves() -> None:
    """0.02 s and 1 ms a row: 60 ms hold 40 rows, of which 8 decode."""
    rows = taught(0.02, 0.001).prefill_rows(decode_rows=8)

    assert 25 <= rows <= 40


def test_alone_a_prompt_gets_the_longer_time() -> None:
    rows = taught(0.02, 0.001).prefill_rows(decode_rows=0)

    assert 240 <= rows <= 320


def test_however_slow_the_steps_every_prompt_moves_on() -> None:
    assert taught(10.0, 1.0).prefill_rows(decode_rows=4) == LEAST


def test_however_fast_the_steps_no_chunk_is_without_bound() -> None:
    assert taught(1e-6, 1e-7).prefill_rows(decode_rows=0) == MOST


def test_steps_of_one_size_lay_all_cost_to_the_rows() -> None:
    budget = StepBudget()
    for _ in range(10):
        budget.observe(1, 0.002)

    assert budget.prefill_rows(decode_rows=1) == 29


def costs(*steps: tuple[int, float]) -> RowCost:
    cost = RowCost()
    for rows, seconds in steps:
        cost.observe(rows, seconds)
    return cost


def test_a_row_cost_is_nothing_before_it_was_measured() -> None:
    assert not RowCost()


def test_a_clock_that_stands_still_measures_nothing() -> None:
    assert not costs((1, 0.0))


def test_the_cost_of_rows_is_the_line_through_what_was_measured() -> None:
    cost = costs(*[(1, 0.010), (9, 0.018)] * 20)

    assert 0.010 == pytest.approx(cost(1), rel=0.02)
    assert 0.014 == pytest.approx(cost(5), rel=0.02)
    assert 0.018 == pytest.approx(cost(9), rel=0.02)


def test_steps_of_one_size_are_given_a_usual_slope() -> None:
    cost = costs(*[(1, 0.010)] * 40)

    assert 0.010 == pytest.approx(cost(1))
    assert 0.010 * (1 + EXTRA_ROW) == pytest.approx(cost(2))


def test_what_rows_cost_is_remembered_while_steps_have_one_size() -> None:
    cost = costs(*[(1, 0.010), (9, 0.090)] * 10, *[(1, 0.010)] * 100)

    assert cost(2) > 0.018


def test_a_cost_that_was_measured_long_ago_is_doubted() -> None:
    cost = costs(*[(1, 0.010), (9, 0.090)] * 10, *[(1, 0.010)] * 5000)

    assert 0.0115 == pytest.approx(cost(2), rel=0.02)


def test_a_step_that_was_held_up_counts_little() -> None:
    cost = costs(*[(1, 0.010)] * 40, (1, 5.0))

    assert cost(1) < 0.012


def test_more_rows_never_cost_less() -> None:
    cost = costs(*[(1, 0.020), (4, 0.010)] * 10)

    assert cost(1) < cost(2) < cost(8)
