"""`tane study truncation`: what top-k and top-p keep, and how far that moves a distribution."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from service.cli.console import count_bar
from service.cli.options import refuse_without_effect
from service.cli.plotting import COLOURS, figure
from service.cli.studies.common import (
    Prompted,
    list_of,
    model_option,
    output_options,
    prompt_option,
    prompted,
    table,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from model.studies.truncation import Case, Truncation

CURVE_POINTS, MASS_POINTS = 60, 200
FEW = 20
"""So many tokens are looked at one by one."""
REAL_TOP_K, REAL_TOP_P = (1, 5, 40, 1000), (0.5, 0.8, 0.9, 0.95, 0.99)
NOTES = (
    "Ids count from 0. TV is the total variation between p and p_S; it is 1 - p(S), and for top-p at most 1 - ρ.",
    "(.5, .2, .2, .1) at ρ = .9: three tokens reach .9 exactly. A running sum in float64 is .8999999999999999 and "
    "takes a fourth; the product compares it with ρ times the sum of the same rounded numbers, and takes three.",
)


@click.command()
@click.option(
    "--top-k",
    callback=list_of(click.IntRange(1)),
    metavar="LIST",
    help="For every distribution, in place of its own thresholds.",
)
@click.option("--top-p", callback=list_of(click.FloatRange(0, 1, min_open=True)), metavar="LIST", help="Likewise.")
@click.option(
    "--temperature", type=click.FloatRange(0, 2, min_open=True), default=1.0, show_default=True, help="Of a model's."
)
@model_option("Look at what a model says after --prompt instead.")
@prompt_option
@output_options("how far each distribution moves against k and against ρ")
def truncation(
    *,
    top_k: tuple[int, ...] | None,
    top_p: tuple[float, ...] | None,
    temperature: float,
    model: str | None,
    prompt: str | None,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Show which tokens top-k and top-p keep (definition 5.1 to example 5.6, exercise 10.2).

    For each set S: its size, its likeliest tokens and their probabilities renormalised, its mass p(S), and how far the
    distribution moved (proposition 5.2): by 1 - p(S), which top-p bounds by 1 - ρ and top-k does not.

    \b
    Examples:
      tane study truncation
      tane study truncation --plot truncation.svg
      tane study truncation --prompt "My favourite colour is" --top-k 1,40 --top-p 0.9
    """
    from model.studies.truncation import examples, study

    if model is prompt is None:
        refuse_without_effect(("temperature",), "it is of a model's distribution, and none is asked")
        asked, cases = None, list(examples())
    else:
        asked = prompted(model, prompt)
        cases = [real_case(asked, temperature)]
    if top_k is not None or top_p is not None:
        cases = [replace(case, top_k=top_k or (), top_p=top_p or ()) for case in cases]
    found = study(cases)
    write([truncation_table(found, asked)], NOTES[: 1 if asked else 2], figures_of(found, asked), as_json=as_json)
    if plot is not None:
        draw(cases, plot)


def real_case(asked: Prompted, temperature: float) -> "Case":
    """The distribution after a prompt, with thresholds as servers are asked for."""
    from model.decoding.filters import distribution
    from model.studies.truncation import Case

    row = asked.model.next_row()
    return Case("after the prompt", distribution(row, temperature=temperature), len(row), REAL_TOP_K, REAL_TOP_P)


def figures_of(found: "Sequence[Truncation]", asked: Prompted | None) -> dict[str, object]:
    """Everything, with the texts of a real model's tokens."""
    rows = [asdict(each) for each in found]
    if asked is not None:
        rows = [row | {"texts": [asked.tokenizer.token_text(each) for each in row["token_ids"]]} for row in rows]
        return {"model": asked.name, "prompt": asked.prompt, "rows": rows}
    return {"rows": rows}


def truncation_table(found: "Sequence[Truncation]", asked: Prompted | None) -> Table:
    """A row for each set."""
    title = f"{asked.name} after {asked.prompt!r}" if asked else "Truncation"
    made = table(title, "distribution", "", "|S|", "S", "p_S", "p(S)", "TV", "1 - ρ")
    for each in found:
        said = [asked.said(token_id) if asked else str(token_id) for token_id in each.token_ids]
        more = ", …" if each.kept > len(said) else ""
        made.add_row(
            each.case,
            f"{'k' if each.rule == 'top_k' else 'ρ'} = {each.threshold:g}",
            f"{each.kept:,}",
            ", ".join(said) + more,
            ", ".join(f"{p:.4f}" for p in each.restricted) + more,
            f"{each.mass:.4f}",
            f"{each.moved:.4f}",
            "" if each.bound is None else f"{each.bound:.4f}",
        )
    return made


def draw(cases: "Sequence[Case]", path: Path) -> None:
    """How far each distribution moves, over all k and over ρ, the latter below its bound."""
    import numpy as np

    from model.studies.truncation import truncations

    masses = np.linspace(1 / MASS_POINTS, 1, MASS_POINTS).tolist()
    many = max(len(case.whole.token_ids) for case in cases)
    with figure(path, 2, size=(9, 3.6)) as (left, right), count_bar("drawing", len(cases)) as on_case:
        for case, colour in zip(cases, COLOURS, strict=False):
            counts = np.unique(np.geomspace(1, len(case.whole.token_ids), CURVE_POINTS).astype(int)).tolist()
            by_count = truncations(replace(case, top_k=tuple(counts), top_p=()))
            by_mass = truncations(replace(case, top_k=(), top_p=tuple(masses)))
            left.plot(counts, [each.moved for each in by_count], "o-", color=colour, markersize=3, label=case.name)
            right.step(masses, [each.moved for each in by_mass], color=colour, where="pre")
            on_case()
        right.plot([0, 1], [1, 0], color="black", linestyle="--", label="the bound 1 - ρ")
        left.set(xlabel="top-k: k", ylabel="total variation", ylim=(0, 1.02))
        left.set(**({"xscale": "log"} if many > FEW else {"xticks": range(1, many + 1)}))
        right.set(xlabel="top-p: ρ", ylabel="total variation", ylim=(0, 1.02))
        for panel in (left, right):
            panel.grid(alpha=0.3)
            panel.legend(frameon=False)
