"""Times taken on a machine that others use too: cases in turn, again and again, and the middle of what each took.

Knows no cases. Always: the cases of one round follow each other, so that a disturbance meets all of them alike.
"""

import statistics
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Case = TypeVar("Case", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of all rounds of one case, in order."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def least(self) -> float:
        return min(self.seconds)


def interleaved(
    cases: Mapping[Case, Callable[[], float]], *, rounds: int, on_round: Callable[[], None] = lambda: None
) -> dict[Case, Times]:
    """Run every case once in each round; each answers the seconds that it took. A round before the first warms up."""
    found: dict[Case, list[float]] = {case: [] for case in cases}
    for number in range(rounds + 1):
        for case, run in cases.items():
            seconds = run()
            if number:
                found[case].append(seconds)
        on_round()
    return {case: Times(tuple(seconds)) for case, seconds in found.items()}
