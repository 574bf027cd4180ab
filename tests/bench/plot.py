"""Figures as pictures. Needs matplotlib, which is not needed for anything else; knows only figures that were recorded."""

from pathlib import Path
from typing import Any

PANELS = (
    ("decode", "context", "milliseconds", "context, tokens", "ms for a token"),
    ("streams", "streams", "tokens_per_second", "streams", "tokens/s, all streams"),
    ("prefill", "prompt", "tokens_per_second", "prompt, tokens", "prefill, tokens/s"),
)
"""For each panel the part of the figures, what lies along it and up it, and how these are called."""
COLOURS = {"bare": "#1b6ca8", "http": "#d1495b"}
NAMES = {"bare": "bare engine", "http": "HTTP"}


def draw_scaling(figures: dict[str, Any], path: Path) -> None:
    """Draw the three panels into an SVG or PNG file. The same figures give the same SVG."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    with mpl.rc_context({"svg.hashsalt": "tane", "svg.fonttype": "none", "font.size": 9}):
        canvas, panels = pyplot.subplots(1, len(PANELS), figsize=(11, 3.2), layout="constrained")
        for panel, (part, along, up, x_label, y_label) in zip(panels, PANELS, strict=True):
            for way in NAMES.keys() & figures.keys():
                points = figures[way][part]
                panel.plot(
                    [point[along] for point in points],
                    [point[up] for point in points],
                    marker="o",
                    markersize=3,
                    color=COLOURS[way],
                    label=NAMES[way],
                )
            panel.set(xlabel=x_label, ylabel=y_label, ylim=(0, None))
            panel.set_xscale("log", base=2)
            panel.grid(alpha=0.3)
            panel.legend(frameon=False)
            panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        metadata = {"Date": None} if path.suffix == ".svg" else None
        canvas.savefig(path, dpi=150, metadata=metadata)
        pyplot.close(canvas)
