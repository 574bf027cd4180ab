"""`tane eval`: what a model, compressed or not, predicts of held-out text, takes on disk, and does as a draft.

Always: both models read the same windows, so that what is compared is paired.
"""

import math
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.cli.console import Failure, Unusable, count_bar, harmless, loading_bar, messages, write_json
from service.cli.evaluation_report import draw_errors, show
from service.cli.loading import load_checkpoint, load_checkpoint_of, model_errors, read_settings
from service.cli.options import model_argument, settings_options
from service.cli.plotting import plot_option
from service.op_sets import usable_cores

if TYPE_CHECKING:
    from model.evaluation.acceptance import Acceptance
    from model.evaluation.corpus import Corpus, Window
    from model.evaluation.predictors import Predictor
    from model.loading.checkpoint import Checkpoint
    from service.settings import Settings

PROMPTS = 8
PROMPT_TOKENS = 32
TEXT_TOKENS = 64
"""The texts by which a draft is judged: how many, from how long a prompt, and how long."""
SPEED_ROUNDS = 3
LEAST_WINDOW = 5
"""Its second half then has the two predictions that a standard error needs."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model that was named on the command line."""

    path: Path
    checkpoint: "Checkpoint"


@dataclass(frozen=True, slots=True)
class Text:
    """What both models read."""

    corpus: "Corpus"
    windows: "list[Window]"
    width: int


@click.command("eval")
@model_argument
@click.option(
    "--against", type=click.Path(exists=True, path_type=Path), help="Reference to compare with: the model before."
)
@click.option(
    "--corpus",
    type=click.Path(exists=True, path_type=Path),
    help="A text file, or a folder of .txt files; default: addresses on the state of the union since 2009, "
    "which are fetched once.",
)
@click.option("--tokens", type=click.IntRange(1), default=20_000, show_default=True, help="Score at least so many.")
@click.option("--window", type=click.IntRange(LEAST_WINDOW), default=512, show_default=True, help="Tokens in each.")
@settings_options("engine", "threads", "kv_type", "weights", "isa", "cache_folder")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@plot_option("the error of each matrix, which needs --against,")
@click.option("--save", is_flag=True, help="Keep the figures in the folder of the compressed model.")
def evaluate(
    *,
    model: str | None,
    against: Path | None,
    corpus: Path | None,
    tokens: int,
    window: int,
    as_json: bool,
    plot: Path | None,
    save: bool,
    **flags: Any,
) -> None:
    """Evaluate a model on held-out text.

    MODEL is a GGUF file or a model's folder; without it, what `tane serve` would serve.

    Reports perplexity, size, zeros and speed; beside a reference also the relative perplexity with its paired standard
    error, divergences, the error of each matrix, and how many of the reference's own greedy tokens the model guesses.

    \b
    Examples:
      tane eval ./gptq-4bit-g64 --against "$(tane pull)"
      tane eval ./gptq-4bit-g64 --against ./model.gguf --tokens 5000 --json --save
      tane eval ./magnitude-50 --against ./model.gguf --plot errors.svg
    """
    settings = read_settings({"model": model, **flags})
    _check_options(settings.model, against, plot=plot, save=save)
    candidate = Model(*load_checkpoint(settings))
    reference = Model(against, load_checkpoint_of(against)) if against else None
    text = _text(candidate, reference, corpus, tokens=tokens, window=window, cache_folder=settings.models_folder)
    with _evaluation_errors(settings):
        figures = measure(candidate, reference, text, settings)
        if save:
            _save(candidate.path, figures)
    for warning in figures["warnings"]:
        messages().print(harmless(f"warning: {warning}"), soft_wrap=True)
    if plot is not None:
        draw_errors(figures["layer_errors"], figures["model"], plot)
    if as_json:
        write_json(figures)
    else:
        show(figures)


def measure(candidate: Model, reference: Model | None, text: Text, settings: "Settings") -> dict[str, Any]:
    """All figures, as plain values; None for what needs a reference and has none, and for a speed nothing gives.

    Raises ValueError when the op set cannot run a model.
    """
    from model.evaluation.perplexity import score_windows, token_ids_sha256
    from model.evaluation.weights import bytes_on_disk, linear_weights

    predictor = make_predictor(candidate.checkpoint, text.width, settings)
    other = make_predictor(reference.checkpoint, text.width, settings) if reference else None
    with count_bar("windows", len(text.windows)) as on_window:
        (scored,) = score_windows([predictor], text.windows, other, on_window)
    half = scored.second_half()
    with loading_bar("reading the weights"):
        linear = linear_weights(candidate.checkpoint, reference.checkpoint if reference else None)
    speed = _speed(candidate, predictor, text, settings)
    guessed = _acceptance(predictor, other, text, candidate, reference)
    return {
        **described(candidate, reference, text, settings),
        "token_ids_sha256": token_ids_sha256(text.windows),
        **scored.figures(),
        "second_half": half.figures(),
        "bits_per_weight": linear.bits_per_weight,
        "bytes": bytes_on_disk(candidate.path),
        "zeros": linear.zero_share,
        "tokens_per_second": speed,
        "acceptance": guessed.share if guessed else None,
        "acceptance_tokens": guessed.tokens if guessed else None,
        "layer_errors": dict(linear.errors),
        "warnings": warnings_of(candidate, text),
    }


