"""Whether answers keep their bits on a real model, whatever happens around them: every condition, one after the other.

Always: an answer is compared with that of an engine which computes the question alone and from nothing, in ids, text
and every bit of every log-probability.
"""

import sys
import time
from pathlib import Path
from typing import Any

import click

from model.loading.hub import pull
from service.cli.console import count_bar
from service.op_sets import usable_cores
from tests.bench import machine
from tests.bench.record import deliver, markdown_table, output_options
from tests.bits.conditions import CONDITIONS, Answers, Setting, available_isas
from tests.bits.laboratory import Laboratory, Truth, prompts_for
from tests.bits.questions import LENGTHS, half_of, questions_of

NAME = "bits"
CACHE_BYTES = 1 << 28


def measure(setting: Setting, conditions: list[str]) -> dict[str, Any]:
    """For each condition how many answers and tokens were compared, and how many answers differ."""
    truth = Truth(setting.laboratory())
    with count_bar("asked", len(conditions)) as done:
        found = []
        for name in conditions:
            found.append({"condition": name, **compared(CONDITIONS[name](setting), truth)})
            done()
    lengths = sorted({len(question.prompt_ids) for question in setting.questions})
    return {
        "machine": machine.described(),
        "model": setting.model.stem,
        "settings": setting.settings,
        "prompts": len({question.prompt_ids for question in setting.questions}),
        "questions": len(setting.questions),
        "new_tokens": setting.new_tokens,
        "prompt_lengths": lengths,
        "instruction_sets": available_isas(),
        "conditions": found,
    }


def compared(answers: Answers, truth: Truth) -> dict[str, Any]:
    started, count, tokens, different = time.perf_counter(), 0, 0, 0
    for question, bits in answers:
        count += 1
        tokens += sum(len(answer.tokens) for answer in bits)
        different += truth(question) != bits
    return {
        "answers": count,
        "tokens": tokens,
        "different": different,
        "seconds": round(time.perf_counter() - started, 1),
    }


def table(figures: dict[str, Any]) -> str:
    rows = [
        (each["condition"], f"{each['answers']:,}", f"{each['tokens']:,}", f"{each['different']:,}")
        for each in figures["conditions"]
    ]
    lengths = figures["prompt_lengths"]
    note = (
        f"{figures['prompts']} prompts of {lengths[0]} to {lengths[-1]:,} tokens, {figures['questions']} questions, "
        f"{figures['new_tokens']} new tokens each, on {figures['model']}. `{figures['command']}`"
    )
    return markdown_table(("condition", "answers", "tokens", "answers that differ"), rows) + f"\n\n{note}"


def asked_of(
    path: Path, *, prompts: int, new_tokens: int, half: bool, scalar: int | None, kv_type: str, threads: int | None
) -> Setting:
    settings: dict[str, Any] = {"kv_type": kv_type, "threads": threads or usable_cores()}
    laboratory = Laboratory(path, cache_bytes=CACHE_BYTES, **settings)
    questions = questions_of(prompts_for(laboratory, LENGTHS[:prompts]), new_tokens)
    return Setting(path, tuple(half_of(questions) if half else questions), settings, CACHE_BYTES, scalar)


def chosen(wanted: tuple[str, ...]) -> list[str]:
    """Names of conditions. Raises UsageError when there is none."""
    names = [name for name in CONDITIONS if not wanted or any(word in name for word in wanted)]
    if not names:
        raise click.UsageError(f"--only must be a part of one of: {', '.join(CONDITIONS)}")
    return names


@click.command()
@click.option("--model", type=click.Path(exists=True, path_type=Path), help="GGUF file; default: the default model.")
@click.option("--prompts", type=click.IntRange(1, len(LENGTHS)), default=len(LENGTHS), show_default=True)
@click.option("--new-tokens", type=click.IntRange(1), default=16, show_default=True, help="Of each answer.")
@click.option("--half", is_flag=True, help="Ask two questions about each prompt instead of four.")
@click.option("--scalar", type=click.IntRange(1), help="How many questions the scalar definition gets; default: all.")
@click.option("--only", multiple=True, metavar="WORD", help="Only conditions whose names hold this; may be repeated.")
@click.option("--kv-type", type=click.Choice(["int8", "float16"]), default="int8", show_default=True)
@click.option("--threads", type=click.IntRange(1), help="Default: the usable cores.")
@output_options
def main(model: Path | None, *, only: tuple[str, ...], as_json: bool, records: bool, **given: Any) -> None:
    """Ask every question in every condition, and fail when one bit differs.

    To the prompts some are added that come close to a tie between two tokens.

    \b
    Examples:
      python -m tests.bench.bits --record
      python -m tests.bench.bits --prompts 6 --half --new-tokens 8 --scalar 2
    """
    conditions = chosen(only)
    scalar = f" --scalar {given['scalar']}" if given["scalar"] else ""
    fewer = f"{' --half' if given['half'] else ''}{scalar}"
    size = f"--prompts {given['prompts']} --new-tokens {given['new_tokens']}{fewer}"
    command = f"python -m tests.bench.bits {size} --record"
    figures = {"command": command, **measure(asked_of(model or pull(), **given), conditions)}
    deliver(NAME, figures, table(figures), as_json=as_json, records=records)
    sys.exit(any(each["different"] for each in figures["conditions"]))


if __name__ == "__main__":
    main()
