"""`tane study sampling`: draws beside the distribution that they are made from."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from service.cli.console import count_bar
from service.cli.plotting import COLOURS, figure
from service.cli.studies.common import list_of, output_options, table, write

if TYPE_CHECKING:
    from model.studies.sampling import SamplingStudy

BAR = 0.28
"""The width of one bar."""


@click.command()
@click.option("--draws", type=click.IntRange(1, 10_000_000), default=200_000, show_default=True)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=20261010, show_default=True)
@click.option(
    "--logits",
    callback=list_of(click.FLOAT),
    metavar="LIST",
    help="A row of logits.  [default: 3,2.5,1,0.2,-1,-2, of section 6]",
)
@click.option("--temperature", type=click.FloatRange(0, 2, min_open=True), default=0.8, show_default=True)
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), default=0.95, show_default=True)
@output_options("frequencies beside probabilities, and their distance against the number of draws")
def sampling(
    *,
    draws: int,
    seed: int,
    logits: tuple[float, ...] | None,
    temperature: float,
    top_p: float,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Draw from a distribution by its running sums, and compare frequencies with it (proposition 6.1, section 6).

    Draw i takes the number that token i of a text with this seed takes, from Philox4x64; the compiled sampler draws. q
    is p cut by top-p. TV is the total variation between frequencies and q, beside what independent draws give on
    average; χ² is Pearson's, and its tail the probability of one so great.

    \b
    Examples:
      tane study sampling
      tane study sampling --seed 1 --draws 1000000
      tane study sampling --logits 2,1,0 --temperature 1 --top-p 1 --plot sampling.png
    """
    from model.studies.sampling import AT_ONCE, EXAMPLE, study

    with count_bar("drawing", -(-draws // AT_ONCE)) as on_draws:
        found = study(
            logits or EXAMPLE, draws=draws, seed=seed, temperature=temperature, top_p=top_p, on_draws=on_draws
        )
    kept = f"S = {set(found.kept)}, p(S) = {found.mass:.4f}"
    note = f"{kept}; TV(p, q) = {found.moved:.4f}, 1 - p(S) = {1 - found.mass:.4f}."
    write([frequency_table(found), agreement_table(found)], [note], asdict(found), as_json=as_json)
    if plot is not None:
        draw(found, plot)


def frequency_table(found: "SamplingStudy") -> Table:
    """A row for each token."""
    made = table(f"τ = {found.temperature:g}, ρ = {found.top_p:g}, seed {found.seed}", "id", "p", "q", "frequency")
    for each in found.frequencies:
        numbers = (each.probability, each.restricted, each.frequency)
        made.add_row(str(each.token_id), *(f"{number:.4f}" for number in numbers))
    return made


def agreement_table(found: "SamplingStudy") -> Table:
    """A row for each number of draws."""
    made = table("Frequencies and q", "draws", "TV", "on average", f"χ², {len(found.kept) - 1} degrees", "tail")
    for each in found.agreements:
        numbers = (f"{each.moved:.5f}", f"{each.expected:.5f}", f"{each.chi_square:.3f}", f"{each.tail:.3f}")
        made.add_row(f"{each.draws:,}", *numbers)
    return made


def draw(found: "SamplingStudy", path: Path) -> None:
    """Bars for each token; the distance over the number of draws."""
    ids = [each.token_id for each in found.frequencies]
    bars = {
        "p": [each.probability for each in found.frequencies],
        "q": [each.restricted for each in found.frequencies],
        "frequency": [each.frequency for each in found.frequencies],
    }
    draws = [each.draws for each in found.agreements]
    with figure(path, 2, size=(9, 3.4)) as (left, right):
        for index, ((name, heights), colour) in enumerate(zip(bars.items(), COLOURS, strict=False)):
            left.bar([each + BAR * (index - 1) for each in ids], heights, BAR, color=colour, label=name)
        left.set(xlabel="token", ylabel="probability", xticks=ids)
        right.plot(draws, [each.moved for each in found.agreements], "o-", color=COLOURS[2], label="frequencies and q")
        right.plot(draws, [each.expected for each in found.agreements], "--", color=COLOURS[5], label="on average")
        right.set(xlabel="draws", ylabel="total variation", xscale="log", yscale="log")
        for panel in (left, right):
            panel.grid(alpha=0.3)
            panel.legend(frameon=False)
