"""`tane info`: what a model file says, without running it."""

import dataclasses
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.cli.console import write_json
from service.cli.loading import load_checkpoint, read_settings
from service.cli.options import model_argument, settings_options
from service.cli.weight_table import error_rows, errors, format_rows, formats, show_rows

if TYPE_CHECKING:
    from model.loading.checkpoint import Checkpoint
    from model.ops.native_forms import WeightType

FLOAT32_BYTES = 4


@click.command()
@model_argument
@click.option("--model", "named", metavar="PATH", type=click.Path(), help="Another way to name MODEL.")
@settings_options("weights")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def info(model: str | None, named: str | None, as_json: bool, **flags: Any) -> None:
    """Check a model and show what it says.

    MODEL is a GGUF file, a folder, or a name as `tane models` lists them; without it, what `tane serve` would serve.

    Weights that the native op set cannot keep as stored are rounded as it would round them when it loads, and the
    error is shown.

    \b
    Examples:
      tane info
      tane info ./other.gguf --weights int4
      tane info --json
    """
    if model is not None and named is not None:
        raise click.UsageError("MODEL and --model are the same thing; give one of them")
    settings = read_settings({"model": named if model is None else model, **flags})
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
        "formats": formats((each.format.name, each.stored_bytes) for each in checkpoint.tensors.values()),
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
    return {**errors(loaded.kept, loaded.rounded), "rounded_to": weight_type if loaded.rounded else None}


def show(description: Mapping[str, Any]) -> None:
    """Print the description, one line for each name and its value."""
    show_rows(_rows(description))


def _rows(description: Mapping[str, Any]) -> list[tuple[str, str]]:
    config = description["config"]
    vocabulary = description["vocabulary"]
    defaults = {name: value for name, value in description["defaults"].items() if value is not None}
    not_applied = defaults.pop("not_applied")
    return [
        *((name, description[name]) for name in ("name", "path", "sha256")),
        *(
            (name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
            for name, value in config.items()
        ),
        ("parameters", f"{description['parameters']:,}"),
        *format_rows(description["formats"]),
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
        *([("not applied", ", ".join(not_applied))] if not_applied else []),
        *_recipe_rows(description["recipe"]),
    ]


def _recipe_rows(recipe: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """How a compressed model came about: what is a single value."""
    single = {name: value for name, value in (recipe or {}).items() if not isinstance(value, dict | list)}
    return [("recipe", ", ".join(f"{name} {value}" for name, value in single.items()))] if single else []


def _native_rows(native: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "refused" in native:
        return [("native", f"refused: {native['refused']}")]
    return error_rows(native, f"rounded to {native['rounded_to']}")
