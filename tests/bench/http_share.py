"""How much of the bare engine's speed reaches a client over HTTP: the same streams both ways, in turn.

The client is curl, which takes little of the machine that it shares with the server. Always: its share is told.
"""

import json
import resource
import statistics
import subprocess
import tempfile
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from model.loading.hub import pull
from model.loading.model import load_model
from service.cli.console import count_bar
from tests.bench import machine
from tests.bench.bare_engine import BareEngine
from tests.bench.record import deliver, markdown_table, output_options
from tests.bench.served import served

NAME = "http_share"
PROMPT = 64
ORDINARY_IDS = (1000, 40000)
"""Of which prompts are drawn."""
LEAST = 0.9


@dataclass(frozen=True, slots=True)
class Round:
    """Tokens per second of all streams together, and the client's share of a core."""

    bare: float
    http: float
    client: float


def measure(*, streams: int, answer: int, rounds: int) -> dict[str, Any]:
    """Prompt and answer of every stream, engine and server in turn; a round before the first warms up."""
    engine = BareEngine(load_model(pull()), sequences=streams, room=PROMPT + answer)
    found = []
    with served() as server, count_bar("rounds", rounds + 1) as on_round:
        for number in range(rounds + 1):
            bare = streams * answer / engine.job(streams, PROMPT, answer)
            seconds, client = streamed(server.url, streams, answer, seed=number)
            found.append(Round(bare, streams * answer / seconds, client))
            on_round()
    return {
        "command": f"python -m tests.bench.http_share --streams {streams} --answer {answer} --rounds {rounds} --record",
        "machine": machine.described(),
        "streams": streams,
        "prompt": PROMPT,
        "answer": answer,
        **summary(found[1:]),
    }


def streamed(url: str, streams: int, answer: int, *, seed: int) -> tuple[float, float]:
    """The seconds until all streams of one curl have ended, and its share of a core.

    Raises RuntimeError when a stream is refused, or ends early.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = "\nnext\n".join(_transfer(url, answer, f"{seed}-{stream}", folder) for stream in range(streams))
        used, started = _children_s(), time.perf_counter()
        command = [
            "curl",
            "--silent",
            "--no-progress-meter",
            "--fail",
            "--parallel",
            "--parallel-immediate",
            "--config",
            "-",
        ]
        done = subprocess.run(command, input=config, text=True, check=False)
        seconds = time.perf_counter() - started
        whole = sum(f'"generated_tokens":{answer}' in path.read_text() for path in Path(folder).iterdir())
    if done.returncode or whole != streams:
        raise RuntimeError(f"curl ended with {done.returncode}, and {whole} of {streams} streams are whole")
    return seconds, (_children_s() - used) / seconds


def _transfer(url: str, answer: int, name: str, folder: str) -> str:
    """One transfer in curl's own words. Prompts differ from the first token, so that none is cached."""
    token_ids = np.random.default_rng(zlib.crc32(name.encode())).integers(*ORDINARY_IDS, PROMPT).tolist()
    body = {
        "prompt_tokens": token_ids,
        "max_new_tokens": answer,
        "temperature": 0,
        "ignore_eos": True,
        "speculation": "off",
        "stream": True,
    }
    quoted = json.dumps(json.dumps(body))
    header = "content-type: application/json"
    return f'url = "{url}/generate"\nheader = "{header}"\noutput = "{folder}/{name}"\ndata = {quoted}'


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def summary(rounds: list[Round]) -> dict[str, Any]:
    """Medians; the share is the median of each round's own."""
    shares = [each.http / each.bare for each in rounds]
    return {
        "rounds": len(rounds),
        "bare_tokens_per_second": statistics.median(each.bare for each in rounds),
        "http_tokens_per_second": statistics.median(each.http for each in rounds),
        "share": statistics.median(shares),
        "least_share": min(shares),
        "most_share": max(shares),
        "client_cpu_share": statistics.median(each.client for each in rounds),
    }


def table(figures: Mapping[str, Any]) -> str:
    headings = ("streams", "tokens/s, bare engine", "tokens/s, HTTP", "share", "in single rounds", "at least", "client")
    row = (
        f"{figures['streams']}",
        f"{figures['bare_tokens_per_second']:,.0f}",
        f"{figures['http_tokens_per_second']:,.0f}",
        f"{figures['share']:.0%}",
        f"{figures['least_share']:.0%} to {figures['most_share']:.0%}",
        f"{LEAST:.0%}",
        f"{figures['client_cpu_share']:.0%} of a core",
    )
    note = (
        f"Prompts of {figures['prompt']} tokens, {figures['answer']} new ones, the client is curl; medians of "
        f"{figures['rounds']} rounds in which both ways take turns. `{figures['command']}`"
    )
    return f"{markdown_table(headings, [row])}\n\n{note}"


@click.command()
@click.option("--streams", type=click.IntRange(1), default=8, show_default=True, help="At once.")
@click.option("--answer", type=click.IntRange(2), default=64, show_default=True, help="Tokens of each stream.")
@click.option("--rounds", type=click.IntRange(1), default=15, show_default=True, help="How often each is measured.")
@output_options
def main(as_json: bool, records: bool, **given: Any) -> None:
    """Measure how much of the engine's speed is left over HTTP.

    \b
    Examples:
      python -m tests.bench.http_share --rounds 3
      python -m tests.bench.http_share --record
    """
    figures = measure(**given)
    deliver(NAME, figures, table(figures), as_json=as_json, records=records)


if __name__ == "__main__":
    main()
