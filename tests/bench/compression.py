"""What every recipe costs and gives: compressed models beside the model they were made of, on the same held-out text.

Always: all read the same windows, so that what is compared is paired token by token; speeds are measured in turn.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from model.evaluation.acceptance import Text, acceptance, prompts_of, write_texts
from model.evaluation.agreement import Numbers, agreement, relative_perplexity, standard_error
from model.evaluation.corpus import ADDRESSES, HELD_OUT, Corpus, CorpusError, Window, local_corpus, published_corpus
from model.evaluation.corpus import windows as cut
from model.evaluation.perplexity import score_windows, token_ids_sha256
from model.evaluation.predictors import Predictor, native_predictor, simulated_predictor, torch_predictor
from model.evaluation.weights import bytes_on_disk, linear_weights
from model.loading.checkpoint import Checkpoint
from model.loading.hub import pull
from model.loading.model import load_model
from model.ops.native_ops import NUMERIC_VERSION
from model.tokenizer import Tokenizer
from service.cli.console import Failure, count_bar
from service.cli.evaluate import PROMPT_TOKENS, PROMPTS, TEXT_TOKENS
from service.op_sets import usable_cores
from tests.bench import machine
from tests.bench.compression_report import draw_errors, draw_sizes, layer_means, table
from tests.bench.compression_scratch import Scratch
from tests.bench.record import FIGURES, deliver, output_options
from tests.bench.timing import interleaved
from tests.source_files import ROOT

NAME = "compression"
PAGE = ROOT / "docs" / "compression.md"
SCRATCH = ROOT / "build" / "bench" / "compression"
SPEED_TOKENS, SPEED_ROUNDS = 48, 5
PAIRS = (
    *((f"gptq-{bits}bit-g64", f"rtn-{bits}bit-g64") for bits in (8, 4, 3)),
    *((f"gptq-{bits}bit-g64-clip", f"rtn-{bits}bit-g64-clip") for bits in (4, 3)),
    *(
        (f"{better}-{share}", f"{worse}-{share}")
        for share in ("50", "2of4")
        for better, worse in (("sparsegpt", "wanda"), ("wanda", "magnitude"), ("sparsegpt", "magnitude"))
    ),
    ("sparsegpt-50+gptq-4bit-g64", "gptq-3bit-g64"),
)
"""Which recipes are compared with each other: the first should be better."""
_BITS = re.compile(r"-(\d+)bit-(?:g(\d+)|(row|matrix))")
_SPARSITY = re.compile(r"(?:magnitude|obd|saliency|wanda|sparsegpt|obc)-(\d+of\d+|[\d.]+)")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A compressed model."""

    path: Path
    checkpoint: Checkpoint

    @property
    def recipe(self) -> str:
        return str((self.checkpoint.recipe or {}).get("name", self.checkpoint.name))


@dataclass(frozen=True, slots=True)
class Laboratory:
    """The model as published, and what all models read."""

    path: Path
    dense: Checkpoint
    predictor: Predictor
    corpus: Corpus
    windows: list[Window]
    texts: list[Text]
    """Greedy texts of the model as published."""
    threads: int
    scratch: Scratch

    @property
    def width(self) -> int:
        return _width(len(self.windows[0][1]))


