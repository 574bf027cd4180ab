"""Whether llama.cpp, given an exported file, writes the text that Tane writes from the model it was made of.

`make` compresses the default model to grids that GGUF's formats hold exactly, and exports each; `compare` asks both
servers. Weights are the same to the last bit; sums are not, so both may part where two tokens are nearly as likely. How
often they do with one and the same file, the default model's own, is measured beside it.
Always: after a token on which they differ both go on from Tane's, so each place is compared after the same text.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

import click
import httpx
import numpy as np

from model.compression.artefact_writer import ArtefactWriter
from model.compression.gguf_writer import write_gguf
from model.compression.grids import GridSpec, round_to_nearest
from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf
from model.loading.hub import pull
from model.loading.model import load_model
from model.tokenizer import Tokenizer
from service.cli.console import count_bar
from tests.bench import machine
from tests.bench.peers import named_urls
from tests.bench.record import deliver, markdown_table, output_options
from tests.bench.served import served

NAME = "llama_export"
GRIDS: Mapping[str, GridSpec] = {
    "Q4_0": GridSpec(4, 64, "symmetric"),
    "Q4_1": GridSpec(4, 64, "minimum"),
    "Q8_0": GridSpec(8, 64, "symmetric"),
}
"""For each format a grid that it holds."""
SOURCE = "source"
"""The default model's file, which both read as it is."""
TOP = 20
END = -1
"""Stands for the token that ended a text, which a peer does not list."""
TIMEOUT_S = 300
PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "Water boils at 100 degrees because",
    "The three laws of motion say that",
    "Dear Ms Keller, thank you for your letter of 12 March about",
    "Question: Why is the sky blue?\nAnswer:",
    "A recipe for bread: first, mix the flour with",
    "In the year 1848, Europe",
    "The old lighthouse stood at the end of the pier. Every evening the keeper",
)


@dataclass(frozen=True, slots=True)
class Token:
    """One that a server chose, END for the end of the text; the likeliest at its place by their log-probabilities."""

    token_id: int
    logprob: float | None
    top: Mapping[int, float] = field(default_factory=dict)


Ask = Callable[[Sequence[int], int], list[Token]]
"""From token ids and a limit to the greedy continuation."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where both chose another token."""

    place: int
    """Counted from the first token generated."""
    gap: float | None
    """How much likelier Tane finds its own token, in nats; None when the other is none of its twenty likeliest."""
    their_gap: float | None
    """The same of the peer and its own token."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of one prompt."""

    tokens: int
    differences: tuple[Difference, ...]
    moved: tuple[float, ...]
    """How far the log-probability of each token that both chose is apart, in nats."""


def compare(prompt: Sequence[int], ours: Ask, theirs: Ask, most: int) -> Comparison:
    """Token by token, until Tane's text ends or has so many."""
    ids: list[int] = []
    differences: list[Difference] = []
    moved: list[float] = []
    while len(ids) < most:
        mine, other = (ask([*prompt, *ids], most - len(ids)) for ask in (ours, theirs))
        for a, b in zip(mine, other, strict=False):
            ids.append(a.token_id)
            if a.token_id != b.token_id:
                differences.append(Difference(len(ids) - 1, _gap(a, b), _gap(b, a)))
                break
            if a.logprob is not None and b.logprob is not None:
                moved.append(abs(a.logprob - b.logprob))
        if not mine or not other or ids[-1] == END:
            break
    return Comparison(len(ids), tuple(differences), tuple(moved))


def _gap(chosen: Token, instead: Token) -> float | None:
    likelier, likely = (chosen.top.get(token.token_id) for token in (chosen, instead))
    return None if likelier is None or likely is None else likelier - likely


def tane(client: httpx.Client, url: str, ends: Collection[int]) -> Ask:
    """`ends`: ids of tokens that end a text."""

    def ask(prompt: Sequence[int], most: int) -> list[Token]:
        asked = {"temperature": 0, "speculation": "off", "logprobs": {"top": TOP}}
        body = {"prompt_tokens": list(prompt), "max_new_tokens": most, **asked}
        answer = client.post(f"{url}/generate", json=body).raise_for_status().json()
        return [_token(each, "token_id", each["top"], ends) for each in answer["logprobs"]]

    return ask


def llama(client: httpx.Client, url: str, ends: Collection[int]) -> Ask:
    """Its `/v1/completions` takes token ids and lists ids, but not the one that ends a text."""

    def ask(prompt: Sequence[int], most: int) -> list[Token]:
        body = {"prompt": list(prompt), "max_tokens": most, "temperature": 0, "logprobs": TOP}
        choice = client.post(f"{url}/v1/completions", json=body).raise_for_status().json()["choices"][0]
        tokens = [_token(each, "id", each["top_logprobs"], ends) for each in choice["logprobs"]["content"]]
        return [*tokens, Token(END, None)] if choice["finish_reason"] == "stop" else tokens

    return ask


def _token(each: Mapping[str, Any], key: str, top: Sequence[Mapping[str, Any]], ends: Collection[int]) -> Token:
    def known(entry: Mapping[str, Any]) -> int:
        return END if entry[key] in ends else entry[key]

    return Token(known(each), each["logprob"], {known(entry): entry["logprob"] for entry in top})