def described(candidate: Model, reference: Model | None, text: Text, settings: "Settings") -> dict[str, Any]:
    """What was compared, on which text, and how."""
    recipe = candidate.checkpoint.recipe or {}
    return {
        "model": candidate.checkpoint.name,
        "model_sha256": candidate.checkpoint.sha256,
        "recipe": recipe.get("name"),
        "calibration": recipe.get("calibration"),
        "against": reference.checkpoint.name if reference else None,
        "against_sha256": reference.checkpoint.sha256 if reference else None,
        "engine": "torch" if settings.engine == "torch" else "native",
        "kv_type": None if settings.engine == "torch" else settings.kv_type,
        "threads": settings.threads or usable_cores(),
        "corpus": text.corpus.name,
        "corpus_sha256": text.corpus.sha256,
        "documents": sorted({name for name, _ in text.windows}),
        "window": len(text.windows[0][1]),
        "windows": len(text.windows),
    }


def warnings_of(candidate: Model, text: Text) -> list[str]:
    from model.evaluation.overlap import calibrated_documents

    seen = calibrated_documents(candidate.checkpoint.recipe, text.corpus, text.windows)
    if not seen:
        return []
    count = len({name for name, _ in text.windows})
    return [f"the model was calibrated on {len(seen)} of the {count} documents of this text: {', '.join(seen)}"]


def make_predictor(checkpoint: "Checkpoint", width: int, settings: "Settings") -> "Predictor":
    """The model on the op set that the settings name. Raises ValueError when it cannot run there."""
    from model.evaluation.predictors import torch_predictor

    if settings.engine == "torch":
        return torch_predictor(checkpoint, width, threads=settings.threads or usable_cores())
    return _native(checkpoint, width, settings)


def _native(checkpoint: "Checkpoint", width: int, settings: "Settings") -> "Predictor":
    from model.evaluation.predictors import native_predictor

    return native_predictor(
        checkpoint,
        width,
        threads=settings.threads or usable_cores(),
        kv_type=settings.kv_type,
        isa=settings.isa,
        weight_type=settings.weights,
    )


def _speed(candidate: Model, predictor: "Predictor", text: Text, settings: "Settings") -> float | None:
    """Tokens per second of one greedy stream on the native op set: the middle of several; None where it cannot run.

    `predictor` is the one that scored, which is native already unless torch was asked for.
    """
    if settings.engine == "torch":
        try:
            predictor = _native(candidate.checkpoint, text.width, settings)
        except ValueError:
            return None
    prompt = text.windows[0][1][:PROMPT_TOKENS]
    rounds = [predictor.seconds_per_token(prompt, TEXT_TOKENS) for _ in range(SPEED_ROUNDS)]
    return 1.0 / statistics.median(rounds)


def _acceptance(
    draft: "Predictor", target: "Predictor | None", text: Text, candidate: Model, reference: Model | None
) -> "Acceptance | None":
    from model.evaluation.acceptance import acceptance, prompts_of, write_texts

    if target is None or reference is None:
        return None
    prompts = prompts_of(text.windows, width=PROMPT_TOKENS, count=PROMPTS)
    ends = reference.checkpoint.vocabulary.eos_token_ids
    with count_bar("texts", len(prompts)) as on_text:
        texts = write_texts(target, prompts, count=TEXT_TOKENS, ends=ends, on_text=on_text)
    return acceptance(draft, texts)


def _check_options(model: str | None, against: Path | None, *, plot: Path | None, save: bool) -> None:
    if plot is not None and against is None:
        raise Unusable("--plot draws errors, which need --against")
    if save and not (model and Path(model).is_dir()):
        raise Unusable("--save keeps figures in the folder of a compressed model, and MODEL is none")


def _text(
    candidate: Model,
    reference: Model | None,
    corpus: Path | None,
    *,
    tokens: int,
    window: int,
    cache_folder: Path | None,
) -> Text:
    from model.evaluation.corpus import HELD_OUT, CorpusError, local_corpus, published_corpus, windows
    from model.tokenizer import Tokenizer

    width = max(window, PROMPT_TOKENS + TEXT_TOKENS)
    for each in (candidate, reference):
        if each is not None and each.checkpoint.config.context_length < width:
            raise Unusable(f"{each.path} has a context of {each.checkpoint.config.context_length}, less than {width}")
    if reference and reference.checkpoint.vocabulary.tokens != candidate.checkpoint.vocabulary.tokens:
        raise Unusable(f"{reference.path} has another vocabulary than {candidate.path}")
    try:
        with loading_bar("reading the text"):
            found = local_corpus(corpus) if corpus else published_corpus(HELD_OUT, cache_folder)
            tokenizer = Tokenizer(candidate.checkpoint.vocabulary)
            count, begin = math.ceil(tokens / (window - 1)), tokenizer.encode_prompt("")
            return Text(found, windows(found, tokenizer.encode, width=window, count=count, prefix=begin), width)
    except CorpusError as error:
        raise Failure(str(error)) from error


@contextmanager
def _evaluation_errors(settings: "Settings") -> Iterator[None]:
    """Tell why a model cannot be run or its figures not be kept, and end the command."""
    try:
        with model_errors():
            yield
    except ValueError as error:
        way_out = "" if settings.engine == "torch" else "; --engine torch runs every model"
        raise Unusable(f"{error}{way_out}") from error


def _save(folder: Path, figures: dict[str, Any]) -> None:
    from model.evaluation.saved import write_evaluation

    try:
        write_evaluation(folder, figures)
    except OSError as error:
        raise Failure(f"cannot keep the figures in {folder}: {error.strerror or error}") from error