@click.command()
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Holds one folder each.")
@click.option("--artefact", "artefacts", type=click.Path(exists=True, path_type=Path), multiple=True, help="One more.")
@click.option("--model", type=click.Path(exists=True, path_type=Path), help="As published; default: the default model.")
@click.option("--corpus", type=click.Path(exists=True, path_type=Path), help=f"Default: {ADDRESSES.requirement}.")
@click.option("--tokens", type=click.IntRange(1), default=20_000, show_default=True, help="Score at least so many.")
@click.option("--window", type=click.IntRange(4), default=512, show_default=True, help="Tokens in a window.")
@click.option("--threads", type=click.IntRange(1), help="Default: the usable cores.")
@click.option("--together", type=click.IntRange(1), default=6, show_default=True, help="Models held at once.")
@click.option("--check", "checked", multiple=True, metavar="RECIPE", help="Run it simulated and in float32 too.")
@click.option("--scratch", type=click.Path(path_type=Path), default=SCRATCH, help="Keeps what was found.")
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), help="Draw into this folder.")
@output_options
def main(as_json: bool, records: bool, **given: Any) -> None:
    """Evaluate compressed models, all beside the model as published. What was found of one is not measured again.

    \b
    Examples:
      python -m tests.bench.compression --folder build/compressed --tokens 2000
      python -m tests.bench.compression --folder build/compressed --check gptq-4bit-g64 --record
    """
    candidates = _candidates(given["folder"], given["artefacts"])
    try:
        laboratory = prepare(
            given["model"] or pull(),
            local_corpus(given["corpus"]) if given["corpus"] else published_corpus(HELD_OUT),
            tokens=given["tokens"],
            window=given["window"],
            threads=given["threads"] or usable_cores(),
            scratch=given["scratch"],
        )
    except CorpusError as error:
        raise Failure(str(error)) from error
    figures = measure(laboratory, candidates, together=given["together"], checked=given["checked"])
    figures = {"command": _command(given), "machine": machine.described(), **figures}
    plots = FIGURES if records else given["plots"]
    if plots is not None:
        draw_sizes(figures, plots / "compression-sizes.svg")
        draw_errors(figures, plots / "compression-errors.svg")
    deliver(NAME, figures, table(figures), as_json=as_json, records=records, page=PAGE, folder=PAGE.parent)


def prepare(path: Path, corpus: Corpus, *, tokens: int, window: int, threads: int, scratch: Path) -> Laboratory:
    """Cut the windows, and let the model as published write its texts. Raises CorpusError."""
    dense = load_model(path)
    count = math.ceil(tokens / (window - 1))
    windows = cut(corpus, Tokenizer(dense.vocabulary).encode, width=window, count=count)
    predictor = native_predictor(dense, _width(window), threads=threads)
    prompts = prompts_of(windows, width=PROMPT_TOKENS, count=PROMPTS)
    with count_bar("texts", len(prompts)) as on_text:
        ends = dense.vocabulary.eos_token_ids
        texts = write_texts(predictor, prompts, count=TEXT_TOKENS, ends=ends, on_text=on_text)
    place = f"{dense.sha256[:12]}-{token_ids_sha256(windows)[:12]}-native-{NUMERIC_VERSION}-int8"
    return Laboratory(path, dense, predictor, corpus, windows, texts, threads, Scratch(scratch / place))


def measure(
    laboratory: Laboratory, candidates: Sequence[Candidate], *, together: int, checked: Sequence[str]
) -> dict[str, Any]:
    """Evaluate what was not evaluated before; the figures of all."""
    refused = evaluate(laboratory, candidates, together)
    done = [each for each in candidates if each.recipe not in {refusal["recipe"] for refusal in refused}]
    nlls = {each.recipe: _scores(laboratory, each).nll for each in done}
    return {
        "model": laboratory.dense.name,
        "model_sha256": laboratory.dense.sha256,
        "kv_type": "int8",
        "threads": laboratory.threads,
        "corpus": laboratory.corpus.name,
        "corpus_sha256": laboratory.corpus.sha256,
        "documents": sorted({name for name, _ in laboratory.windows}),
        "token_ids_sha256": token_ids_sha256(laboratory.windows),
        "window": len(laboratory.windows[0][1]),
        "tokens": sum(len(ids) - 1 for _, ids in laboratory.windows),
        "prompts": len(laboratory.texts),
        "acceptance_tokens": sum(len(text.written) for text in laboratory.texts),
        "dense": dense_figures(laboratory, done),
        "rows": [row(laboratory, each) for each in done],
        "pairs": [pair(nlls, *names, windows=len(laboratory.windows)) for names in PAIRS if set(names) <= nlls.keys()],
        "checks": [check(laboratory, each) for each in done if each.recipe in checked],
        "refused": refused,
    }


