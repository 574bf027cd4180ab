"""The figures of `tane eval` as lines of text and as a plot. Knows figures as plain values."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from service.cli.plotting import COLOURS, figure, for_plot
from service.cli.weight_table import Row, show_rows

PERCENT = 100


def show(figures: Mapping[str, Any]) -> None:
    """Print the figures, one line for each."""
    show_rows(_rows(figures))


def draw_errors(errors: Mapping[str, float], model: str, path: Path) -> None:
    """Draw the relative error of each kind of matrix along the layers."""
    with figure(path, size=(8, 3.8)) as (panel,):
        for index, (kind, points) in enumerate(by_kind(errors).items()):
            colour, style = COLOURS[index % len(COLOURS)], "-" if index < len(COLOURS) else "--"
            panel.plot(*zip(*points, strict=True), style, marker="o", markersize=3, color=colour, label=kind)
        panel.set(xlabel="layer", ylabel="relative error of the weights", ylim=(0, None), title=for_plot(model))
        panel.grid(alpha=0.3)
        if errors:
            panel.legend(frameon=False, ncols=2)


def by_kind(errors: Mapping[str, float]) -> dict[str, list[tuple[int, float]]]:
    """For each kind of matrix (`query`, `down` …) its layers, ascending, with their errors."""
    found: dict[str, list[tuple[int, float]]] = {}
    for name, error in errors.items():
        _, layer, kind = name.split(".")
        found.setdefault(kind.replace("_", " "), []).append((int(layer), error))
    return {kind: sorted(points) for kind, points in found.items()}


def _rows(figures: Mapping[str, Any]) -> list[Row]:
    half = figures["second_half"]
    return [
        ("model", figures["model"]),
        ("text", f"{figures['tokens']:,} tokens of {len(figures['documents'])} documents: {figures['corpus']}"),
        ("perplexity", f"{figures['perplexity']:.3f}, second halves of windows {half['perplexity']:.3f}"),
        *(_compared_rows(figures) if figures["against"] is not None else []),
        ("bits per weight", f"{figures['bits_per_weight']:.3f} in the linear layers"),
        ("bytes", f"{figures['bytes']:,}"),
        ("zeros", f"{PERCENT * figures['zeros']:.2f} % of the linear layers"),
        ("speed", _speed(figures["tokens_per_second"])),
    ]


def _compared_rows(figures: Mapping[str, Any]) -> list[Row]:
    half = figures["second_half"]
    by_window = figures["window_standard_error_percent"]
    windows = "" if by_window is None else f", by windows ± {by_window:.2f} %"
    return [
        ("against", f"{figures['against']}, perplexity {figures['reference_perplexity']:.3f}"),
        (
            "relative",
            f"{figures['relative_perplexity_percent']:+.2f} ± {figures['standard_error_percent']:.2f} %{windows}, "
            f"second halves {half['relative_perplexity_percent']:+.2f} ± {half['standard_error_percent']:.2f} %",
        ),
        (
            "divergence",
            f"mean {figures['mean_divergence']:.4f}, 99 % below {figures['divergence_99_percent']:.3f} nats",
        ),
        ("same first choice", f"{figures['same_top_percent']:.1f} %"),
        (
            "as a draft",
            f"{PERCENT * figures['acceptance']:.1f} % of {figures['acceptance_tokens']} greedy tokens guessed",
        ),
        ("errors", _errors(figures["layer_errors"])),
    ]


def _errors(errors: Mapping[str, float]) -> str:
    if not errors:
        return "no matrix has the shape that it has in the reference"
    worst = max(errors, key=errors.__getitem__)
    return f"mean {fmean(errors.values()):.4f}, greatest {errors[worst]:.4f} ({worst})"


def _speed(tokens_per_second: float | None) -> str:
    if tokens_per_second is None:
        return "the native op set cannot run it"
    return f"{tokens_per_second:.1f} tokens/s, one stream, native"
