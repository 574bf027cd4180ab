"""What a process holds, looked at from outside again and again, and how it grows.

Knows /proc and the text of /metrics. Always: a slope is that of the straight line with the least squared distance.
"""

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, median_low

import httpx

HOUR_S = 3600.0
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """One look, `at_s` after the first."""

    at_s: float
    own_bytes: int
    """Resident memory that is not of files."""
    resident_bytes: int
    threads: int
    descriptors: int
    series: int
    """Samples that /metrics has."""


def look(process_id: int, metrics: httpx.Client, began: float) -> Sample:
    """The process now. `began`: of the first look, on the monotonic clock."""
    folder = Path("/proc", str(process_id))
    status = dict(re.findall(r"^(\w+):\s+(\d+)", (folder / "status").read_text(encoding="utf-8"), re.MULTILINE))
    lines = metrics.get("/metrics").raise_for_status().text.splitlines()
    return Sample(
        time.monotonic() - began,
        own_bytes=int(status["RssAnon"]) * 1024,
        resident_bytes=int(status["VmRSS"]) * 1024,
        threads=int(status["Threads"]),
        descriptors=len(os.listdir(folder / "fd")),
        series=sum(not line.startswith("#") for line in lines),
    )


def slope_per_hour(samples: Sequence[Sample], name: str) -> float:
    """Of one of the figures."""
    return linear_regression([each.at_s for each in samples], _figures(samples, name)).slope * HOUR_S


def growth(samples: Sequence[Sample], name: str) -> float:
    """From the median of the first third to that of the last: what is held, or let go, for a moment is no growth."""
    third = max(len(samples) // 3, 1)
    figures = _figures(samples, name)
    return median_low(figures[-third:]) - median_low(figures[:third])


def _figures(samples: Sequence[Sample], name: str) -> list[float]:
    return [getattr(each, name) for each in samples]
