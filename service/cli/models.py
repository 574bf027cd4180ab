"""`tane models`: which models are at hand."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from service.cli.console import Failure, harmless, loading_bar, results, write_json
from service.cli.loading import model_errors, read_settings
from service.cli.options import settings_options

if TYPE_CHECKING:
    from model.loading.at_hand import ModelAtHand

HEADINGS = ("name", "state", "size", "architecture", "parameters", "format", "licence")
COMMIT_CHARACTERS = 12


@click.command()
@click.argument("folder", required=False, default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--verify", is_flag=True, help="Compare the hash of every file, not only its size.")
@settings_options("cache_folder")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def models(folder: Path, verify: bool, as_json: bool, **flags: Any) -> None:
    """List the models that are at hand.

    These are the models of the catalogue, pulled or not, those pulled from the Hugging Face hub, and the compressed
    ones in FOLDER, which is the current folder if it is left out. Every command takes the names as MODEL.

    A model is ready, absent, partial when its pull or its compression was interrupted (the same command goes on with
    it), or damaged. With --verify the exit code is 1 when one is damaged.

    \b
    Examples:
      tane models
      tane models --verify
      tane models ./compressed --json
    """
    from model.loading.at_hand import models_at_hand

    settings = read_settings(flags)
    try:
        with model_errors(), loading_bar("comparing hashes" if verify else "looking for models"):
            found = models_at_hand(settings.models_folder, folder, verify=verify)
    except OSError as error:
        raise Failure(f"the models cannot be listed: {error}") from error
    if as_json:
        write_json([{**dataclasses.asdict(model), "path": str(model.path)} for model in found])
    else:
        show(found)
    if verify and any(model.state == "damaged" for model in found):
        raise click.exceptions.Exit(1)


def show(found: "list[ModelAtHand]") -> None:
    """Print a table, and below it where each model is and what is wrong with it."""
    table = Table()
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading in ("size", "parameters") else "left", overflow="fold")
    for model in found:
        table.add_row(*(Text(harmless(cell)) for cell in cells(model)))
    results().print(table)
    for model in found:
        if model.state != "absent":
            click.echo(harmless(line(model)))


def cells(model: "ModelAtHand") -> tuple[str, ...]:
    """In the order of the headings."""
    return (
        model.name,
        model.state,
        f"{model.bytes / 1e6:,.1f} MB",
        model.architecture or "",
        f"{model.parameters / 1e6:,.1f} M" if model.parameters is not None else "",
        model.format or "",
        model.license or "",
    )


def line(model: "ModelAtHand") -> str:
    commit = f", commit {model.commit[:COMMIT_CHARACTERS]}" if model.commit else ""
    problem = f": {model.problem}" if model.problem else ""
    return f"{model.name}: {model.path}{commit}{problem}"
