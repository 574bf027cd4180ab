"""`tane study obs-correlation`: three ways of pruning, as inputs come to move together."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from service.cli.console import count_bar
from service.cli.plotting import COLOURS, figure
from service.cli.studies.common import list_of, output_options, table, write

if TYPE_CHECKING:
    from model.studies.obs_correlation import CorrelationStudy

NOTE = (
    "Deviations, gains and differences are medians over the seeds; a difference counts the weights that this way or "
    "magnitude prunes and the other does not. A saliency is the price of a removal that the rest makes up for; where "
    "nothing does, it may backfire, the more often the more inputs move together. At c = 0 there is little to make up "
    "with, and surgery need not be the best of the three."
)


@click.command()
@click.option(
    "--shared",
    callback=list_of(click.FloatRange(0, 1)),
    metavar="LIST",
    default="0,0.3,0.7,0.9",
    show_default=True,
    help="c.",
)
@click.option(
    "--counts", callback=list_of(click.IntRange(1)), metavar="LIST", default="8,16,32,48", show_default=True, help="k."
)
@click.option("--seeds", type=click.IntRange(1, 10_000), default=60, show_default=True, help="How many rows are drawn.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the first; then the next ones.")
@click.option("--width", type=click.IntRange(2, 512), default=64, show_default=True, help="Weights of a row.")
@click.option("--samples", type=click.IntRange(1, 65_536), default=512, show_default=True, help="Inputs of a row.")
@output_options("deviations and gains against c")
def obs_correlation(
    *,
    shared: tuple[float, ...],
    counts: tuple[int, ...],
    seeds: int,
    seed: int,
    width: int,
    samples: int,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Prune rows of weights by magnitude, by saliency alone and by Optimal Brain Surgeon.

    Inputs share a component c: X = c·z + (1-c)·s∘e with z common to all, e each input's own and s its spread. k of the
    weights go; a deviation is how far the output moves, as a share of itself. Gain is the deviation by magnitude over
    that by surgery; a backfire is a row in which saliency alone is worse than magnitude.

    \b
    Examples:
      tane study obs-correlation
      tane study obs-correlation --seed 4 --seeds 1 --counts 32
      tane study obs-correlation --seeds 200 --plot obs-correlation.svg
    """
    from model.studies.obs_correlation import study

    if max(counts) > width:
        raise click.UsageError(f"--counts has {max(counts)}, and a row has --width {width} weights")
    with count_bar("pruning", seeds * len(shared)) as on_trial:
        found = study(
            shared=shared,
            counts=counts,
            seeds=range(seed, seed + seeds),
            width=width,
            samples=samples,
            on_trial=on_trial,
        )
    write([correlation_table(found)], [NOTE], asdict(found), as_json=as_json)
    if plot is not None:
        draw(found, plot)


def correlation_table(found: "CorrelationStudy") -> Table:
    """A row for each c and k."""
    first, last = found.seeds[0], found.seeds[-1]
    made = table(
        f"{found.width} weights, {found.samples} inputs, seeds {first} to {last}",
        *("c", "k", "magnitude", "saliency only", "surgery", "gain", "backfires", "surgery ≤ saliency"),
        *("saliency differs", "surgery differs"),
    )
    for row in found.rows:
        made.add_row(
            f"{row.shared:g}",
            str(row.count),
            *(f"{deviation:.3f}" for deviation in (row.magnitude, row.saliency_only, row.surgery)),
            f"{row.gain:.2f}",
            *(f"{share:.0%}".replace("%", " %") for share in (row.backfires, row.surgery_wins)),
            *(f"{count:g}" for count in (row.differs_saliency, row.differs_surgery)),
        )
    return made


def draw(found: "CorrelationStudy", path: Path) -> None:
    """Deviations at the k nearest to half the weights, and the gain at every k, over c."""
    counts = sorted({row.count for row in found.rows})
    half = min(counts, key=lambda count: abs(count - found.width / 2))
    by_count = {count: sorted((r for r in found.rows if r.count == count), key=lambda r: r.shared) for count in counts}
    ways = {"magnitude": "magnitude", "saliency_only": "saliency only", "surgery": "surgery"}
    with figure(path, 2, size=(9, 3.4)) as (left, right):
        shared = [row.shared for row in by_count[half]]
        for (name, label), colour in zip(ways.items(), COLOURS, strict=False):
            left.plot(shared, [getattr(r, name) for r in by_count[half]], "o-", color=colour, markersize=3, label=label)
        left.set(title=f"k = {half} of {found.width}", ylabel="median deviation of the output", yscale="log")
        for (count, rows), colour in zip(by_count.items(), COLOURS, strict=False):
            right.plot(shared, [row.gain for row in rows], "o-", color=colour, markersize=3, label=f"k = {count}")
        right.set(title="surgery against magnitude", ylabel="median gain", ylim=(0, None))
        for panel in (left, right):
            panel.set(xlabel="shared component c")
            panel.grid(alpha=0.3)
            panel.legend(frameon=False)
