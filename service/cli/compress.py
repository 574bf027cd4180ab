"""`tane compress`: quantise and prune a model, into a folder that every command and the server take for a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from service.cli.console import Failure, Unusable, count_bar, harmless, loading_bar, messages, results, write_json
from service.cli.loading import load_checkpoint, model_errors, read_settings
from service.cli.options import settings_options
from service.cli.recipe_options import recipe_options, take_recipe
from service.op_sets import usable_cores

if TYPE_CHECKING:
    from model.compression.recipe import Recipe
    from model.evaluation.corpus import Window
    from model.loading.checkpoint import Checkpoint


def list_recipes(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """A click callback: print the usual recipes and end."""
    if value:
        from model.compression.recipe import RECIPES

        click.echo("\n".join(RECIPES))
        context.exit()


@click.command()
@click.argument("model", required=False)
@recipe_options
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=list_recipes, help="Name recipes.")
@click.option(
    "--out",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Folder to make; default: the names of model and recipe, here.",
)
@click.option("--name", help="Name that the model is served under; default: those of model and recipe.")
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
@settings_options("threads")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def compress(model: str | None, out: Path | None, name: str | None, as_json: bool, **given: Any) -> None:
    """Quantise and prune a model.

    MODEL is a GGUF file, or the folder of a compressed model; without it the default model is taken. The result is a
    folder, which `tane serve --model`, `tane eval`, `tane info` and the others take in place of a file. An interrupted
    run goes on where it stopped when the same command is given again.

    A recipe is one or more parts joined by +, in this order: ffn-50, heads-33, layers-10 (make matrices smaller);
    magnitude, obd, saliency, wanda, sparsegpt or obc with -50 or -2of4 (set weights to zero); rtn, gptq or uniform with
    -4bit-g64 (move weights to a grid; g64, row or matrix share a scale; then -sym, -min, -clip); refit.

    \b
    Examples:
      tane compress --recipe gptq-4bit-g64
      tane compress model.gguf --recipe sparsegpt-50+gptq-4bit-g64 --out smaller
      tane compress --quantise gptq --bits 3 --group 32 --range search --corpus ./texts
    """
    from model.compression.compressor import check_fits
    from model.compression.recipe import RecipeError

    settings = read_settings({"model": model, "threads": given.pop("threads")})
    try:
        recipe = take_recipe(given, given.pop("dampening"))
        _, checkpoint = load_checkpoint(settings)
        check_fits(recipe, checkpoint.config)
    except RecipeError as error:
        raise Unusable(str(error)) from error
    target = out or Path(f"{checkpoint.name}-{recipe.name}")
    windows, calibration = calibration_text(checkpoint, **given) if recipe.needs_text else ([], None)
    described = {**recipe.described(), **({"calibration": calibration} if calibration else {})}
    report = run(
        checkpoint,
        recipe,
        windows,
        target=target,
        described=described,
        name=name or target.name,
        threads=settings.threads,
    )
    summary = {"folder": str(target), "recipe": described, "report": report}
    if as_json:
        write_json(summary)
    else:
        show(summary)


def calibration_text(
    checkpoint: "Checkpoint", *, corpus: Path | None, windows: int, window: int, seed: int
) -> "tuple[list[Window], dict[str, Any]]":
    """Pieces of text for the model, and what is kept of them in the recipe."""
    from model.evaluation.corpus import CALIBRATION, CorpusError, drawn_windows, local_corpus, published_corpus
    from model.tokenizer import Tokenizer

    if window > checkpoint.config.context_length:
        raise Unusable(f"--window {window} is more than the model's context of {checkpoint.config.context_length}")
    try:
        with loading_bar("reading the text"):
            texts = local_corpus(corpus) if corpus else published_corpus(CALIBRATION)
            encode = Tokenizer(checkpoint.vocabulary).encode
            found = drawn_windows(texts, encode, width=window, count=windows, seed=seed)
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
    try:
        with model_errors():
            writer = ArtefactWriter(target, described, checkpoint)
            with count_bar(f"{recipe.name}: layers", step_count(checkpoint, recipe)) as on_step:
                ids = [token_ids for _, token_ids in windows]
                config, report = compress_model(checkpoint, recipe, ids, writer, on_step)
            writer.finish(config, name, report)
    except KeyboardInterrupt:
        messages().print(f"stopped; the same command goes on from {harmless(str(writer.partial))}", markup=False)
        raise
    except (OSError, ValueError) as error:
        raise Failure(f"{target} cannot be made: {error}") from error
    return report


def show(summary: dict[str, Any]) -> None:
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
        results().print(harmless(line), markup=False)


def error_rows(layers: list[dict[str, Any]]) -> list[tuple[str, ...]]:
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


def _mean(figures: list[dict[str, Any]], key: str) -> float:
    return float(sum(each[key] for each in figures)) / len(figures)


def _notes(summary: dict[str, Any]) -> list[str]:
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
    return [*notes, f"Next: tane eval {folder}, or tane serve --model {folder}"]
