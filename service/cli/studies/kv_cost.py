"""`tane study kv-cost`: multiplications with and without a cache of keys and values, and what the cache holds."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from service.cli.console import harmless
from service.cli.plotting import COLOURS, figure, for_plot
from service.cli.studies.common import checkpoint_of, list_of, model_option, output_options, table, write

if TYPE_CHECKING:
    from model.config import ModelConfig
    from model.studies.kv_cost import Cost, CostCase

CURVE_TO = 8192
MODEL_LENGTHS = (64, 512, 2048)
KV_TYPES = ("float16", "int8")


@click.command()
@click.option(
    "--lengths",
    callback=list_of(click.IntRange(1)),
    metavar="LIST",
    help="Positions, for every shape in place of its own.",
)
@model_option("Add the shape of a model, with grouped heads and a gated feed-forward.")
@output_options("multiplications and cached numbers against the number of positions")
def kv_cost(*, lengths: tuple[int, ...] | None, model: str | None, as_json: bool, plot: Path | None) -> None:
    """Count multiplications with and without a cache of keys and values (theorem 7.3, example 7.4, exercise 10.3).

    A product of an a × b and a b × c matrix takes abc; embedding, head, norms and exponentials are not counted. Without
    a cache every step computes all positions anew.

    \b
    Examples:
      tane study kv-cost
      tane study kv-cost --model default --lengths 128,8192
      tane study kv-cost --model default --plot kv-cost.svg
    """
    from model.studies.kv_cost import EXAMPLES, study

    cases, notes = list(EXAMPLES), []
    figures: dict[str, object] = {}
    if model is not None:
        _, checkpoint = checkpoint_of(model)
        cases.append(model_case(checkpoint.name, checkpoint.config))
        stored = stored_bytes(checkpoint.config)
        figures["cache_bytes_per_position"] = stored
        notes = [cache_note(checkpoint.name, stored)]
    if lengths is not None:
        cases = [replace(case, lengths=lengths) for case in cases]
    found = study(cases)
    figures |= {"rows": [asdict(each) for each in found]}
    notes.insert(0, overtaken_note(cases))
    write([cost_table(found), position_table(found)], notes, figures, as_json=as_json)
    if plot is not None:
        draw(cases, plot)


def model_case(name: str, config: "ModelConfig") -> "CostCase":
    """A model's shape at some lengths and at its context."""
    from model.studies.kv_cost import CostCase, CostShape

    lengths = [length for length in MODEL_LENGTHS if length < config.context_length]
    return CostCase(name, CostShape.of(config), (*lengths, config.context_length))


def stored_bytes(config: "ModelConfig") -> dict[str, int]:
    """What one position takes up in the native engine's cache, by type."""
    from model.ops.native_ops import kv_bytes_per_token

    return {kind: kv_bytes_per_token(config, kind) for kind in KV_TYPES}  # type: ignore[arg-type]


def cache_note(name: str, bytes_by_type: dict[str, int]) -> str:
    said = ", ".join(f"{count:,} bytes as {kind}" for kind, count in bytes_by_type.items())
    return f"The native engine's cache of {name} holds a position in {said}, scales included."


def overtaken_note(cases: "Sequence[CostCase]") -> str:
    """From which length on attention takes more than the linear maps."""
    said = "; ".join(f"{case.shape.overtaken_at:,} ({case.name})" for case in cases)
    return f"With a cache, attention takes more than the linear maps from this many positions on: {said}."


def cost_table(found: "Sequence[Cost]") -> Table:
    """A row for each shape and length."""
    made = table("Multiplications of all layers", "shape", "n", "with a cache", "without", "ratio")
    for each in found:
        counts = [f"{count:,}" for count in (each.n, each.cached, each.full)]
        made.add_row(harmless(each.shape), *counts, f"{each.ratio:,.2f}")
    return made


def position_table(found: "Sequence[Cost]") -> Table:
    """A row for each shape and length."""
    headings = ("n", "one layer at n", "attention", "numbers cached", "float32 bytes")
    made = table(
        "Multiplications of one layer at position n with a cache, the share of attention, and what the cache holds",
        "shape",
        *headings,
    )
    for each in found:
        share = f"{each.attention_share:.0%}".replace("%", " %")
        counts = [f"{count:,}" for count in (each.n, each.last_position, each.numbers, each.float32_bytes)]
        made.add_row(harmless(each.shape), *counts[:2], share, *counts[2:])
    return made


def draw(cases: "Sequence[CostCase]", path: Path) -> None:
    """Multiplications with and without a cache, and numbers in it, over the number of positions; both log-log."""
    lengths = [2**power for power in range(CURVE_TO.bit_length())]
    with figure(path, 2, size=(9.6, 3.8)) as (left, right):
        for case, colour in zip(cases, COLOURS, strict=False):
            shape = case.shape
            left.plot(lengths, [shape.full(n) for n in lengths], "--", color=colour)
            left.plot(lengths, [shape.cached(n) for n in lengths], color=colour, label=for_plot(case.name))
            right.plot(lengths, [shape.cached_numbers(n) for n in lengths], color=colour)
        left.set(ylabel="multiplications (dashed: without a cache)")
        right.set(ylabel="numbers in the cache")
        for panel in (left, right):
            panel.set(xlabel="positions n", xscale="log", yscale="log")
            panel.grid(alpha=0.3)
        left.legend(frameon=False, fontsize=7)
