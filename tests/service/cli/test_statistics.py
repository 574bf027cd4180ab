"""Percentiles are nearest-rank, and a summary describes exactly what it was given."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cli.statistics import Summary, percentile, summarise

MEASUREMENTS = st.lists(st.floats(0, 1e6), min_size=1, max_size=50)


@pytest.mark.parametrize(
    ("percent", "expected"), [(1, 1), (20, 1), (21, 2), (50, 3), (80, 4), (81, 5), (99, 5), (100, 5)]
)
def test_a_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    assert expected == percentile([5, 3, 1, 4, 2], percent)


@given(MEASUREMENTS, st.floats(0.01, 100))
def test_a_percentile_is_the_least_value_that_enough_values_do_not_exceed(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    needed = len(values) * percent / 100

    assert found in values
    assert sum(value <= found for value in values) >= needed
    assert sum(value < found for value in values) < needed


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


@pytest.mark.parametrize("percent", [0, -1, 100.5])
def test_a_percentage_outside_its_range_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="percentage"):
        percentile([1.0], percent)


def test_a_summary_holds_mean_percentiles_and_maximum() -> None:
    assert Summary(mean=50.5, p50=50, p95=95, p99=99, max=100) == summarise(list(range(100, 0, -1)))


def test_nothing_has_no_summary() -> None:
    assert None is summarise([])
