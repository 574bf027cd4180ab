"""How cost grows: decode time with the context, tokens per second with the streams, and prefill with the prompt's length.

The bare engine is the native op set with a greedy choice for each row; `--http` adds what a client of `tane serve` sees.
Always: every point is the median of rounds that went through all points in turn.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf
from model.loading.hub import pull
from model.ops.native_ops import Isa, KvType
from service.cli.console import count_bar, write_json
from service.cli.options import integer_list
from tests.bench import http_scaling, machine
from tests.bench.bare_engine import BareEngine
from tests.bench.record import FIGURES, markdown_table, record
from tests.bench.timing import Times, interleaved

NAME = "scaling"
MILLISECONDS = 1000
STEPS = 8
"""Decoded in a row for one time."""
PROMPT, ANSWER = 64, 64
"""Tokens of each stream when streams are counted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Points:
    """Where to measure."""

    contexts: tuple[int, ...]
    streams: tuple[int, ...]
    prompts: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the bare engine runs."""

    threads: int | None
    kv_type: KvType
    isa: Isa


def measure(
    checkpoint: Checkpoint, points: Points, options: EngineOptions, *, rounds: int, on_round: Callable[[], None]
) -> dict[str, Any]:
    """The bare engine's figures."""
    room = max(*points.contexts, *points.prompts) + 1
    single = BareEngine(checkpoint, sequences=1, room=room, **dataclasses.asdict(options))
    single.prefill(max(points.contexts))
    many = BareEngine(checkpoint, sequences=max(points.streams), room=PROMPT + ANSWER, **dataclasses.asdict(options))
    cases: dict[tuple[str, int], Callable[[], float]] = {}
    for context in points.contexts:
        cases["decode", context] = lambda n=context: single.decode(n, steps=STEPS)  # type: ignore[misc]
    for streams in points.streams:
        cases["streams", streams] = lambda n=streams: many.job(n, PROMPT, ANSWER)  # type: ignore[misc]
    for prompt in points.prompts:
        cases["prefill", prompt] = lambda n=prompt: single.prefill(n)  # type: ignore[misc]
    # A prompt writes over what decoding reads, with the same tokens: every position keeps its keys and values.
    times = interleaved(cases, rounds=rounds, on_round=on_round)
    return {
        "instruction_set": single.ops.isa,
        "threads": single.threads,
        "decode": [decode_point(n, times["decode", n]) for n in points.contexts],
        "streams": [rate_point("streams", n, n * ANSWER, times["streams", n]) for n in points.streams],
        "prefill": [rate_point("prompt", n, n, times["prefill", n]) for n in points.prompts],
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
    """Three tables: decode, streams and prefill; with a column for each way in."""
    ways = {"bare engine": figures["bare"]} | ({"HTTP": figures["http"]} if figures.get("http") else {})
    tables = [
        _table("context, tokens", "context", "decode", "milliseconds", "ms a token", ways),
        _table("streams", "streams", "streams", "tokens_per_second", "tokens/s", ways),
        _table("prompt, tokens", "prompt", "prefill", "tokens_per_second", "prefill, tokens/s", ways),
    ]
    bare = figures["bare"]
    notes = [
        f"{figures['model']}, {figures['kv_type']} cache, {bare['threads']} threads, {bare['instruction_set']}, medians of "
        f"{figures['rounds']} rounds. Streams: prompts of {PROMPT} tokens and {ANSWER} new ones each, prefill included.",
        *(
            [f"The client's processor time was {_client_share(figures['http'])} of all at 8 streams."]
            if "HTTP" in ways
            else []
        ),
        f"`{figures['command']}`",
    ]
    return "\n\n".join([*tables, " ".join(notes)])


def _table(heading: str, key: str, part: str, value: str, unit: str, ways: dict[str, Any]) -> str:
    by_way = {way: {point[key]: point[value] for point in each[part]} for way, each in ways.items()}
    keys = sorted({key for points in by_way.values() for key in points})
    rows = [
        (
            f"{key:,}",
            *(
                f"{points[key]:,.{2 if unit.startswith('ms') else 0}f}" if key in points else ""
                for points in by_way.values()
            ),
        )
        for key in keys
    ]
    return markdown_table((heading, *(f"{unit}, {way}" for way in by_way)), rows)


def _client_share(http: dict[str, Any]) -> str:
    shares = {point["streams"]: point["client_cpu_share"] for point in http["streams"]}
    nearest = min(shares, key=lambda streams: abs(streams - 8))
    return f"{100 * shares[nearest]:.0f} %"


@click.command()
@click.option(
    "--model",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="GGUF file; default: the default model.",
)
@click.option("--contexts", callback=integer_list, default="16,64,256,512,1024,2048,4096,8000", show_default=True)
@click.option("--streams", callback=integer_list, default="1,2,4,8,16,32", show_default=True)
@click.option("--prompts", callback=integer_list, default="16,64,128,256,512,1024,2048,4096", show_default=True)
@click.option(
    "--rounds", type=click.IntRange(1), default=7, show_default=True, help="How often each point is measured."
)
@click.option("--threads", type=click.IntRange(1), help="Default: the usable cores.")
@click.option("--kv-type", type=click.Choice(["int8", "float16"]), default="int8", show_default=True)
@click.option("--isa", type=click.Choice(["auto", "scalar", "avx2", "avx512"]), default="auto", show_default=True)
@click.option("--http", "with_http", is_flag=True, help="Measure through `tane serve` too.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the figures into this file (SVG, PNG)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--record", "records", is_flag=True, help="Keep figures, tables and plot in docs/.")
def main(
    model: Path | None,
    contexts: tuple[int, ...],
    streams: tuple[int, ...],
    prompts: tuple[int, ...],
    rounds: int,
    with_http: bool,
    plot: Path | None,
    as_json: bool,
    records: bool,
    **options: Any,
) -> None:
    """Measure how the cost of tokens grows with context, streams and prompt.

    \b
    Examples:
      python -m tests.bench.scaling --rounds 1 --contexts 16,1024 --streams 1,8 --prompts 512
      python -m tests.bench.scaling --http --record
    """
    path = model or pull()
    checkpoint, points, chosen = load_gguf(path), Points(contexts, streams, prompts), EngineOptions(**options)
    with count_bar("rounds", rounds + 1) as on_round:
        bare = measure(checkpoint, points, chosen, rounds=rounds, on_round=on_round)
    figures = {
        "command": f"python -m tests.bench.scaling --rounds {rounds}{' --http' if with_http else ''} --record",
        "machine": machine.described(),
        "model": checkpoint.name,
        "kv_type": chosen.kv_type,
        "rounds": rounds,
        "bare": bare,
    }
    if with_http:
        server = (
            "--model",
            str(path),
            "--kv-type",
            chosen.kv_type,
            "--isa",
            chosen.isa,
            "--threads",
            str(bare["threads"]),
        )
        figures["http"] = http_scaling.measure(contexts, streams, PROMPT, ANSWER, rounds=rounds, options=server)
    if records:
        record(NAME, figures, table(figures))
    _draw(figures, [*([plot] if plot else []), *([FIGURES / f"{NAME}.svg"] if records else [])])
    if as_json:
        write_json(figures)
    else:
        click.echo(table(figures))


def _draw(figures: dict[str, Any], paths: Sequence[Path]) -> None:
    if paths:
        from tests.bench.plot import draw_scaling

        for path in paths:
            draw_scaling(figures, path)


if __name__ == "__main__":
    main()
