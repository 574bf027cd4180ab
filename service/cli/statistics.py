"""Numbers that describe many measurements. Pure functions; knows nothing of where the measurements come from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WHOLE = 100


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean, percentiles and the largest of a set of measurements, in their unit."""

    mean: float
    p50: float
    p95: float
    p99: float
    max: float


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: the least value that `percent` % of all values do not exceed.

    It is always one of the values. Raises ValueError for no values, or a percentage outside (0, 100].
    """
    if not values:
        raise ValueError("no values have no percentile")
    if not 0 < percent <= WHOLE:
        raise ValueError(f"a percentage is above 0 and at most 100, not {percent}")
    return sorted(values)[math.ceil(len(values) * percent / WHOLE) - 1]


def summarise(values: Sequence[float]) -> Summary | None:
    """None when there is nothing to describe."""
    if not values:
        return None
    return Summary(
        mean=math.fsum(values) / len(values),
        p50=percentile(values, 50),
        p95=percentile(values, 95),
        p99=percentile(values, 99),
        max=max(values),
    )
