"""Times of cases that take turns."""

from functools import partial

from tests.bench.timing import Times, interleaved


def test_cases_take_turns_and_a_round_before_the_first_warms_up() -> None:
    order: list[str] = []

    def run(name: str) -> float:
        order.append(name)
        return float(len(order))

    times = interleaved({name: partial(run, name) for name in "ab"}, rounds=2)

    assert list("ababab") == order
    assert {"a": Times((3.0, 5.0)), "b": Times((4.0, 6.0))} == times


def test_the_median_and_the_least_are_of_all_rounds() -> None:
    times = Times((3.0, 1.0, 2.0))

    assert (2.0, 1.0) == (times.median, times.least)
