"""`tane study temperature`: probabilities and entropy over temperature, and how fast the entropy grows."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from service.cli.console import count_bar
from service.cli.plotting import COLOURS, figure, for_plot
from service.cli.studies.common import (
    list_of,
    model_option,
    output_options,
    prompt_option,
    prompted,
    table,
    write,
)

if TYPE_CHECKING:
    from model.decoding.filters import Floats
    from model.studies.temperature import TemperatureStudy

CURVE_POINTS = 80
REACH = 1.25
"""How far curves go beyond the outermost temperatures."""


@click.command()
@click.option(
    "--temperatures",
    callback=list_of(click.FloatRange(0, min_open=True)),
    metavar="LIST",
    default="0.1,0.5,1,2,100",
    show_default=True,
    help="Above 0.",
)
@click.option(
    "--logits", callback=list_of(click.FLOAT), metavar="LIST", help="A row of logits.  [default: 2,1,0, of example 4.3]"
)
@model_option("Look at what a model says after --prompt instead.")
@prompt_option
@output_options("probabilities and entropy against temperature")
def temperature(
    *,
    temperatures: tuple[float, ...],
    logits: tuple[float, ...] | None,
    model: str | None,
    prompt: str | None,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Show what temperature does to a distribution (definition 4.1, theorem 4.2, example 4.3).

    For each τ: the probabilities of the likeliest tokens, the entropy H in nats, and its slope dH/dτ = Var(z)/τ³,
    beside the slope that is measured between τ(1 - 0.0001) and τ(1 + 0.0001). The order of tokens never changes.

    \b
    Examples:
      tane study temperature
      tane study temperature --plot temperature.svg
      tane study temperature --prompt "Once upon a" --temperatures 0.2,1,2 --json
    """
    from model.studies.distributions import row_of
    from model.studies.temperature import EXAMPLE, study

    if logits is not None and not (model is prompt is None):
        raise click.UsageError("--logits is a row of its own; leave out --model and --prompt")
    if model is prompt is None:
        row, title = row_of(logits or EXAMPLE), f"z = {', '.join(f'{each:g}' for each in logits or EXAMPLE)}"
        found = study(row, temperatures)
        shown = [f"p({token_id})" for token_id in found.token_ids]
    else:
        asked = prompted(model, prompt)
        row, title = asked.model.next_row(), f"{asked.name} after {asked.prompt!r}"
        found = study(row, temperatures)
        shown = [asked.said(token_id) for token_id in found.token_ids]
    note = f"No temperature exceeds log {found.vocabulary} = {found.most_entropy:.4f}."
    figures = {"logits_of": title, "tokens": shown, **asdict(found)}
    write([temperature_table(title, shown, found)], [note], figures, as_json=as_json)
    if plot is not None:
        draw(row, shown, found, plot)


def temperature_table(title: str, names: list[str], found: "TemperatureStudy") -> Table:
    """A row for each temperature."""
    made = table(title, "τ", *names, "H", "dH/dτ", "measured")
    for point in found.points:
        probabilities = [f"{p:.4f}" for p in point.probabilities]
        slopes = [f"{slope:.4g}" for slope in (point.slope, point.measured_slope)]
        made.add_row(f"{point.temperature:g}", *probabilities, f"{point.entropy:.4f}", *slopes)
    return made


def draw(row: "Floats", names: list[str], found: "TemperatureStudy", path: Path) -> None:
    """Curves over a fine grid of temperatures, with the table's points on them."""
    import numpy as np

    from model.studies.temperature import outlook

    given = [point.temperature for point in found.points]
    grid = np.geomspace(min(given) / REACH, max(given) * REACH, CURVE_POINTS).tolist()
    curve = []
    with count_bar("drawing", len(grid)) as on_point:
        for each in grid:
            curve.append(outlook(row, each, found.token_ids))
            on_point()
    with figure(path, 2, size=(9, 3.4)) as (left, right):
        for index, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
            left.plot(grid, [probabilities[index] for probabilities, _ in curve], color=colour, label=for_plot(name))
            left.plot(given, [point.probabilities[index] for point in found.points], "o", color=colour, markersize=3)
        left.set(xlabel="temperature τ", ylabel="probability", xscale="log", ylim=(0, 1.02))
        right.plot(grid, [entropy for _, entropy in curve], color=COLOURS[0], label="entropy")
        right.plot(given, [point.entropy for point in found.points], "o", color=COLOURS[0], markersize=3)
        right.axhline(found.most_entropy, color=COLOURS[5], linestyle="--", label=f"log {found.vocabulary}")
        right.set(xlabel="temperature τ", ylabel="entropy, nats", xscale="log", ylim=(0, None))
        for panel in (left, right):
            panel.grid(alpha=0.3)
            panel.legend(frameon=False)
