"""The study of temperature says of a row what the theorem says of it."""

from math import log

import numpy as np
import pytest

from model.studies.temperature import EXAMPLE, study
from tests.reference import sampling as reference


def row() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.random.default_rng(3).normal(0, 2, 50).astype(np.float32)


def test_the_likeliest_tokens_are_listed_in_their_order() -> None:
    logits = row()

    found = study(logits, [0.7], listed=4)

    assert tuple(reference.ranking(logits.tolist())[:4]) == found.token_ids
    expected = [reference.softmax(logits.tolist(), 0.7)[token] for token in found.token_ids]
    assert pytest.approx(expected, rel=1e-12) == found.points[0].probabilities


def test_no_more_tokens_are_listed_than_there_are() -> None:
    assert (0, 1, 2) == study(np.array(EXAMPLE, np.float32), [1.0]).token_ids


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_the_slope_is_the_variance_over_the_cube(temperature: float) -> None:
    p = np.array(reference.softmax(row().tolist(), temperature))
    z = row().astype(np.float64)

    (point,) = study(row(), [temperature]).points

    assert point.variance == pytest.approx(p @ z**2 - (p @ z) ** 2)
    assert point.slope == point.variance / temperature**3


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_the_measured_slope_is_the_theorems(temperature: float) -> None:
    (point,) = study(row(), [temperature]).points

    assert point.measured_slope == pytest.approx(point.slope, rel=1e-5)


def test_entropy_stays_below_the_logarithm_of_the_vocabulary() -> None:
    found = study(row(), [1.0, 10.0, 1e6])

    assert log(50) == found.most_entropy
    assert all(point.entropy <= found.most_entropy + 1e-12 for point in found.points)
