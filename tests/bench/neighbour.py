"""What is left of the speed when another process takes one core: decoding of one and of eight streams, and prefill.

Always: quiet and disturbed times are taken in turn, so that whoever else uses the machine disturbs both.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from model.loading.gguf import load_gguf
from model.loading.hub import pull
from service.cli.console import count_bar
from tests.bench import machine
from tests.bench.bare_engine import BareEngine
from tests.bench.record import deliver, markdown_table, output_options

NAME = "neighbour"
CONTEXT, PROMPT, STREAMS = 64, 512, 8
SETTLING_S = 0.3
"""Until the scheduler has made room for a new process, or filled that of one which left."""
LEAST = 0.45
"""Of the quiet speed that should be kept."""
MILLISECONDS = 1000


@contextmanager
def busy_core() -> Iterator[None]:
    """Another process that never rests, until the block ends."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    time.sleep(SETTLING_S)
    try:
        yield
    finally:
        process.kill()
        process.wait()
        time.sleep(SETTLING_S)


def cases(engine: BareEngine) -> dict[str, Callable[[], float]]:
    """Seconds of each kind of work."""
    return {
        "a token of one stream": lambda: engine.decode(CONTEXT, steps=200),
        f"a token each of {STREAMS} streams": lambda: engine.decode(CONTEXT, sequences=STREAMS, steps=100),
        f"a prompt of {PROMPT} tokens": lambda: statistics.mean(engine.prefill(PROMPT) for _ in range(4)),
    }


def measure(rounds: int) -> dict[str, Any]:
    """All figures."""
    engine = BareEngine(load_gguf(pull()), sequences=STREAMS, room=PROMPT + 1)
    for sequence in range(STREAMS):
        engine.prefill(CONTEXT, sequence)
    works = cases(engine)
    quiet: dict[str, list[float]] = {name: [] for name in works}
    taken: dict[str, list[float]] = {name: [] for name in works}
    with count_bar("rounds", rounds) as on_round:
        for _ in range(rounds):
            for name, work in works.items():
                quiet[name].append(work())
            with busy_core():
                for name, work in works.items():
                    taken[name].append(work())
            on_round()
    return {
        "command": f"python -m tests.bench.neighbour --rounds {rounds} --record",
        "machine": machine.described(),
        "rounds": rounds,
        "threads": engine.threads,
        "works": [
            {
                "name": name,
                "quiet_ms": statistics.median(quiet[name]) * MILLISECONDS,
                "taken_ms": statistics.median(taken[name]) * MILLISECONDS,
            }
            for name in works
        ],
    }


def table(figures: dict[str, Any]) -> str:
    rows = [
        [
            work["name"],
            f"{work['quiet_ms']:.2f}",
            f"{work['taken_ms']:.2f}",
            f"{work['quiet_ms'] / work['taken_ms']:.0%}",
            f"{LEAST:.0%}",
        ]
        for work in figures["works"]
    ]
    note = f"{figures['threads']} threads, medians of {figures['rounds']} rounds. `{figures['command']}`"
    return f"{markdown_table(['', 'ms, quiet', 'ms, a core taken', 'kept', 'at least'], rows)}\n\n{note}"


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="How often each is measured.")
@output_options
def main(*, rounds: int, as_json: bool, records: bool) -> None:
    """Measure how much speed is left when another process takes one core.

    Examples:
      python -m tests.bench.neighbour --rounds 1
    """
    figures = measure(rounds)
    deliver(NAME, figures, table(figures), as_json=as_json, records=records)


if __name__ == "__main__":
    main()
