"""What several commands say of weights: the formats they are in, and how far formats move them.

Always: the lines for people are made from the plain values that JSON shows.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from service.cli.console import for_terminal

if TYPE_CHECKING:
    from model.compression.rounding import Rounding

Row = tuple[str, str]


def show_rows(rows: Iterable[Row]) -> None:
    """Print one line for each name and its value."""
    rows = list(rows)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:{width}}  {for_terminal(value)}")


def formats(tensors: Iterable[tuple[str, int]]) -> dict[str, dict[str, int]]:
    """From each tensor's format and bytes: how many tensors and bytes are in it, the largest share first."""
    found: dict[str, dict[str, int]] = {}
    for name, size in tensors:
        entry = found.setdefault(name, {"tensors": 0, "bytes": 0})
        entry["tensors"] += 1
        entry["bytes"] += size
    return dict(sorted(found.items(), key=lambda item: -item[1]["bytes"]))


def format_rows(formats: Mapping[str, Mapping[str, int]]) -> list[Row]:
    return [(f"in {name}", f"{share['tensors']} tensors, {share['bytes']:,} bytes") for name, share in formats.items()]


def errors(kept: int, kinds: "Mapping[str, Rounding]") -> dict[str, Any]:
    """How many weights of matrices stay as they were, and how far the others moved, by the kind of their tensor."""
    from model.compression.rounding import NOTHING

    overall = sum(kinds.values(), NOTHING)
    return {
        "kept": kept,
        "rounded": overall.weights,
        "relative_rms_error": overall.relative_rms_error,
        "kinds": {kind: error(each) for kind, each in kinds.items()},
    }


def error(rounding: "Rounding") -> dict[str, Any]:
    return {"weights": rounding.weights, "relative_rms_error": rounding.relative_rms_error}


def error_rows(errors: Mapping[str, Any], rounded: str) -> list[Row]:
    """`rounded` names the line of what moved."""
    rows = [("kept as stored", f"{errors['kept']:,} weights")]
    if errors["rounded"]:
        rows += [
            (rounded, f"{errors['rounded']:,} weights"),
            ("relative error", f"{percent(errors['relative_rms_error'])}: {error_list(errors['kinds'])}"),
        ]
    return rows


def error_list(errors: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(f"{name} {percent(each['relative_rms_error'])}" for name, each in errors.items())


def percent(share: float) -> str:
    """With three figures: errors of formats differ by factors of thousands."""
    return f"{100 * share:#.3g} %"
