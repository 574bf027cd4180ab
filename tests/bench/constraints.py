"""What constraints cost: a token of an ordinary schema, and the answer to a grammar that was written to take long.

On the tokenizer of the default model; no model runs. Always: each is the median of rounds that went through all.
"""

import statistics
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import numpy as np

from model.decoding.constraint import ConstraintCompiler, ConstraintError, ConstraintSpec
from model.loading.gguf import load_gguf
from model.loading.hub import pull
from model.tokenizer import Tokenizer
from service.cli.console import count_bar
from tests.bench import machine
from tests.bench.record import deliver, markdown_table, output_options
from tests.constrained import allowed_ids
from tests.hostile_constraints import HOSTILE

NAME = "constraints"
LIMITS = (60, 120, 250)
HOSTILE_LIMIT = 256
MILLISECONDS = 1000
ORDINARY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 200},
        "age": {"type": "integer", "minimum": 18, "maximum": 99},
        "joined": {"type": "string", "format": "date-time"},
        "kind": {"enum": ["red", "green", "blue"]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "address": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}},
    },
    "required": ["name", "age", "joined", "kind", "tags"],
    "additionalProperties": False,
}


def token_costs(compiler: ConstraintCompiler, seed: int) -> list[tuple[float, float, float]]:
    """Seconds for the mask, for settling and for taking each token, drawn uniformly from the mask."""
    compiled = compiler.compile(ConstraintSpec.json_schema(ORDINARY))
    rng = np.random.default_rng(seed)
    costs = []
    for limit in LIMITS:
        constraint = compiled.renewed().begin(limit)
        while constraint.left and not constraint.ended:
            times = [time.perf_counter()]
            mask = constraint.mask()
            times.append(time.perf_counter())
            drawn = int(rng.choice(allowed_ids(mask)))
            begun = time.perf_counter()
            settled = constraint.settle(drawn, constraint.left)
            middle = time.perf_counter()
            constraint.advance(settled)
            costs.append((times[1] - times[0], middle - begun, time.perf_counter() - middle))
    return costs


def answer_seconds(compiler: ConstraintCompiler, name: str) -> float:
    """Until the constraint is ready for its first token, or refused."""
    kind, value = HOSTILE[name]
    started = time.perf_counter()
    with suppress(ConstraintError):
        compiler.compile(getattr(ConstraintSpec, kind)(value)).begin(HOSTILE_LIMIT)
    return time.perf_counter() - started


def measure(path: Path, rounds: int) -> dict[str, Any]:
    """All figures, in milliseconds."""
    compiler = ConstraintCompiler(Tokenizer(load_gguf(path).vocabulary))
    costs: list[tuple[float, float, float]] = []
    answers: dict[str, list[float]] = {name: [] for name in HOSTILE}
    with count_bar("rounds", rounds) as on_round:
        for number in range(rounds):
            costs += token_costs(compiler, number)
            for name, seconds in answers.items():
                seconds.append(answer_seconds(compiler, name))
            on_round()
    means = [statistics.mean(each) * MILLISECONDS for each in zip(*costs, strict=True)]
    return {
        "command": f"python -m tests.bench.constraints --rounds {rounds} --record",
        "machine": machine.described(),
        "rounds": rounds,
        "token": dict(zip(("mask", "settle", "take"), means, strict=True)),
        "hostile": {name: statistics.median(seconds) * MILLISECONDS for name, seconds in answers.items()},
    }


def table(figures: dict[str, Any]) -> str:
    rows = [[f"a token: {name}", f"{value:.3f}"] for name, value in figures["token"].items()]
    rows += [[f"hostile: {name}", f"{value:.0f}"] for name, value in figures["hostile"].items()]
    note = f"Means over tokens, medians of {figures['rounds']} rounds. `{figures['command']}`"
    return f"{markdown_table(['', 'ms'], rows)}\n\n{note}"


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="How often each is measured.")
@output_options
def main(*, rounds: int, as_json: bool, records: bool) -> None:
    """Measure what constraints cost.

    Examples:
      python -m tests.bench.constraints --rounds 1
    """
    figures = measure(pull(), rounds)
    deliver(NAME, figures, table(figures), as_json=as_json, records=records)


if __name__ == "__main__":
    main()
