"""How many prompt rows one step may run: a time budget turned into rows by the measured cost of earlier steps.

Knows rows and seconds. Always: at least `LEAST` rows are granted, so that every prompt moves on. Bits never depend
on it.
"""

LEAST = 16
MOST = 512
FIRST = 64
"""Rows of a first step, before anything was measured."""
FORGETTING = 0.95
"""Weight of the past at each new step: about the last twenty steps count."""


class StepBudget:
    """Seconds = fixed + per_row · rows, fitted to recent steps by exponentially weighted least squares."""

    def __init__(self, *, decoding_s: float = 0.06, prefilling_s: float = 0.3) -> None:
        self._decoding_s = decoding_s
        self._prefilling_s = prefilling_s
        self._moments: tuple[float, ...] = (0.0,) * 5

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from one step that ran."""
        step = (1.0, rows, seconds, rows * rows, rows * seconds)
        self._moments = tuple(FORGETTING * old + new for old, new in zip(self._moments, step, strict=True))

    def prefill_rows(self, decode_rows: int) -> int:
        """Prompt rows that fit a step which also runs `decode_rows`."""
        if not self._moments[0]:
            return FIRST
        fixed, per_row = self._fit()
        budget = self._decoding_s if decode_rows else self._prefilling_s
        rows = (budget - fixed) / per_row - decode_rows
        return int(max(LEAST, min(MOST, rows)))

    def _fit(self) -> tuple[float, float]:
        weight, rows, seconds, rows_squared, rows_seconds = self._moments
        mean_rows, mean_seconds = rows / weight, seconds / weight
        spread = rows_squared / weight - mean_rows**2
        slope = 0.0
        if spread > 1e-9 * mean_rows**2:
            slope = (rows_seconds / weight - mean_rows * mean_seconds) / spread
        # Steps of one size, or noise, say nothing of a slope: then all cost is laid to the rows.
        per_row = slope if slope > 0 else mean_seconds / mean_rows
        return max(0.0, mean_seconds - per_row * mean_rows), max(per_row, 1e-9)