def evaluate(laboratory: Laboratory, candidates: Sequence[Candidate], together: int) -> list[dict[str, Any]]:
    """Put scores and figures of all candidates into the scratch folder; those that do not run, and why."""
    pending = [each for each in candidates if laboratory.scratch.figures(each.checkpoint.sha256) is None]
    refused: list[dict[str, Any]] = []
    with count_bar("windows", len(pending) * len(laboratory.windows)) as on_window:
        for first in range(0, len(pending), together):
            group = list(_running(laboratory, pending[first : first + together], refused))
            _score_group(laboratory, group, on_window)
            for candidate, predictor in group:
                _measure_one(laboratory, candidate, predictor)
    return refused


def _running(
    laboratory: Laboratory, candidates: Sequence[Candidate], refused: list[dict[str, Any]]
) -> Iterator[tuple[Candidate, Predictor]]:
    for candidate in candidates:
        try:
            yield candidate, native_predictor(candidate.checkpoint, laboratory.width, threads=laboratory.threads)
        except ValueError as error:
            refused.append({"recipe": candidate.recipe, "reason": str(error)})


def _score_group(
    laboratory: Laboratory, group: Sequence[tuple[Candidate, Predictor]], on_window: Callable[[], None]
) -> None:
    unscored = [each for each in group if laboratory.scratch.scores(each[0].checkpoint.sha256) is None]
    if not unscored:
        return

    def on_each() -> None:
        for _ in unscored:
            on_window()

    predictors = [predictor for _, predictor in unscored]
    found = score_windows(predictors, laboratory.windows, laboratory.predictor, on_each)
    for (candidate, _), scored in zip(unscored, found, strict=True):
        assert scored.against is not None
        laboratory.scratch.put_scores(candidate.checkpoint.sha256, scored.against)


def _measure_one(laboratory: Laboratory, candidate: Candidate, predictor: Predictor) -> None:
    prompt = laboratory.windows[0][1][:PROMPT_TOKENS]
    cases = {
        "dense": lambda: laboratory.predictor.seconds_per_token(prompt, SPEED_TOKENS),
        "candidate": lambda: predictor.seconds_per_token(prompt, SPEED_TOKENS),
    }
    times = interleaved(cases, rounds=SPEED_ROUNDS)
    linear = linear_weights(candidate.checkpoint, laboratory.dense)
    laboratory.scratch.put_figures(
        candidate.checkpoint.sha256,
        {
            "bits_per_weight": linear.bits_per_weight,
            "bytes": bytes_on_disk(candidate.path),
            "zeros": linear.zero_share,
            "errors": layer_means(linear.errors),
            "acceptance": acceptance(predictor, laboratory.texts).share,
            "tokens_per_second": 1 / times["candidate"].median,
            "dense_tokens_per_second": 1 / times["dense"].median,
            "speed_ratio": times["dense"].median / times["candidate"].median,
        },
    )


