"""How far log-probabilities of real text lie from llama.cpp's on the same file, and how much of that 8 bits explain.

Both round what enters a linear layer to 8 bits, in groups of their own, so neither is the other's truth: torch in
float32 with the file's weights is. Always: every model predicts the same token after the same text; a distance is taken
over the places where the peer lists that token.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import click
import httpx
import numpy as np
from numpy.typing import NDArray

from model.evaluation.agreement import negative_log_likelihoods
from model.evaluation.corpus import HELD_OUT, published_corpus, windows
from model.evaluation.predictors import native_predictor, torch_predictor
from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf
from model.tokenizer import Tokenizer
from service.cli.console import count_bar
from service.op_sets import usable_cores
from tests.bench import machine
from tests.bench.peers import named_urls
from tests.bench.record import deliver, markdown_table, output_options

NAME = "llama_logprobs"
OURS, FLOAT32, THEIRS = "Tane", "float32", "llama.cpp"
LISTED = 1000
"""Likeliest tokens that the peer is asked to list at each place."""
FIRST = 32
"""Tokens of a window that come before the first place."""
TIMEOUT_S = 300

Numbers = NDArray[np.float64]
LogProbs = dict[str, Numbers]
"""For each model the log-probability of the token that follows, one for each place; NaN where it is not listed."""


def places(width: int, apart: int) -> range:
    """Of a window: how many tokens are read before each token that is predicted."""
    return range(FIRST, width, apart)


def from_peer(client: httpx.Client, url: str, ids: Sequence[int], where: range) -> Numbers:
    """Of each place in ascending order, so that the peer's cache holds what came before."""
    found = []
    for place in where:
        body = {"prompt": list(ids[:place]), "n_predict": 1, "temperature": 0, "n_probs": LISTED, "cache_prompt": True}
        answer = client.post(f"{url}/completion", json=body).raise_for_status().json()
        listed = {each["id"]: each["logprob"] for each in answer["completion_probabilities"][0]["top_logprobs"]}
        found.append(listed.get(ids[place], np.nan))
    return np.array(found)


def distances(logprobs: LogProbs) -> Iterator[dict[str, Any]]:
    """For each pair of models how far they are apart, in nats."""
    listed = _listed(logprobs)
    for one, other in combinations(logprobs, 2):
        apart = (logprobs[one] - logprobs[other])[listed]
        yield {
            "pair": [one, other],
            "mean": float(np.abs(apart).mean()),
            "root_mean_square": float(np.sqrt((apart**2).mean())),
            "bias": float(apart.mean()),
            "percentile_99": float(np.quantile(np.abs(apart), 0.99)),
        }


def _listed(logprobs: LogProbs) -> NDArray[np.bool_]:
    """Whether all models know the token, for each place."""
    return np.all([np.isfinite(numbers) for numbers in logprobs.values()], axis=0)


def figures_of(name: str, logprobs: LogProbs) -> dict[str, Any]:
    listed = _listed(logprobs)
    return {
        "model": name,
        "places": len(listed),
        "listed": int(listed.sum()),
        "mean_logprob": {each: float(numbers[listed].mean()) for each, numbers in logprobs.items()},
        "distances": list(distances(logprobs)),
    }


def table(figures: Mapping[str, Any]) -> str:
    headings = ["model", "between", "mean distance", "root mean square", "99 %", "mean difference"]
    rows = [
        [
            found["model"],
            " and ".join(each["pair"]),
            f"{each['mean']:.4f}",
            f"{each['root_mean_square']:.4f}",
            f"{each['percentile_99']:.3f}",
            f"{each['bias']:+.4f}",
        ]
        for found in figures["models"]
        for each in found["distances"]
    ]
    counts = ", ".join(f"{found['model']} {found['listed']} of {found['places']}" for found in figures["models"])
    note = (
        f"Log-probabilities of the tokens of held-out addresses, in nats; places where llama.cpp lists the token among "
        f"its {LISTED} likeliest: {counts}. float32 is torch with the file's weights. `{figures['command']}`"
    )
    return f"{markdown_table(headings, rows)}\n\n{note}"


def measure(checkpoint: Checkpoint, url: str, *, count: int, width: int, apart: int) -> LogProbs:
    """Ask all three at every place of `count` windows."""
    threads = usable_cores()
    tokenizer = Tokenizer(checkpoint.vocabulary)
    begin = tokenizer.encode_prompt("")
    chosen = windows(published_corpus(HELD_OUT), tokenizer.encode, width=width, count=count, prefix=begin)
    ours = native_predictor(checkpoint, width, threads=threads, kv_type="float16")
    exact = torch_predictor(checkpoint, width, threads=threads)
    where = places(width, apart)
    parts: list[LogProbs] = []
    with httpx.Client(timeout=TIMEOUT_S) as client, count_bar("windows", count) as on_window:
        for _, ids in chosen:
            targets = ids[1:]
            mine, truth = (
                -negative_log_likelihoods(each.logits(ids)[:-1], targets)[[place - 1 for place in where]]
                for each in (ours, exact)
            )
            parts.append({OURS: mine, FLOAT32: truth, THEIRS: from_peer(client, url, ids, where)})
            on_window()
    return {name: np.concatenate([part[name] for part in parts]) for name in (OURS, FLOAT32, THEIRS)}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--peer", "peers", multiple=True, required=True, callback=named_urls, help="NAME=URL of the server of NAME.gguf."
)
@click.option("--windows", "count", type=click.IntRange(min=1), default=24, show_default=True)
@click.option("--window", "width", type=click.IntRange(min=64), default=256, show_default=True)
@click.option("--apart", type=click.IntRange(min=1), default=8, show_default=True, help="Tokens from place to place.")
@output_options
def main(
    *, folder: Path, peers: dict[str, str], count: int, width: int, apart: int, as_json: bool, records: bool
) -> None:
    """Compare log-probabilities of real text with those of llama.cpp, which serves FOLDER/NAME.gguf at each URL.

    Examples:
      python -m tests.bench.llama_logprobs build/files --peer gemma-3-270m=http://127.0.0.1:8091
    """
    found = []
    for name, url in peers.items():
        logprobs = measure(load_gguf(folder / f"{name}.gguf"), url, count=count, width=width, apart=apart)
        found.append(figures_of(name, logprobs))
    named = " ".join(f"--peer {name}=URL" for name in peers)
    figures = {
        "command": f"python -m tests.bench.llama_logprobs FOLDER {named} --record",
        "machine": machine.described(),
        "models": found,
    }
    deliver(NAME, figures, table(figures), as_json=as_json, records=records)


if __name__ == "__main__":
    main()
