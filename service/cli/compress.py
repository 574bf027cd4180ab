"""`tane compress`: quantise and prune a model, into a folder that every command and the server take for a model."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.cli.compression_report import show
from service.cli.console import Failure, Unusable, count_bar, harmless, loading_bar, messages, write_json
from service.cli.loading import load_checkpoint, model_errors, read_settings
from service.cli.options import model_argument, refuse_without_effect, settings_options
from service.cli.recipe_options import recipe_options, take_recipe
from service.op_sets import usable_cores

if TYPE_CHECKING:
    from model.compression.recipe import Recipe
    from model.evaluation.corpus import Window
    from model.loading.checkpoint import Checkpoint


TEXT_OPTIONS = ("corpus", "windows", "window", "seed")


def list_recipes(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """A click callback: print the usual recipes and end."""
    if value:
        from model.compression.recipe import RECIPES

        click.echo("\n".join(RECIPES))
        context.exit()


@click.command()
@model_argument
@recipe_options
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=list_recipes, help="Name recipes.")
@click.option(
    "--out",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Folder to make; default: the names of model and recipe, here.",
)
@click.option("--name", help="Name that the model is served under; default: the folder's.")
@click.option(
    "--corpus",
    type=click.Path(exists=True, path_type=Path),
    help="Text to look at: a file, or a folder of .txt; default: addresses of 1900 to 1990, fetched once.",
)
@click.option("--windows", type=click.IntRange(1), default=32, show_default=True, help="Pieces of text.")
@click.option("--window", type=click.IntRange(2), default=512, show_default=True, help="Tokens in each.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Which pieces are drawn.")
@click.option(
    "--dampening",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    help="Share of a Hessian's mean diagonal that is added to it; more where that is not enough.",
)
@settings_options("threads", "cache_folder")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def compress(model: str | None, out: Path | None, name: str | None, as_json: bool, **given: Any) -> None:
    """Quantise and prune a model.

    MODEL is a GGUF file or a model's folder; without it, what `tane serve` would serve. The result is a
    folder, which all commands take in place of a file. An interrupted run goes on where it stopped when the same
    command is given again.

    A recipe is one or more parts joined by +, in this order: ffn-50, heads-33, layers-10 (make matrices smaller);
    magnitude, obd, saliency, wanda or sparsegpt with -50 or -2of4, or obc-50 (set weights to zero); rtn, gptq or
    uniform with -4bit-g64 (move weights to a grid; g64, row or matrix share a scale; then -sym, -min, -clip); refit.

    \b
    Examples:
      tane compress --recipe gptq-4bit-g64
      tane compress model.gguf --recipe sparsegpt-50+gptq-4bit-g64 --out smaller
      tane compress --quantise gptq --bits 3 --group 32 --range search --corpus ./texts
    """
    from model.compression.compressor import check_fits
    from model.compression.recipe import RecipeError

    settings = read_settings({"model": model, **{option: given.pop(option) for option in ("threads", "cache_folder")}})
    try:
        recipe = take_recipe(given, given.pop("dampening"))
        check_options(recipe)
        _, checkpoint = load_checkpoint(settings)
        check_fits(recipe, checkpoint.config)
    except RecipeError as error:
        raise Unusable(str(error)) from error
    target = out or Path(folder_name(checkpoint.name, recipe.name))
    name = target.name if name is None else name
    check_place(target, name)
    text = {"cache_folder": settings.models_folder, **given}
    windows, calibration = calibration_text(checkpoint, **text) if recipe.needs_text else ([], None)
    described = {**recipe.described(), **({"calibration": calibration} if calibration else {})}
    report = run(
        checkpoint,
        recipe,
        windows,
        target=target,
        described=described,
        name=name,
        threads=settings.threads,
    )
    summary = {"folder": str(target), "recipe": described, "report": report}
    if as_json:
        write_json(summary)
    else:
        show(summary)


def check_options(recipe: "Recipe") -> None:
    """Raises click.UsageError for an option that the recipe has no use for."""
    if not recipe.needs_text:
        refuse_without_effect(TEXT_OPTIONS, f"{recipe.name} looks at no text")
    if not recipe.needs_hessians:
        refuse_without_effect(("dampening",), f"{recipe.name} needs no Hessian")


def folder_name(model: str, recipe: str) -> str:
    """Of the result, after model and recipe. A file may call its model anything; this is a name and never a path."""
    return re.sub(r"[^\w.+-]+", "-", f"{model}-{recipe}").lstrip("-.")


def check_place(target: Path, name: str) -> None:
    """Before any text is read. Raises Unusable."""
    from model.compression.artefact import check_name
    from model.compression.artefact_writer import check_absent

    try:
        check_name(name)
    except ValueError as error:
        raise Unusable(f"{error}; choose another with --name") from error
    with model_errors():
        check_absent(target)


def calibration_text(
    checkpoint: "Checkpoint",
    *,
    corpus: Path | None,
    windows: int,
    window: int,
    seed: int,
    cache_folder: Path | None,
) -> "tuple[list[Window], dict[str, Any]]":
    """Pieces of text for the model, and what is kept of them in the recipe."""
    from model.evaluation.corpus import CALIBRATION, CorpusError, drawn_windows, local_corpus, published_corpus
    from model.tokenizer import Tokenizer

    if window > checkpoint.config.context_length:
        raise Unusable(f"--window {window} is more than the model's context of {checkpoint.config.context_length}")
    try:
        with loading_bar("reading the text"):
            texts = local_corpus(corpus) if corpus else published_corpus(CALIBRATION, cache_folder)
            tokenizer = Tokenizer(checkpoint.vocabulary)
            begin = tokenizer.encode_prompt("")
            found = drawn_windows(texts, tokenizer.encode, width=window, count=windows, seed=seed, prefix=begin)
    except CorpusError as error:
        raise Failure(str(error)) from error
    return found, {
        "corpus": texts.name,
        "corpus_sha256": texts.sha256,
        "documents": sorted({document for document, _ in found}),
        "windows": windows,
        "window": window,
        "tokens": windows * window,
        "seed": seed,
    }


def run(
    checkpoint: "Checkpoint",
    recipe: "Recipe",
    windows: "list[Window]",
    *,
    target: Path,
    described: dict[str, Any],
    name: str,
    threads: int | None,
) -> dict[str, Any]:
    """Make the folder, with a bar over layers; the report."""
    from model.compression.artefact_writer import ArtefactWriter
    from model.compression.calibration import use_threads
    from model.compression.compressor import compress as compress_model
    from model.compression.compressor import step_count

    use_threads(threads or usable_cores())
    ids = [token_ids for _, token_ids in windows]
    with writing(target):
        writer = ArtefactWriter(target, described, checkpoint)
        with resumable(writer.partial):
            with count_bar(f"{recipe.name}: layers", step_count(checkpoint, recipe)) as on_step:
                config, report = compress_model(checkpoint, recipe, ids, writer, on_step)
            writer.finish(config, name, report)
    return report


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Tell why the folder cannot be made, and end the command."""
    try:
        with model_errors():
            yield
    except (OSError, ValueError) as error:
        raise Failure(f"{target} cannot be made: {error}") from error


@contextmanager
def resumable(partial: Path) -> Iterator[None]:
    """Tell who interrupts the work how it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        messages().print(harmless(f"stopped; the same command goes on from {partial}"), soft_wrap=True)
        raise
