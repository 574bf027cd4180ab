"""How cost grows: decode time with the context, tokens per second with the streams, prefill with the prompt.

The bare engine is the native op set with a greedy choice for each row; `--http` adds what a client of `tane serve`
sees. Always: every point is the median of rounds that went through all points in turn.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf
from model.loading.hub import pull
from model.ops.native_ops import Isa, KvType
from service.cli.console import count_bar
from service.cli.options import integer_list
from tests.bench import http_scaling, machine
from tests.bench.bare_engine import BareEngine
from tests.bench.plot import Part, draw
from tests.bench.record import FIGURES, deliver, markdown_table, output_options
from tests.bench.timing import Times, interleaved

NAME = "scaling"
MILLISECONDS = 1000
STEPS = 8
"""Decoded in a row for one time."""
PROMPT, ANSWER = 64, 64
"""Tokens of each stream when streams are counted."""


@dataclass(frozen=True, slots=True)
class Options:
    """Where to measure, and how the engine runs."""

    contexts: tuple[int, ...]
    streams: tuple[int, ...]
    prompts: tuple[int, ...]
    rounds: int
    threads: int | None
    kv_type: KvType
    isa: Isa
    with_http: bool = False


PARTS = (
    Part("decode", "context", "milliseconds", "context, tokens", "ms for a token", ",.2f"),
    Part("streams", "streams", "tokens_per_second", "streams", "tokens/s", ",.0f"),
    Part("prefill", "prompt", "tokens_per_second", "prompt, tokens", "prefill, tokens/s", ",.0f"),
)
WAYS = {"bare": "bare engine", "http": "HTTP"}


def measure(path: Path, options: Options) -> dict[str, Any]:
    """All figures."""
    checkpoint = load_gguf(path)
    figures: dict[str, Any] = {
        "command": f"python -m tests.bench.scaling --rounds {options.rounds}"
        f"{' --http' if options.with_http else ''} --record",
        "machine": machine.described(),
        "model": checkpoint.name,
        "kv_type": options.kv_type,
        "rounds": options.rounds,
        "bare": measure_bare(checkpoint, options),
    }
    if options.with_http:
        threads = str(figures["bare"]["threads"])
        server = ("--model", str(path), "--kv-type", options.kv_type, "--isa", options.isa, "--threads", threads)
        figures["http"] = http_scaling.measure(
            options.contexts, options.streams, PROMPT, ANSWER, rounds=options.rounds, options=server
        )
    return figures


def measure_bare(checkpoint: Checkpoint, options: Options) -> dict[str, Any]:
    """The bare engine's figures."""
    how: dict[str, Any] = {"threads": options.threads, "kv_type": options.kv_type, "isa": options.isa}
    single = BareEngine(checkpoint, sequences=1, room=max(*options.contexts, *options.prompts) + 1, **how)
    single.prefill(max(options.contexts))
    many = BareEngine(checkpoint, sequences=max(options.streams), room=PROMPT + ANSWER, **how)
    # A prompt writes over what decoding reads, with the same tokens: every position keeps its keys and values.
    cases: dict[tuple[str, int], Callable[[], float]] = {
        **{("decode", n): partial(single.decode, n, steps=STEPS) for n in options.contexts},
        **{("streams", n): partial(many.job, n, PROMPT, ANSWER) for n in options.streams},
        **{("prefill", n): partial(single.prefill, n) for n in options.prompts},
    }
    with count_bar("rounds", options.rounds + 1) as on_round:
        times = interleaved(cases, rounds=options.rounds, on_round=on_round)
    return {
        "instruction_set": single.ops.isa,
        "threads": single.threads,
        "decode": [decode_point(n, times["decode", n]) for n in options.contexts],
        "streams": [rate_point("streams", n, n * ANSWER, times["streams", n]) for n in options.streams],
        "prefill": [rate_point("prompt", n, n, times["prefill", n]) for n in options.prompts],
    }


def decode_point(context: int, times: Times) -> dict[str, Any]:
    return {
        "context": context,
        "milliseconds": times.median * MILLISECONDS,
        "least_milliseconds": times.least * MILLISECONDS,
    }


def rate_point(name: str, value: int, tokens: int, times: Times) -> dict[str, Any]:
    return {name: value, "tokens_per_second": tokens / times.median, "best_tokens_per_second": tokens / times.least}


def table(figures: dict[str, Any]) -> str:
    """Three tables, for decode, streams and prefill, with a column for each way in."""
    ways = {WAYS[way]: figures[way] for way in WAYS if way in figures}
    notes = [
        f"{figures['model']}, {figures['kv_type']} cache, {figures['bare']['threads']} threads, "
        f"{figures['bare']['instruction_set']}, medians of {figures['rounds']} rounds. Each stream has a prompt of "
        f"{PROMPT} tokens and {ANSWER} new ones; its prompt's time is counted too."
    ]
    if "http" in figures:
        notes.append(f"At 8 streams the client took {_client_share(figures['http'])} of a core.")
    notes.append(f"`{figures['command']}`")
    return "\n\n".join([*(_part(part, ways) for part in PARTS), " ".join(notes)])


def _part(part: Part, ways: dict[str, Any]) -> str:
    by_way = {way: {point[part.along]: point[part.value] for point in each[part.name]} for way, each in ways.items()}
    rows = [
        (f"{along:,}", *(format(points[along], part.form) if along in points else "" for points in by_way.values()))
        for along in sorted({along for points in by_way.values() for along in points})
    ]
    return markdown_table((part.heading, *(f"{part.unit}, {way}" for way in by_way)), rows)


def _client_share(http: dict[str, Any]) -> str:
    shares = {point["streams"]: point["client_cpu_share"] for point in http["streams"]}
    nearest = min(shares, key=lambda streams: abs(streams - 8))
    return f"{shares[nearest]:.0%}".replace("%", " %")


@click.command()
@click.option("--model", type=click.Path(exists=True, path_type=Path), help="GGUF file; default: the default model.")
@click.option("--contexts", callback=integer_list, default="16,64,256,512,1024,2048,4096,8000", show_default=True)
@click.option("--streams", callback=integer_list, default="1,2,4,8,16,32", show_default=True)
@click.option("--prompts", callback=integer_list, default="16,64,128,256,512,1024,2048,4096", show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True, help="How often each is measured.")
@click.option("--threads", type=click.IntRange(1), help="Default: the usable cores.")
@click.option("--kv-type", type=click.Choice(["int8", "float16"]), default="int8", show_default=True)
@click.option("--isa", type=click.Choice(["auto", "scalar", "avx2", "avx512"]), default="auto", show_default=True)
@click.option("--http", "with_http", is_flag=True, help="Measure through `tane serve` too.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw into this SVG or PNG file too.")
@output_options
def main(model: Path | None, plot: Path | None, as_json: bool, records: bool, **given: Any) -> None:
    """Measure how the cost of tokens grows with context, streams and prompt.

    \b
    Examples:
      python -m tests.bench.scaling --rounds 1 --contexts 16,1024 --streams 1,8 --prompts 512
      python -m tests.bench.scaling --http --record
    """
    figures = measure(model or pull(), Options(**given))
    deliver(NAME, figures, table(figures), as_json=as_json, records=records)
    for path in [*([plot] if plot else []), *([FIGURES / f"{NAME}.svg"] if records else [])]:
        draw(figures, PARTS, WAYS, path)


if __name__ == "__main__":
    main()
