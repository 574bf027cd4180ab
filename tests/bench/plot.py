"""Figures as pictures. Knows only figures that were recorded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.cli.plotting import COLOURS, figure


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the figures, as a table or a panel: what lies along it, and what was measured there."""

    name: str
    along: str
    value: str
    heading: str
    unit: str
    form: str


def draw(figures: Mapping[str, Any], parts: Sequence[Part], ways: Mapping[str, str], path: Path) -> None:
    """Draw a panel for each part into an SVG or PNG file, with a line for each way. Equal figures give equal SVGs."""
    with figure(path, len(parts), size=(11, 3.2)) as panels:
        for panel, part in zip(panels, parts, strict=True):
            for way, colour in zip(ways, COLOURS, strict=False):
                if way in figures:
                    points = [(point[part.along], point[part.value]) for point in figures[way][part.name]]
                    panel.plot(*zip(*points, strict=True), marker="o", markersize=3, color=colour, label=ways[way])
            panel.set(xlabel=part.heading, ylabel=part.unit, ylim=(0, None))
            panel.set_xscale("log", base=2)
            panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            panel.grid(alpha=0.3)
            panel.legend(frameon=False)
