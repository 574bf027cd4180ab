"""The figures of compressed models as tables for the documentation and as plots. Knows figures as plain values."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from service.cli.plotting import COLOURS, figure
from tests.bench.record import markdown_table

PERCENT = 100
MOST_PERPLEXITY = 10
"""Times that of the model as published: what is drawn."""
TICKS = (5, 10, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200, 300, 500, 1000)
MEGABYTE = 1e6
DRAWN = (
    "rtn-4bit-g64",
    "gptq-4bit-g64",
    "rtn-3bit-g64",
    "gptq-3bit-g64",
    "magnitude-50",
    "wanda-50",
    "sparsegpt-50",
    "sparsegpt-50+gptq-4bit-g64",
)
"""The recipes whose errors are drawn layer by layer."""
HEADINGS = (
    "recipe",
    "bits a weight",
    "MB",
    "zeros",
    "perplexity",
    "relative",
    "mean KL",
    "99 % KL",
    "same first choice",
    "α as a draft",
    "tokens/s",
    "speed",
    "damping",
    "fallbacks",
)


def table(figures: Mapping[str, Any]) -> str:
    """All tables, with the command that makes them."""
    rows = [_dense_row(figures["dense"]), *(_row(row) for row in figures["rows"])]
    parts = [markdown_table(HEADINGS, rows), _note(figures)]
    if figures["pairs"]:
        parts += ["### In pairs", markdown_table(("recipe", "than", "perplexity", "standard errors"), _pairs(figures))]
    if figures["checks"]:
        parts += ["### Beside a simulation and beside float32", _checks(figures)]
    return "\n\n".join(parts)


def draw_sizes(figures: Mapping[str, Any], path: Path) -> None:
    """Perplexity against megabytes on disk, with the frontier of those that nothing smaller beats.

    What is more than ten times as perplexed as the model as published is named in a note in place of a point.
    """
    dense = (figures["dense"]["bytes"] / MEGABYTE, figures["dense"]["perplexity"], "as published")
    every = [(row["bytes"] / MEGABYTE, row["perplexity"], row["recipe"]) for row in figures["rows"]]
    points = [point for point in every if point[1] <= MOST_PERPLEXITY * dense[1]]
    beyond = [f"{name} {perplexity:,.0f}" for _, perplexity, name in every if perplexity > MOST_PERPLEXITY * dense[1]]
    with figure(path, size=(9, 7)) as (panel,):
        best = frontier([*points, dense])
        panel.plot([x for x, _, _ in best], [y for _, y, _ in best], color=COLOURS[5], linewidth=1, zorder=1)
        panel.scatter([x for x, _, _ in points], [y for _, y, _ in points], s=14, color=COLOURS[0], zorder=2)
        panel.scatter(*dense[:2], s=30, color=COLOURS[1], marker="D", zorder=3)
        for x, y, name in [*points, dense]:
            panel.annotate(name, (x, y), textcoords="offset points", xytext=(4, 3), fontsize=6)
        panel.set(xlabel="megabytes on disk", ylabel="perplexity", yscale="log")
        ticks = [tick for tick in TICKS if dense[1] / 2 < tick <= MOST_PERPLEXITY * dense[1]]
        panel.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
        panel.set_yticks([], minor=True)
        panel.set_xmargin(0.12)
        panel.grid(alpha=0.3)
        if beyond:
            panel.set_title("beyond: " + ", ".join(beyond), fontsize=6)


def draw_errors(figures: Mapping[str, Any], path: Path) -> None:
    """The mean relative error of a layer's matrices, along the layers."""
    rows = {row["recipe"]: row["errors"] for row in figures["rows"]}
    with figure(path, size=(8, 4)) as (panel,):
        for index, name in enumerate(each for each in DRAWN if rows.get(each)):
            colour, style = COLOURS[index % len(COLOURS)], "-" if index < len(COLOURS) else "--"
            panel.plot(rows[name], style, color=colour, label=name)
        panel.set(xlabel="layer", ylabel="relative error of the weights", ylim=(0, None))
        panel.grid(alpha=0.3)
        panel.legend(frameon=False, ncols=2)


