"""What compressed models are worth as drafts of the model they came from, in one stream, also where they cost time.

Always: a prompt is answered with and without guesses in turn, by one engine, and answers that differ in a bit fail.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from model.loading.hub import pull
from model.loading.model import load_model
from service.cli.console import count_bar
from service.model_report import report_on
from tests.bench import machine
from tests.bench.bare_engine import BareEngine
from tests.bench.record import deliver, markdown_table, output_options
from tests.bench.speculation import CACHE_BYTES, KINDS, Modes, measure_kind
from tests.bench.timing import interleaved
from tests.bits.laboratory import Laboratory

NAME = "drafts"
MODES: Modes = ("off", "draft")
CONTEXT = 256
STEPS = 8


def expected_speed(acceptance: float, guesses: float, cost: float, verification: float) -> float:
    """Leviathan et al. 2023: (1 - α^(γ+1)) / (1 - α) tokens for γ steps of the draft and one that verifies."""
    tokens = guesses + 1 if acceptance >= 1 else (1 - acceptance ** (guesses + 1)) / (1 - acceptance)
    return tokens / (guesses * cost + verification)


def measure(
    model: Path, drafts: Sequence[Path], *, rounds: int, new_tokens: int, threads: int | None
) -> dict[str, Any]:
    """For each draft its costs, and for each kind of prompt how many guesses held and what that gained."""
    with count_bar("rounds", len(drafts) * (len(KINDS) + 1) * (rounds + 1)) as on_round:
        rows = [
            measure_draft(model, draft, rounds=rounds, new_tokens=new_tokens, threads=threads, on_round=on_round)
            for draft in drafts
        ]
    return {
        "command": f"python -m tests.bench.drafts {' '.join(draft.name for draft in drafts)} --rounds {rounds} "
        f"--new-tokens {new_tokens} --record",
        "machine": machine.described(),
        "model": load_model(model).name,
        "rounds": rounds,
        "new_tokens": new_tokens,
        "context": CONTEXT,
        "drafts": rows,
    }


def measure_draft(
    model: Path, draft: Path, *, rounds: int, new_tokens: int, threads: int | None, on_round: Callable[[], None]
) -> dict[str, Any]:
    laboratory = Laboratory(model, cache_bytes=CACHE_BYTES, threads=threads, draft=str(draft))
    kinds = {
        name: measure_kind(laboratory, kind, rounds, new_tokens, on_round, modes=MODES) for name, kind in KINDS.items()
    }
    guesses = {name: guesses_per_step(each) for name, each in kinds.items()}
    kept = {name: each["accepted_tokens"] / max(each["drafted_tokens"], 1) for name, each in kinds.items()}
    costs = measure_costs(model, draft, guesses, rounds=rounds, threads=threads, on_round=on_round)
    report = report_on(load_model(draft), draft)
    return {
        "draft": draft.name,
        "bytes": report.bytes,
        "bits_per_weight": report.bits_per_weight,
        "cost": costs["draft"],
        "kinds": [
            {
                "kind": name,
                **each,
                "acceptance": kept[name],
                "guesses": guesses[name],
                "verification": costs[name],
                "expected_speed": expected_speed(kept[name], guesses[name], costs["draft"], costs[name]),
            }
            for name, each in kinds.items()
        ],
    }


def guesses_per_step(kind: Mapping[str, Any]) -> float:
    """Mean over all steps, those without guesses too."""
    steps: int = kind["tokens"] - kind["accepted_tokens"]
    return float(kind["drafted_tokens"]) / max(steps, 1)


def measure_costs(
    model: Path,
    draft: Path,
    guesses: Mapping[str, float],
    *,
    rounds: int,
    threads: int | None,
    on_round: Callable[[], None],
) -> dict[str, float]:
    """Times of a step beside one of the model with one row: of the draft, and of verifying each number of guesses."""
    room = CONTEXT + max(map(round, guesses.values()), default=0) + 1
    target, small = (BareEngine(load_model(path), sequences=1, room=room, threads=threads) for path in (model, draft))
    for engine in (target, small):
        engine.prefill(CONTEXT)
    cases: dict[str, Callable[[], float]] = {
        "one row": partial(target.verify, CONTEXT, 1, steps=STEPS),
        "draft": partial(small.verify, CONTEXT, 1, steps=STEPS),
        **{name: partial(target.verify, CONTEXT, round(count) + 1, steps=STEPS) for name, count in guesses.items()},
    }
    times = interleaved(cases, rounds=rounds, on_round=on_round)
    return {name: times[name].median / times["one row"].median for name in cases if name != "one row"}


def table(figures: Mapping[str, Any]) -> str:
    rows = [
        (
            draft["draft"],
            f"{draft['bytes'] / 1e6:,.0f}",
            each["kind"],
            f"{each['acceptance']:.2f}",
            f"{each['guesses']:.1f}",
            f"{draft['cost']:.2f}",
            f"{each['verification']:.2f}",
            f"{each['expected_speed']:.2f}",
            f"{each['speed']:.2f}",
            f"{each['different']}",
        )
        for draft in figures["drafts"]
        for each in draft["kinds"]
    ]
    headings = ("draft", "MB", "one stream", "α", "γ", "c", "v", "expected", "measured", "answers that differ")
    note = (
        f"{figures['model']} with each draft, at most {figures['new_tokens']} tokens an answer, medians of "
        f"{figures['rounds']} rounds. α: share of guesses kept; γ: guesses in a step, on average; c: a step of the "
        f"draft, and v: a step of γ + 1 rows, beside a step of one row after {figures['context']} tokens; then the "
        f"speed that these make expected, and the one measured, beside the same answers without guesses. "
        f"`{figures['command']}`"
    )
    return markdown_table(headings, rows) + f"\n\n{note}"


@click.command()
@click.argument("drafts", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--model", type=click.Path(exists=True, path_type=Path), help="GGUF file; default: the default model.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="How often each is measured.")
@click.option("--new-tokens", type=click.IntRange(2), default=128, show_default=True, help="At most, of each answer.")
@click.option("--threads", type=click.IntRange(1), help="Default: the usable cores.")
@output_options
def main(drafts: tuple[Path, ...], model: Path | None, as_json: bool, records: bool, **given: Any) -> None:
    """Measure DRAFTS, folders of compressed models, as drafts of the model; fail when one bit differs.

    \b
    Examples:
      python -m tests.bench.drafts ./ffn-50 --rounds 1 --new-tokens 32
      python -m tests.bench.drafts ./ffn-50 ./gptq-3bit-g64 --record
    """
    figures = measure(model or pull(), drafts, **given)
    deliver(NAME, figures, table(figures), as_json=as_json, records=records)
    sys.exit(any(each["different"] for draft in figures["drafts"] for each in draft["kinds"]))


if __name__ == "__main__":
    main()
