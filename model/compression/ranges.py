"""How far a grid reaches: to the greatest weight, to a percentile, or as far as pays.

Does not know forms of grids. Always: a range is in float64, from the weights of one group; a search never leaves a
group worse off than its full range does.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.compression.hessian import Matrix, Vector

Losses = Callable[[Vector, Vector], Vector]
"""What grids from these lows to these highs [groups] lose on their groups [groups]."""

_HALF, _ALL = 50, 100


@dataclass(frozen=True, slots=True)
class Maximum:
    """From the least to the greatest weight."""

    def ends(self, groups: Matrix, losses: Losses) -> tuple[Vector, Vector]:
        """Low and high of each line of `groups` [groups, weights]."""
        return groups.min(axis=1), groups.max(axis=1)


@dataclass(frozen=True, slots=True)
class Percentile:
    """So far that this percentage of the weights lies below the high, and as much above the low; the rest is clipped.

    Raises ValueError unless 50 < percentage <= 100.
    """

    percentage: float

    def __post_init__(self) -> None:
        if not _HALF < self.percentage <= _ALL:
            raise ValueError(f"percentage is {self.percentage}; it must be above {_HALF} and at most {_ALL}")

    def ends(self, groups: Matrix, losses: Losses) -> tuple[Vector, Vector]:
        """Low and high of each line of `groups` [groups, weights]."""
        low, high = np.percentile(groups, [_ALL - self.percentage, self.percentage], axis=1)
        return low, high


@dataclass(frozen=True, slots=True)
class Searched:
    """The full range shrunk to the share of it that loses least, as GPTQ's code searches.

    Args:
        steps: shares tried are 1, 1 - 1/steps, 1 - 2/steps, …
        least: … and above this one.

    Raises:
        ValueError: for no step, or a share outside 0 to 1.
    """

    steps: int = 100
    least: float = 0.2

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 <= self.least < 1:
            raise ValueError(f"a search in {self.steps} steps down to {self.least} finds no range")

    def ends(self, groups: Matrix, losses: Losses) -> tuple[Vector, Vector]:
        """Low and high of each line of `groups` [groups, weights]. Of equal losses the widest range wins."""
        low, high = Maximum().ends(groups, losses)
        shares, best = np.ones(len(groups)), losses(low, high)
        for step in range(1, self.steps):
            share = 1 - step / self.steps
            if share <= self.least:
                break
            tried = losses(share * low, share * high)
            better = tried < best
            shares[better], best[better] = share, tried[better]
        return shares * low, shares * high


Range = Maximum | Percentile | Searched
FULL_RANGE = Maximum()


def power_losses(errors: NDArray[np.floating]) -> Vector:
    """Σ |error|^2.4 over the last axis: GPTQ's loss of a range, which minds great errors more than squares do."""
    sums: Vector = (np.abs(errors).astype(np.float64) ** 2.4).sum(axis=-1)
    return sums