def figures_of(format: str, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Of all prompts together."""
    moved = [each for comparison in comparisons for each in comparison.moved]
    return {
        "format": format,
        "prompts": len(comparisons),
        "same_text": sum(not each.differences for each in comparisons),
        "tokens": sum(each.tokens for each in comparisons),
        "differences": [asdict(difference) for each in comparisons for difference in each.differences],
        "logprob_apart_mean": fmean(moved),
        "logprob_apart_99_percent": float(np.quantile(moved, 0.99)),
    }


def greedy_table(formats: Sequence[Mapping[str, Any]]) -> str:
    headings = [
        "file",
        "same text",
        "same token",
        "gap where not: median, largest",
        "log-probabilities apart: mean, 99 %",
    ]
    rows = [
        [
            each["format"],
            f"{each['same_text']} of {each['prompts']}",
            f"{each['tokens'] - len(each['differences'])} of {each['tokens']}",
            _gaps([difference["gap"] for difference in each["differences"]]),
            f"{each['logprob_apart_mean']:.3f}, {each['logprob_apart_99_percent']:.3f}",
        ]
        for each in formats
    ]
    return markdown_table(headings, rows)


def table(figures: Mapping[str, Any]) -> str:
    note = (
        f"{SOURCE}: both read the default model's own file. Others: the model on grids of 64 columns that the format "
        f"holds exactly. {len(PROMPTS)} prompts, at most {figures['new_tokens']} greedy tokens, float16 caches in both."
        " A gap is how much likelier Tane finds its own token than the peer's; after a difference both go on from "
        f"Tane's. `{figures['command']}`"
    )
    return f"{greedy_table(figures['formats'])}\n\n{note}"


def _gaps(gaps: Sequence[float | None]) -> str:
    known = [gap for gap in gaps if gap is not None]
    shown = [f"{median(known):.3f}, {max(known):.3f}"] if known else []
    if len(known) < len(gaps):
        shown.append(f"{len(gaps) - len(known)} not among {TOP}")
    return "; ".join(shown) or "–"


def compress(source: Checkpoint, spec: GridSpec, folder: Path) -> None:
    """Round the linear layers to the nearest on a grid."""
    writer = ArtefactWriter(folder, {"name": f"rtn-{spec.bits}bit-g{spec.group}-{spec.form}"}, source)
    for name, tensor in source.tensors.items():
        is_linear = name.startswith("layers.") and len(tensor.shape) > 1
        writer.put(name, round_to_nearest(tensor.dequantised().astype(np.float64), spec) if is_linear else tensor)
    writer.finish(source.config, folder.name)


def compared(model: Path, url: str, most: int, on_prompt: Callable[[], None]) -> list[Comparison]:
    """Serve a model and compare its text on every prompt with that of a peer, which reads the same weights."""
    vocabulary = load_model(model).vocabulary
    tokenizer, comparisons = Tokenizer(vocabulary), []
    with httpx.Client(timeout=TIMEOUT_S) as client, served("--model", str(model), "--kv-type", "float16") as server:
        ours, theirs = (ask(client, at, vocabulary.eos_token_ids) for ask, at in ((tane, server.url), (llama, url)))
        for text in PROMPTS:
            comparisons.append(compare(tokenizer.encode_prompt(text), ours, theirs, most))
            on_prompt()
    return comparisons


@click.group()
def main() -> None:
    """Compare greedy text of Tane and of llama.cpp, which runs what Tane exported."""


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
def make(folder: Path) -> None:
    """Make a compressed model for each format in FOLDER, and its export beside it: Q4_1 and Q4_1.gguf.

    `source` and `source.gguf` there are the default model's file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in (SOURCE, f"{SOURCE}.gguf"):
        (folder / name).symlink_to(pull())
    source = load_gguf(pull())
    with count_bar("models", len(GRIDS)) as on_model:
        for name, spec in GRIDS.items():
            compress(source, spec, folder / name)
            outcome = write_gguf(folder / f"{name}.gguf", load_model(folder / name), "auto")
            found = {outcome.formats[each].name for each in outcome.formats if each.endswith(".up")}
            assert (found, dict(outcome.rounded)) == ({name}, {}), "the format holds the grid"
            on_model()


@main.command("compare")
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--peer", "peers", multiple=True, required=True, callback=named_urls, help="NAME=URL of the server of NAME.gguf."
)
@click.option("--new-tokens", type=click.IntRange(min=1), default=64, show_default=True)
@output_options
def compare_command(*, folder: Path, peers: dict[str, str], new_tokens: int, as_json: bool, records: bool) -> None:
    """Ask Tane, which serves the models in FOLDER one after another, and each one's peer.

    Examples:
      python -m tests.bench.llama_export make build/exports
      python -m tests.bench.llama_export compare build/exports --peer Q4_1=http://127.0.0.1:8091
    """
    found = []
    with count_bar("prompts", len(peers) * len(PROMPTS)) as on_prompt:
        for name, url in peers.items():
            found.append(figures_of(name, compared(folder / name, url, new_tokens, on_prompt)))
    named = " ".join(f"--peer {name}=URL" for name in peers)
    figures = {
        "command": f"python -m tests.bench.llama_export compare FOLDER {named} --record",
        "machine": machine.described(),
        "new_tokens": new_tokens,
        "formats": found,
    }
    deliver(NAME, figures, table(figures), as_json=as_json, records=records)


if __name__ == "__main__":
    main()