def dense_figures(laboratory: Laboratory, candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Of the model as published; its speed is the middle of those that were measured beside the candidates."""
    linear = linear_weights(laboratory.dense)
    found = [laboratory.scratch.figures(each.checkpoint.sha256) or {} for each in candidates]
    scores = _scores(laboratory, candidates[0])
    return {
        "perplexity": float(np.exp(scores.reference_nll.mean())),
        "bits_per_weight": linear.bits_per_weight,
        "bytes": bytes_on_disk(laboratory.path),
        "zeros": linear.zero_share,
        "tokens_per_second": float(np.median([each["dense_tokens_per_second"] for each in found])),
    }


def row(laboratory: Laboratory, candidate: Candidate) -> dict[str, Any]:
    """All figures of one compressed model."""
    recipe = candidate.checkpoint.recipe or {}
    report = recipe.get("report") or {}
    found = agreement(_scores(laboratory, candidate), len(laboratory.windows))
    return {
        "recipe": candidate.recipe,
        "sha256": candidate.checkpoint.sha256,
        **asked(candidate.recipe),
        "perplexity": found.perplexity,
        "relative_perplexity_percent": found.relative_perplexity_percent,
        "standard_error_percent": found.standard_error_percent,
        "window_standard_error_percent": found.window_standard_error_percent,
        "mean_divergence": found.mean_divergence,
        "divergence_99_percent": found.divergence_99_percent,
        "same_top_percent": found.same_top_percent,
        **(laboratory.scratch.figures(candidate.checkpoint.sha256) or {}),
        "damping": report.get("most_dampening"),
        "fallbacks": report.get("fallbacks"),
        "calibration": recipe.get("calibration"),
    }


def asked(recipe: str) -> dict[str, Any]:
    """Bits, group and sparsity that a recipe's name asks for; None for what it leaves alone."""
    bits, sparsity = _BITS.search(f"-{recipe}"), _SPARSITY.search(recipe)
    return {
        "bits": int(bits[1]) if bits else None,
        "group": None if bits is None else bits[3] or int(bits[2]),
        "sparsity": sparsity[1] if sparsity else None,
    }


def pair(nlls: dict[str, Numbers], better: str, worse: str, *, windows: int) -> dict[str, Any]:
    """How the first recipe's perplexity stands beside the second's; negative is better."""
    differences = nlls[better] - nlls[worse]
    return {"recipe": better, "than": worse, **_relative(differences, windows)}


def check(laboratory: Laboratory, candidate: Candidate) -> dict[str, Any]:
    """The native engine beside torch that rounds as it does, and beside torch that does not."""
    native = _scores(laboratory, candidate).nll
    ways = {"simulated": simulated_predictor, "float32": torch_predictor}
    found: dict[str, Any] = {}
    for way, make in ways.items():
        nll = laboratory.scratch.nll(candidate.checkpoint.sha256, way)
        if nll is None:
            predictor = make(candidate.checkpoint, laboratory.width, threads=laboratory.threads)
            with count_bar(f"{candidate.recipe}, {way}", len(laboratory.windows)) as on_window:
                (scored,) = score_windows([predictor], laboratory.windows, on_window=on_window)
            nll = scored.nll
            laboratory.scratch.put_nll(candidate.checkpoint.sha256, way, nll)
        relative = _relative(native - nll, len(laboratory.windows))
        found[way] = {
            "perplexity": float(np.exp(nll.mean())),
            "native_relative_percent": relative["relative_perplexity_percent"],
            "standard_error_percent": relative["standard_error_percent"],
        }
    return {
        "recipe": candidate.recipe,
        "tokens": native.size,
        "native_perplexity": float(np.exp(native.mean())),
        **found,
    }


def _relative(differences: Numbers, windows: int) -> dict[str, Any]:
    relative = relative_perplexity(differences, windows)
    error = standard_error(differences)
    return {
        "relative_perplexity_percent": relative.percent,
        "standard_error_percent": relative.standard_error_percent,
        "window_standard_error_percent": relative.window_standard_error_percent,
        "standard_errors": float(differences.mean()) / error if error else 0.0,
    }


def _scores(laboratory: Laboratory, candidate: Candidate) -> Any:
    scores = laboratory.scratch.scores(candidate.checkpoint.sha256)
    assert scores is not None, f"{candidate.recipe} was not scored"
    return scores


def _candidates(folder: Path | None, artefacts: Sequence[Path]) -> list[Candidate]:
    below = sorted(path.parent for path in folder.glob("*/tane.json")) if folder else []
    paths = [path for path in (*below, *artefacts) if not path.name.endswith((".partial", ".finished"))]
    if not paths:
        raise Failure("name compressed models with --folder or --artefact")
    return [Candidate(path, load_model(path)) for path in paths]


def _width(window: int) -> int:
    return max(window, PROMPT_TOKENS + TEXT_TOKENS)


def _command(given: dict[str, Any]) -> str:
    checks = "".join(f" --check {name}" for name in given["checked"])
    folder = given["folder"].name if given["folder"] else "DIR"
    return (
        f"python -m tests.bench.compression --folder {folder} --tokens {given['tokens']} "
        f"--window {given['window']}{checks} --record"
    )


if __name__ == "__main__":
    main()
