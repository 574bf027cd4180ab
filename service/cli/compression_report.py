"""What `tane compress` made, as a table and lines of text. Knows figures as plain values."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from service.cli.console import harmless, results


def show(summary: Mapping[str, Any]) -> None:
    """Print what was made, the error of each kind of matrix, and what to do with it next."""
    report, folder = summary["report"], summary["folder"]
    table = Table(
        title=Text(harmless(f"{summary['recipe']['name']} in {folder}")),
        caption="errors relative to the weights and to the outputs on the text: mean over layers",
        title_justify="left",
        caption_justify="left",
    )
    for heading in ("matrix", "error", "error of outputs", "zeros"):
        table.add_column(heading, justify="left" if heading == "matrix" else "right")
    for row in error_rows(report["layers"]):
        table.add_row(*row)
    if table.row_count:
        results().print(table)
    for line in _notes(summary):
        results().print(harmless(line), soft_wrap=True)


def error_rows(layers: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """For each kind of matrix its name, mean errors and zeros over all layers."""
    kinds = {name: [layer["matrices"][name] for layer in layers] for name in layers[0]["matrices"]}
    return [
        (
            name,
            f"{_mean(figures, 'relative_error'):.4f}",
            "-" if figures[0]["relative_output_error"] is None else f"{_mean(figures, 'relative_output_error'):.4f}",
            f"{sum(each['zeros'] for each in figures):,}",
        )
        for name, figures in kinds.items()
    ]


def _mean(figures: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(sum(each[key] for each in figures)) / len(figures)


def _notes(summary: Mapping[str, Any]) -> list[str]:
    report, folder, calibration = summary["report"], summary["folder"], summary["recipe"].get("calibration")
    notes = [
        f"{folder}: {report['weights']:,} weights of linear layers, {report['bits_per_weight']:.3f} bits each, "
        f"{report['bytes']:,} bytes, {report['zeros']:,} of them zero."
    ]
    if calibration:
        notes.append(
            f"Looked at {calibration['tokens']:,} tokens of {calibration['corpus']}, seed {calibration['seed']}."
        )
    if report["fallbacks"]:
        notes.append(f"{report['fallbacks']} matrices could not be made up for: their inputs have no inverse.")
    if report["most_dampening"] is not None:
        notes.append(f"Dampening of up to {report['most_dampening']:g} was needed.")
    quoted = shlex.quote(folder)
    return [*notes, f"Next: tane eval {quoted}, or tane serve --model {quoted}"]