def frontier(points: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Of (size, perplexity, name) those that no other as small or smaller beats, by size ascending."""
    best: list[tuple[float, float, str]] = []
    for point in sorted(points):
        if not best or point[1] < best[-1][1]:
            best.append(point)
    return best


def _dense_row(dense: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        "as published",
        f"{dense['bits_per_weight']:.3f}",
        f"{dense['bytes'] / MEGABYTE:.1f}",
        f"{PERCENT * dense['zeros']:.1f} %",
        f"{dense['perplexity']:.3f}",
        *("–",) * 5,
        f"{dense['tokens_per_second']:.0f}",
        "1.00×",
        *("–",) * 2,
    )


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["recipe"],
        f"{row['bits_per_weight']:.3f}",
        f"{row['bytes'] / MEGABYTE:.1f}",
        f"{PERCENT * row['zeros']:.1f} %",
        _large(row["perplexity"]),
        f"{_signed(row['relative_perplexity_percent'])} ± {_large(row['standard_error_percent'], 2)} %",
        f"{row['mean_divergence']:.4f}",
        f"{row['divergence_99_percent']:.3f}",
        f"{row['same_top_percent']:.1f} %",
        f"{PERCENT * row['acceptance']:.1f} %",
        f"{row['tokens_per_second']:.0f}",
        f"{row['speed_ratio']:.2f}×",
        "–" if row["damping"] is None else f"{row['damping']:g}",
        "–" if row["fallbacks"] is None else str(row["fallbacks"]),
    )


def _large(number: float, places: int = 3) -> str:
    """With so many decimals while they mean something."""
    return f"{number:.{places}f}" if number < PERCENT else f"{number:,.0f}"


def _signed(percent: float) -> str:
    return f"{percent:+.2f}" if abs(percent) < PERCENT else f"{percent:+,.0f}"


def _pairs(figures: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            pair["recipe"],
            pair["than"],
            f"{pair['relative_perplexity_percent']:+.2f} ± {pair['standard_error_percent']:.2f} %",
            f"{pair['standard_errors']:+.1f}",
        )
        for pair in figures["pairs"]
    ]


def _checks(figures: Mapping[str, Any]) -> str:
    headings = ("recipe", "tokens", "native", "simulation", "native beside it", "float32", "native beside it")
    rows = [
        (
            check["recipe"],
            f"{check['tokens']:,}",
            f"{check['native_perplexity']:.3f}",
            *_check(check["simulated"]),
            *_check(check["float32"]),
        )
        for check in figures["checks"]
    ]
    return markdown_table(headings, rows)


def _check(found: Mapping[str, Any]) -> tuple[str, str]:
    relative = f"{found['native_relative_percent']:+.3f} ± {found['standard_error_percent']:.3f} %"
    return f"{found['perplexity']:.3f}", relative


def _note(figures: Mapping[str, Any]) -> str:
    calibrations = {
        f"{row['calibration']['tokens']:,} tokens of {row['calibration']['corpus']}"
        f" (seed {row['calibration']['seed']}, hash {row['calibration']['corpus_sha256'][:12]})"
        for row in figures["rows"]
        if row["calibration"]
    }
    lines = [
        f"{figures['model']}, {figures['tokens']:,} tokens of {len(figures['documents'])} documents "
        f"({figures['corpus']}, hash {figures['corpus_sha256'][:12]}), windows of {figures['window']}, through the "
        "native engine. *relative* is how much greater the perplexity is than that of the model as published, ± the "
        "standard error of the paired differences token by token; KL in nats from the model as published; *bits a "
        "weight* of the linear layers, *MB* of the whole model on disk; *α* is the share of "
        f"{figures['acceptance_tokens']} greedy tokens of the model as published, behind {figures['prompts']} prompts, "
        "that the compressed one guesses; *speed* is against the model as published, run in turn.",
        *([f"Calibrated on {' and '.join(sorted(calibrations))}."] if calibrations else []),
        *(f"{each['recipe']} does not run on the native engine: {each['reason']}." for each in figures["refused"]),
        f"`{figures['command']}`",
    ]
    return " ".join(lines)


def layer_means(errors: Mapping[str, float]) -> list[float] | None:
    """For each layer the mean error of its matrices; None where there are none to compare."""
    by_layer: dict[int, list[float]] = {}
    for name, error in errors.items():
        by_layer.setdefault(int(name.split(".")[1]), []).append(error)
    return [math.fsum(by_layer[layer]) / len(by_layer[layer]) for layer in sorted(by_layer)] or None
