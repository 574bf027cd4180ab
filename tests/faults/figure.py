"""One figure of the fault bench: what was seen beside what it may be."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.hostile.canary import Song


@dataclass(frozen=True, slots=True)
class Figure:
    """`fault` numbers what was done to the server; `value` is shown as it is."""

    fault: int
    what: str
    value: float | str
    mark: str
    holds: bool


def at_most(fault: int, what: str, value: float, most: float, unit: str = "") -> Figure:
    return Figure(fault, what, round(value, 3), f"≤ {most:g}{unit}", value <= most)


def at_least(fault: int, what: str, value: float, least: float, unit: str = "") -> Figure:
    return Figure(fault, what, round(value, 3), f"≥ {least:g}{unit}", value >= least)


def between(fault: int, what: str, value: float, range_: tuple[float, float], unit: str = "") -> Figure:
    least, most = range_
    return Figure(fault, what, round(value, 3), f"{least:g} to {most:g}{unit}", least <= value <= most)


def exactly(fault: int, what: str, value: object, expected: object) -> Figure:
    return Figure(fault, what, _shown(value), str(_shown(expected)), value == expected)


def of_canary(fault: int, song: Song, *, may_fail: bool = False) -> list[Figure]:
    """That no bit of a caller beside the fault changed, and that it always got a text, unless the fault may meet it."""
    figures = [exactly(fault, "canary: answers with other bits", song.other_bits, 0)]
    return (
        figures
        if may_fail
        else [*figures, exactly(fault, "canary: what came instead of an answer", song.failure[:200], "none")]
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of them lies; 0 for none."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def _shown(value: object) -> float | str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, int | float) else str(value)
