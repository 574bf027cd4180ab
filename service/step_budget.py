"""What rows cost, measured on earlier steps, and how many prompt rows one step may run for a budget of time.

Knows rows and seconds. Always: at least `LEAST` rows are granted, so that every prompt moves on. Bits never depend
on it.
"""

LEAST = 16
MOST = 512
FIRST = 64
"""Rows of a first step, before anything was measured."""
FORGETTING = 0.95
"""Weight of the past at each new step: about the last twenty steps count."""
EXTRA_ROW = 0.15
"""What a further row costs beside the first, as a share of it, as long as nothing was measured."""
EXTRA_ROW_WEIGHT = 0.5
"""How much the last known share counts, in rows² of the measured steps' variance."""
DRIFT = 0.001
"""How fast the known share moves back while all steps have one size, so that it is measured again some day."""
OUTLIER = 3.0
"""A step that took this many times what was expected was held up by something else."""


class Observations:
    """Means, variance and covariance of rows and seconds over recent steps."""

    __slots__ = ("_forgetting", "_rows", "_rows_seconds", "_rows_squared", "_seconds", "_weight")

    def __init__(self, forgetting: float = FORGETTING) -> None:
        self._forgetting = forgetting
        self._weight = self._rows = self._seconds = self._rows_squared = self._rows_seconds = 0.0

    def __bool__(self) -> bool:
        return self._weight > 0

    def add(self, rows: int, seconds: float) -> None:
        kept = self._forgetting
        self._weight = kept * self._weight + 1.0
        self._rows = kept * self._rows + rows
        self._seconds = kept * self._seconds + seconds
        self._rows_squared = kept * self._rows_squared + rows * rows
        self._rows_seconds = kept * self._rows_seconds + rows * seconds

    def summary(self) -> tuple[float, float, float, float]:
        """Mean rows, mean seconds, variance of the rows, covariance."""
        weight, rows, seconds = self._weight, self._rows / self._weight, self._seconds / self._weight
        return rows, seconds, self._rows_squared / weight - rows**2, self._rows_seconds / weight - rows * seconds


class StepBudget:
    """Seconds = fixed + per_row · rows, fitted to recent steps by exponentially weighted least squares."""

    def __init__(self, *, decoding_s: float = 0.06, prefilling_s: float = 0.3) -> None:
        self._decoding_s = decoding_s
        self._prefilling_s = prefilling_s
        self._observed = Observations()

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from one step that ran."""
        self._observed.add(rows, seconds)

    def prefill_rows(self, decode_rows: int) -> int:
        """Prompt rows that fit a step which also runs `decode_rows`."""
        if not self._observed:
            return FIRST
        fixed, per_row = self._fit()
        budget = self._decoding_s if decode_rows else self._prefilling_s
        rows = (budget - fixed) / per_row - decode_rows
        return int(max(LEAST, min(MOST, rows)))

    def _fit(self) -> tuple[float, float]:
        rows, seconds, variance, covariance = self._observed.summary()
        slope = covariance / variance if variance > 1e-9 * rows**2 else 0.0
        # Steps of one size, or noise, say nothing of a slope: then all cost is laid to the rows.
        per_row = slope if slope > 0 else seconds / rows
        return max(0.0, seconds - per_row * rows), max(per_row, 1e-9)


class RowCost:
    """Seconds of a step of a few rows.

    Where the measured steps differ in size their slope is believed; where they are all alike, the one known before.
    """

    def __init__(self) -> None:
        self._observed = Observations()
        self._extra_row = EXTRA_ROW

    def __bool__(self) -> bool:
        """Whether anything was measured."""
        return bool(self._observed)

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from one step that ran; a clock that stood still says nothing."""
        if seconds <= 0:
            return
        self._observed.add(rows, min(seconds, OUTLIER * self(rows)) if self else seconds)
        if self._observed.summary()[2] > EXTRA_ROW_WEIGHT:
            first = self(1)
            self._extra_row = (self(2) - first) / first
        else:
            self._extra_row += DRIFT * (EXTRA_ROW - self._extra_row)

    def __call__(self, rows: float) -> float:
        """Raises ZeroDivisionError when nothing was measured."""
        mean_rows, mean_seconds, variance, covariance = self._observed.summary()
        known = self._extra_row * mean_seconds / (1 + self._extra_row * (mean_rows - 1))
        slope = (covariance + EXTRA_ROW_WEIGHT * known) / (variance + EXTRA_ROW_WEIGHT)
        # No row is free, and none costs more than its share of a step.
        slope = min(max(slope, 0.01 * mean_seconds / mean_rows), mean_seconds / mean_rows)
        return mean_seconds + slope * (rows - mean_rows)
