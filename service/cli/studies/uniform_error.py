"""`tane study uniform-error`: the error of uniform quantisation beside its bounds, and what one outlier does."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from service.cli.console import count_bar
from service.cli.plotting import COLOURS, figure
from service.cli.studies.common import list_of, output_options, table, write

if TYPE_CHECKING:
    from model.studies.uniform_error import UniformErrorStudy

MOST = 2048


@click.command()
@click.option(
    "--bits", callback=list_of(click.IntRange(1, 8)), metavar="LIST", default="8,7,6,5,4,3,2,1", show_default=True
)
@click.option("--rows", type=click.IntRange(1, MOST), default=64, show_default=True, help="Of the matrix.")
@click.option("--columns", type=click.IntRange(1, MOST), default=48, show_default=True, help="Of the matrix.")
@click.option("--seed", type=click.IntRange(0), default=20261010, show_default=True, help="Of the matrix.")
@click.option(
    "--outlier-bits", type=click.IntRange(1, 8), default=4, show_default=True, help="Of the grids with an outlier."
)
@output_options("errors, bounds and model against bits, and the outlier's errors")
def uniform_error(
    *,
    bits: tuple[int, ...],
    rows: int,
    columns: int,
    seed: int,
    outlier_bits: int,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Measure uniform quantisation of a random matrix (definition 8.1, proposition 8.2, section 8).

    Levels are -a + jΔ with a = max |W| and Δ = 2a/(2^b - 1). No weight moves more than Δ/2; the norm of the error is at
    most (Δ/2)·√(mn), and Δ·√(mn/12) if errors were spread evenly. Below: the same matrix with one weight of 1.

    \b
    Examples:
      tane study uniform-error
      tane study uniform-error --rows 512 --columns 512 --seed 1
      tane study uniform-error --plot uniform-error.svg
    """
    from model.studies.uniform_error import study

    with count_bar("quantising", len(bits)) as on_row:
        found = study(bits=bits, rows=rows, columns=columns, seed=seed, outlier_bits=outlier_bits, on_row=on_row)
    write([error_table(found), outlier_table(found)], [], asdict(found), as_json=as_json)
    if plot is not None:
        draw(found, plot)


def error_table(found: "UniformErrorStudy") -> Table:
    """A row for each number of bits."""
    made = table(
        f"{found.rows} × {found.columns} weights, seed {found.seed}, a = max |W| = {found.reach:.4f}",
        *("b", "levels", "Δ", "max |err|", "Δ/2", "‖W-Q‖", "bound", "Δ√(mn/12)", "‖(W-Q)x‖", "bound"),
    )
    for row in found.by_bits:
        bits, levels, *numbers = asdict(row).values()
        made.add_row(str(bits), str(levels), *(f"{number:.5f}" for number in numbers))
    return made


def outlier_table(found: "UniformErrorStudy") -> Table:
    """A row for each way to choose the range."""
    made = table(
        f"With one weight of 1, b = {found.outlier_bits}",
        *("range", "greatest a", "‖W-Q‖", "levels in use", "error at the outlier"),
    )
    for row in found.outlier:
        made.add_row(
            row.range, f"{row.reach:.4f}", f"{row.norm:.5f}", f"{row.levels_in_use:,}", f"{row.outlier_error:.4f}"
        )
    return made


def draw(found: "UniformErrorStudy", path: Path) -> None:
    """Norms over bits on a logarithmic scale; a bar for each range with the outlier."""
    rows = sorted(found.by_bits, key=lambda row: row.bits)
    bits = [row.bits for row in rows]
    with figure(path, 2, size=(9, 3.4)) as (left, right):
        left.plot(bits, [row.norm_bound for row in rows], "--", color=COLOURS[5], label="bound (Δ/2)√(mn)")
        left.plot(bits, [row.norm_model for row in rows], "-", color=COLOURS[1], label="model Δ√(mn/12)")
        left.plot(bits, [row.norm for row in rows], "o", color=COLOURS[0], label="measured")
        left.set(xlabel="bits b", ylabel="‖W - Q(W)‖", yscale="log", xticks=bits)
        left.grid(alpha=0.3)
        left.legend(frameon=False)
        names = [row.range.replace(" without", "\nwithout").replace(" of each", "\nof each") for row in found.outlier]
        right.bar(names, [row.norm for row in found.outlier], 0.5, color=COLOURS[:3])
        right.set(title=f"one weight of 1, {found.outlier_bits} bits", ylabel="‖W - Q(W)‖")
        right.grid(alpha=0.3, axis="y")
