"""`tane export`: a model as a GGUF file that other programs load.

Always: the file appears whole or not at all, and nothing is replaced unless that was asked for.
"""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from service.cli.console import Failure, Unusable, count_bar, write_json
from service.cli.loading import load_checkpoint, model_errors, read_settings
from service.cli.options import model_argument
from service.cli.weight_table import Row, error, error_list, error_rows, errors, format_rows, formats, show_rows

if TYPE_CHECKING:
    from model.compression.gguf_choice import Wanted
    from model.compression.gguf_writer import Outcome
    from model.loading.checkpoint import Checkpoint

FORMATS = ("auto", "q4_0", "q4_1", "q8_0", "f16")
MOST_NAMED = 8
"""Tensors whose errors are told one by one; JSON has all."""


@click.command()
@model_argument
@click.option("--out", required=True, metavar="FILE.gguf", type=click.Path(path_type=Path), help="Where it is written.")
@click.option(
    "--format",
    "wanted",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    help="Of the linear layers; with auto each matrix gets the smallest that holds it exactly, else F16.",
)
@click.option("--force", is_flag=True, help="Replace FILE.gguf when it is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def export(*, model: str | None, out: Path, wanted: str, force: bool, as_json: bool) -> None:
    """Write a model as a GGUF file for other programs.

    MODEL is a GGUF file, a folder, or a name as `tane models` lists them; without it, what `tane serve` would serve.

    With a format, embedding and head stay in the blocks that they are stored in, or else become Q8_0 (with f16, F16).
    What a format does not hold exactly is named, with its error. Gains become F32.

    \b
    Examples:
      tane export ./gptq-4bit-g64 --out model.gguf
      tane export ./gptq-4bit-g64 --format q4_1 --out model.gguf --force
      tane export model.gguf --format q8_0 --out model-q8_0.gguf --json
    """
    _check_place(out, force)
    source, checkpoint = load_checkpoint(read_settings({"model": model}))
    _check_source(out, source)
    description = describe(out, checkpoint, _write(out, checkpoint, wanted, force))
    if as_json:
        write_json(description)
    else:
        show_rows(_rows(description))


def _check_place(out: Path, force: bool) -> None:
    """Before the model is read, so that a bad place is told at once."""
    if out.is_dir():
        raise Unusable(f"--out {out} is a folder")
    if not out.parent.is_dir():
        raise Unusable(f"--out {out} cannot be written: there is no folder {out.parent}")
    if out.exists() and not force:
        raise _exists(out)


def _check_source(out: Path, source: Path) -> None:
    """A model is never replaced by what became of it."""
    place = out.resolve()
    if source.resolve() in (place, *place.parents):
        raise Unusable(f"--out {out} is the model itself, or lies in its folder; name another file")


def _exists(out: Path) -> Unusable:
    return Unusable(f"--out {out} exists; name another file, or replace it with --force")


def _write(out: Path, checkpoint: "Checkpoint", wanted: str, force: bool) -> "Outcome":
    from model.compression.gguf_writer import write_gguf

    format = cast("Wanted", wanted if wanted == "auto" else wanted.upper())
    try:
        with model_errors(), count_bar("writing", len(checkpoint.tensors)) as on_tensor:
            return write_gguf(out, checkpoint, format, overwrite=force, on_tensor=on_tensor)
    except FileExistsError:
        raise _exists(out) from None
    except OSError as error:
        raise Failure(f"{out} cannot be written: {error.strerror}") from error
    except ValueError as error:
        raise Unusable(str(error)) from error


def describe(out: Path, checkpoint: "Checkpoint", outcome: "Outcome") -> dict[str, Any]:
    """What was written, as plain values."""
    from model.compression.rounding import by_kind

    matrices = sum(prod(tensor.shape) for tensor in checkpoint.tensors.values() if len(tensor.shape) > 1)
    rounded = sum(each.weights for each in outcome.rounded.values())
    return {
        "path": str(out),
        "bytes": out.stat().st_size,
        "name": checkpoint.name,
        "formats": formats(
            (format.name, prod(checkpoint.tensors[name].shape) // format.block_size * format.block_bytes)
            for name, format in outcome.formats.items()
        ),
        **errors(matrices - rounded, by_kind(outcome.rounded)),
        "tensors": {
            name: {"format": outcome.formats[name].name, **error(each)} for name, each in outcome.rounded.items()
        },
    }


def _rows(description: Mapping[str, Any]) -> list[Row]:
    return [
        ("path", description["path"]),
        ("bytes", f"{description['bytes']:,}"),
        *format_rows(description["formats"]),
        *error_rows(description, "rounded"),
        *_worst_rows(description["tensors"]),
    ]


def _worst_rows(tensors: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    worst = sorted(tensors.items(), key=lambda item: -item[1]["relative_rms_error"])
    if not worst:
        return []
    rest = f", and {len(worst) - MOST_NAMED} more" if len(worst) > MOST_NAMED else ""
    return [("not exact", error_list(dict(worst[:MOST_NAMED])) + rest)]
