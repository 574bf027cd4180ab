"""Pictures of figures: the one place that knows matplotlib, which comes with `tane[plots]` only.

Always: no screen is needed; the suffix names the format; equal drawings give equal SVG files.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from service.cli.console import CONTROL_PICTURES, Failure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Command = TypeVar("Command", bound=Callable[..., Any])

COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#7d5ba6", "#5c5c5c")
"""In the order that lines take them; told apart also in grey."""
SUFFIXES = (".png", ".svg")


def plot_option(shows: str) -> Callable[[Command], Command]:
    """Add `--plot FILE`, which is refused at once when the file could not be drawn. `shows`: what the plot shows."""
    return click.option(
        "--plot",
        "plot",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        metavar="FILE",
        callback=_checked,
        help=f"Draw {shows} into a .png or .svg file.",
    )


@contextmanager
def figure(path: Path, panels: int = 1, *, size: tuple[float, float] = (6.4, 3.6)) -> "Iterator[list[Axes]]":
    """Panels side by side to draw on, written to the file when the block ends well. `size`: width and height in inches.

    Raises Failure when matplotlib is missing or the file cannot be written.
    """
    _require_matplotlib()
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "tane", "svg.fonttype": "none", "font.size": 9}):
        drawing = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(drawing)
        yield list(drawing.subplots(1, panels, squeeze=False)[0])
        try:
            drawing.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
        except OSError as error:
            raise Failure(f"cannot write {path}: {error.strerror or error}") from error


def for_plot(text: str) -> str:
    """The text as a label: control characters, which no SVG file may hold, are replaced; dollars begin no formula."""
    return text.translate(dict.fromkeys(CONTROL_PICTURES, 0xFFFD)).replace("$", r"\$")


def rise_from_zero(panel: "Axes") -> None:
    """Let heights be comparable: an axis from zero, over a grid that lies behind what is drawn."""
    panel.set_ylim(0, None)
    panel.grid(alpha=0.3)
    panel.set_axisbelow(True)


def _checked(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    if path is None:
        return None
    if path.suffix not in SUFFIXES:
        raise click.BadParameter(f"the name ends in {path.suffix or 'no suffix'}, and .png or .svg is drawn")
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.parent}")
    _require_matplotlib()
    return path


def _require_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        raise Failure("drawing needs matplotlib: run `pip install 'tane[plots]'`")
