"""Which weights go: exact counts, ties by index, shares of a matrix or of rows, and patterns of neighbours."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.compression.scores import brain_damage, input_norms, wanda
from model.compression.selection import Pattern, Share, kept, smallest


def tied(seed: int, rows: int = 4, columns: int = 12) -> np.ndarray:
    """Scores of three values, so nearly all tie."""
    return np.random.default_rng(seed).integers(0, 3, (rows, columns)).astype(np.float64)


@given(seed=st.integers(0, 99), share=st.floats(0, 1))
def test_a_share_of_a_matrix_is_exact_though_scores_tie(seed: int, share: float) -> None:
    assert round(48 * share) == int((~kept(tied(seed), Share(share))).sum())


@given(seed=st.integers(0, 99), share=st.floats(0, 1))
def test_a_share_of_rows_is_exact_in_each(seed: int, share: float) -> None:
    assert [round(12 * share)] * 4 == (~kept(tied(seed), Share(share), "row")).sum(axis=1).tolist()


@given(seed=st.integers(0, 99), pattern=st.sampled_from([(0, 4), (1, 2), (2, 4), (1, 4), (3, 6), (4, 4)]))
def test_a_pattern_is_exact_in_every_group_of_neighbours(seed: int, pattern: tuple[int, int]) -> None:
    zeros, of = pattern
    mask = kept(tied(seed), Pattern(zeros, of))

    assert {zeros} == set((~mask).reshape(-1, of).sum(axis=1).tolist())


def test_the_lowest_go_and_of_equal_scores_the_first() -> None:
    scores = np.array([[2.0, 1.0, 1.0, 0.0], [1.0, 1.0, 3.0, 1.0]])

    assert [[True, False, True, False], [False, False, True, True]] == kept(scores, Pattern(2, 4)).tolist()
    assert [[True, False, False, False], [True, True, True, True]] == kept(scores, Share(3 / 8)).tolist()


def test_two_of_four_means_two_zeros_and_one_of_four_means_one() -> None:
    assert [[True, True, True, False]] == kept(np.array([[4.0, 3.0, 2.0, 1.0]]), Pattern(1, 4)).tolist()


def test_more_than_there_are_is_all() -> None:
    assert [1, 0] == smallest(np.array([2.0, 1.0]), 5).tolist()
    assert [] == smallest(np.array([2.0, 1.0]), -1).tolist()


@pytest.mark.parametrize("asked", [lambda: Share(-0.1), lambda: Share(1.1), lambda: Share(np.nan)])
def test_a_share_outside_nought_to_one_is_refused(asked: Any) -> None:
    with pytest.raises(ValueError, match="share is"):
        asked()


@pytest.mark.parametrize(("zeros", "of"), [(-1, 4), (5, 4), (0, 0)])
def test_a_pattern_that_does_not_exist_is_refused(zeros: int, of: int) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        Pattern(zeros, of)


def test_a_ragged_last_group_of_neighbours_is_refused() -> None:
    with pytest.raises(ValueError, match="10 columns are no whole number of 4"):
        kept(np.ones((2, 10)), Pattern(2, 4))


def test_wanda_is_magnitude_times_the_norm_of_the_input() -> None:
    inputs = np.array([[3.0, 1.0], [4.0, 0.0]])
    norms = input_norms(inputs.T @ inputs)

    assert [[10.0, 3.0]] == wanda(np.array([[-2.0, 3.0]]), norms).tolist()


def test_wanda_compares_within_a_row() -> None:
    """A row of small weights loses as many as one of great weights."""
    weights = np.array([[1.0, 2.0, 3.0, 4.0], [100.0, 200.0, 300.0, 400.0]])

    assert [2, 2] == (~kept(wanda(weights, np.ones(4)), Share(0.5), "row")).sum(axis=1).tolist()


def test_brain_damage_is_half_of_w_squared_times_the_diagonal() -> None:
    assert [[4.5, 8.0]] == brain_damage(np.array([[3.0, -2.0]]), np.array([[1.0, 9.0], [9.0, 4.0]])).tolist()
