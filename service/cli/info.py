"""`tane info`: what a model file says, without running it."""

import dataclasses
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.cli.console import for_terminal, write_json
from service.cli.loading import load_checkpoint, read_settings
from service.cli.options import settings_options

if TYPE_CHECKING:
    from model.loading.checkpoint import Checkpoint
    from model.loading.tensor import StoredTensor
    from model.ops.native_forms import WeightType

FLOAT32_BYTES = 4


@click.command()
@settings_options("model", "weights")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def info(as_json: bool, **flags: Any) -> None:
    """Check a model file, or the folder of a compressed model, and show what it says.

    Weights that the native op set cannot keep as stored are rounded as it would round them when it loads, and the
    error is shown.

    \b
    Examples:
      tane info
      tane info --model ./other.gguf --weights int4
      tane info --json
    """
    settings = read_settings(flags)
    path, checkpoint = load_checkpoint(settings)
    description = describe(path, checkpoint, settings.weights)
    if as_json:
        write_json(description)
    else:
        show(description)


def describe(path: Path, checkpoint: "Checkpoint", weight_type: "WeightType") -> dict[str, Any]:
    """The model's name, hash, shape, formats, sizes, vocabulary and defaults, as plain values."""
    vocabulary = checkpoint.vocabulary
    numbers = checkpoint.config.cached_numbers_per_position
    return {
        "name": checkpoint.name,
        "path": str(path),
        "sha256": checkpoint.sha256,
        "config": dataclasses.asdict(checkpoint.config),
        "parameters": sum(prod(tensor.shape) for tensor in checkpoint.tensors.values()),
        "formats": _formats(checkpoint.tensors),
        "native_weights": _native_weights(checkpoint, weight_type),
        "cache": {"numbers_per_token": numbers, "float32_bytes_per_token": numbers * FLOAT32_BYTES},
        "vocabulary": {
            "tokens": len(vocabulary.tokens),
            "merges": len(vocabulary.merges),
            "pre_tokenizer": vocabulary.pre_tokenizer,
            "control_tokens": len(vocabulary.control_token_ids),
            "eos_token_ids": sorted(vocabulary.eos_token_ids),
        },
        "chat_template": checkpoint.chat_template is not None,
        "defaults": dataclasses.asdict(checkpoint.defaults),
        "recipe": checkpoint.recipe,
    }


def _native_weights(checkpoint: "Checkpoint", weight_type: "WeightType") -> dict[str, Any]:
    """How many weights of matrices the native op set keeps as stored, and how far it moves the others."""
    from model.ops.weight_error import weights_as_loaded

    try:
        loaded = weights_as_loaded(checkpoint, weight_type)
    except ValueError as error:
        return {"refused": str(error)}
    kinds = {
        kind: {"weights": each.weights, "relative_rms_error": each.relative_rms_error}
        for kind, each in loaded.rounded.items()
    }
    return {
        "kept": loaded.kept,
        "rounded": loaded.overall.weights,
        "rounded_to": weight_type if kinds else None,
        "relative_rms_error": loaded.overall.relative_rms_error,
        "kinds": kinds,
    }


def _formats(tensors: Mapping[str, "StoredTensor"]) -> dict[str, dict[str, int]]:
    """For each block format how many tensors and bytes are stored in it, the largest share first."""
    found: dict[str, dict[str, int]] = {}
    for tensor in tensors.values():
        entry = found.setdefault(tensor.format.name, {"tensors": 0, "bytes": 0})
        entry["tensors"] += 1
        entry["bytes"] += tensor.stored_bytes
    return dict(sorted(found.items(), key=lambda item: -item[1]["bytes"]))


def show(description: Mapping[str, Any]) -> None:
    """Print the description, one line for each name and its value."""
    rows = _rows(description)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:{width}}  {for_terminal(value)}")


def _rows(description: Mapping[str, Any]) -> list[tuple[str, str]]:
    config = description["config"]
    vocabulary = description["vocabulary"]
    defaults = {name: value for name, value in description["defaults"].items() if value is not None}
    return [
        *((name, description[name]) for name in ("name", "path", "sha256")),
        *(
            (name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
            for name, value in config.items()
        ),
        ("parameters", f"{description['parameters']:,}"),
        *(
            (f"in {name}", f"{share['tensors']} tensors, {share['bytes']:,} bytes")
            for name, share in description["formats"].items()
        ),
        *_native_rows(description["native_weights"]),
        ("cache", f"{description['cache']['float32_bytes_per_token']:,} bytes a token in float32"),
        (
            "vocabulary",
            f"{vocabulary['tokens']:,} tokens, {vocabulary['merges']:,} merges, "
            f"pre-tokenizer {vocabulary['pre_tokenizer']}",
        ),
        ("end of text", ", ".join(map(str, vocabulary["eos_token_ids"])) or "none"),
        ("chat template", "yes" if description["chat_template"] else "no"),
        ("defaults", ", ".join(f"{name} {value}" for name, value in defaults.items()) or "none"),
        *_recipe_rows(description["recipe"]),
    ]


def _recipe_rows(recipe: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """How a compressed model came about: what is a single value."""
    single = {name: value for name, value in (recipe or {}).items() if not isinstance(value, dict | list)}
    return [("recipe", ", ".join(f"{name} {value}" for name, value in single.items()))] if single else []


def _native_rows(native: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "refused" in native:
        return [("native", f"refused: {native['refused']}")]
    rows = [("kept as stored", f"{native['kept']:,} weights")]
    if native["rounded"]:
        errors = ", ".join(f"{kind} {_percent(each['relative_rms_error'])}" for kind, each in native["kinds"].items())
        rows += [
            (f"rounded to {native['rounded_to']}", f"{native['rounded']:,} weights"),
            ("relative error", f"{_percent(native['relative_rms_error'])}: {errors}"),
        ]
    return rows


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
