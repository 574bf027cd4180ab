"""A recipe from the options of a command: by its name, or part by part.

Knows how parts are spelled in a name and nothing of what they do. Always: options and names mean the same recipes, and
a bad one is refused in the words of `model.compression.recipe`.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from model.compression.recipe import Recipe

Command = TypeVar("Command", bound=Callable[..., Any])
FORMS: Mapping[str, str] = {"affine": "", "symmetric": "-sym", "minimum": "-min", "uniform": "-uniform"}
PARTS = ("ffn", "heads", "layers", "prune", "sparsity", "quantise", "bits", "group", "form", "range", "refit")


def recipe_options(command: Command) -> Command:
    """Add --recipe, and an option for each part of one."""
    options = (
        click.option("--recipe", metavar="NAME", help="A recipe by name; --list shows the usual ones."),
        click.option("--ffn", metavar="PERCENT", help="Remove so many per cent of the feed-forward neurons."),
        click.option(
            "--heads", metavar="PERCENT", help="Remove so many per cent of the key heads, with their queries."
        ),
        click.option("--layers", metavar="PERCENT", help="Remove so many per cent of the layers."),
        click.option(
            "--prune",
            type=click.Choice(["magnitude", "obd", "saliency", "wanda", "sparsegpt", "obc"]),
            help="Set weights to zero, chosen by this method.",
        ),
        click.option("--sparsity", metavar="PERCENT|NofM", help="How many of them: 50, or 2of4.  [default: 50]"),
        click.option("--quantise", type=click.Choice(["rtn", "gptq"]), help="Round to nearest, or make up for errors."),
        click.option("--bits", metavar="N", help="Bits of a weight, 1 to 8.  [default: 4]"),
        click.option("--group", metavar="N|row|matrix", help="Columns that share a scale.  [default: 64]"),
        click.option("--form", type=click.Choice(list(FORMS)), help="Where the levels lie.  [default: affine]"),
        click.option("--range", metavar="max|search|PERCENTILE", help="How far the levels reach.  [default: max]"),
        click.option("--refit", is_flag=True, default=None, help="Fit what is left to the inputs once more."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def take_recipe(given: dict[str, Any], dampening: float) -> "Recipe":
    """The recipe that the options say; they are taken out of `given`. Raises RecipeError, click.UsageError."""
    from model.compression.recipe import parse

    name = given.pop("recipe")
    parts = {part: given.pop(part) for part in PARTS}
    named = [f"--{part}" for part, value in parts.items() if value is not None]
    if name is None and not named:
        raise click.UsageError("say what to do with --recipe NAME (--list shows the usual ones), or part by part")
    if name is not None and named:
        raise click.UsageError(f"--recipe says everything; leave out {', '.join(named)}")
    return parse(name_of(parts) if name is None else name, dampening=dampening)


def name_of(parts: Mapping[str, Any]) -> str:
    """The name of a recipe that is given part by part. Raises click.UsageError for a detail of nothing."""
    _check_owner(parts, "prune", ("sparsity",))
    _check_owner(parts, "quantise", ("bits", "group", "form", "range"))
    names = [f"{unit}-{parts[unit]}" for unit in ("ffn", "heads", "layers") if parts[unit] is not None]
    if parts["prune"] is not None:
        names.append(f"{parts['prune']}-{_given(parts, 'sparsity', '50')}")
    if parts["quantise"] is not None:
        names.append(_grid_name(parts))
    return "+".join([*names, *(["refit"] if parts["refit"] else [])])


def _grid_name(parts: Mapping[str, Any]) -> str:
    group = _given(parts, "group", "64")
    where = f"g{group}" if group.isdecimal() else group
    reach = _given(parts, "range", "max")
    range_name = {"max": "", "search": "-clip"}.get(reach, f"-p{reach}")
    method, form = parts["quantise"], _given(parts, "form", "affine")
    if (method, form) == ("rtn", "uniform"):
        method, form = "uniform", "affine"
    return f"{method}-{_given(parts, 'bits', '4')}bit-{where}{FORMS[form]}{range_name}"


def _given(parts: Mapping[str, Any], name: str, default: str) -> str:
    return default if parts[name] is None else str(parts[name])


def _check_owner(parts: Mapping[str, Any], owner: str, details: tuple[str, ...]) -> None:
    if parts[owner] is None:
        for detail in details:
            if parts[detail] is not None:
                raise click.UsageError(f"--{detail} needs --{owner}")
