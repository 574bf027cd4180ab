"""What guessing tokens ahead does for one stream: answers that repeat their prompt, and free text.

Always: a prompt is answered with and without guesses in turn, by one engine, and answers that differ in a bit fail.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from model.chat import Message
from model.decoding.params import DecodingParameters, LogprobOptions, Speculation
from model.loading.hub import pull
from service.cli.console import count_bar
from service.request import Finished, GenerationRequest
from tests.bench import machine
from tests.bench.record import deliver, markdown_table, output_options
from tests.bench.timing import interleaved
from tests.bits.laboratory import Laboratory, bits_of
from tests.bits.questions import Bits

NAME = "speculation"
CACHE_BYTES = 1 << 28
SEED = 1
Modes = tuple[Speculation, Speculation]
"""Without guesses, and with."""
MODES: Modes = ("off", "auto")

LETTER = (
    "Dear Ms Keller, thank you for your letter of 12 March about the library in the old town hall. We have read it "
    "with care. The reading room will stay open on Saturdays from nine in the morning to four in the afternoon. The "
    "new catalogue will be ready in May, and the children's books will move to the first floor. With kind regards, "
    "the friends of the library."
)
STORY = (
    "The old lighthouse stood at the end of the pier. Every evening the keeper climbed the ninety steps, lit the lamp, "
    "and wrote the hour into a book. In winter the waves reached the door; in summer the children of the village came "
    "to count the ships. One night the lamp went out, and for the first time in forty years the keeper did not know "
    "the hour."
)
TABLE = "name,city,year\nAnna,Bern,1999\nBruno,Basel,2001\nCarla,Geneva,1987\nDario,Lugano,1993\nEva,Zurich,2004\n"


@dataclass(frozen=True, slots=True)
class Kind:
    """Prompts of one kind, put into the model's chat template."""

    prompts: tuple[str, ...]
    temperature: float
    ignores_eos: bool = False


KINDS: Mapping[str, Kind] = {
    "repeats its prompt": Kind(
        (
            f"Correct the spelling of this text and write it out in full.\n\n{LETTER}",
            f"Fix the grammar of the following text. Answer with the whole text.\n\n{STORY}",
            f"Rewrite this text:\n\n{STORY}",
            f"Sort this table by year and write all rows:\n\n{TABLE}",
        ),
        temperature=0.0,
    ),
    "free text": Kind(
        (
            "Tell me a story about a lighthouse keeper who finds a map.",
            "How can I learn to play the piano as an adult?",
            "Write a letter to a friend about your first week in a new city.",
            "What happened in Europe in the year 1848?",
        ),
        temperature=0.8,
        ignores_eos=True,
    ),
}


@dataclass(slots=True)
class Answers:
    """What one prompt was answered in each mode; every round the same."""

    bits: dict[Speculation, Bits] = field(default_factory=dict)
    last: dict[Speculation, Finished] = field(default_factory=dict)


def measure(path: Path, *, rounds: int, new_tokens: int, threads: int | None) -> dict[str, Any]:
    """For each kind of prompt the tokens per second of one stream, and what was guessed."""
    laboratory = Laboratory(path, cache_bytes=CACHE_BYTES, threads=threads)
    with count_bar("rounds", len(KINDS) * (rounds + 1)) as on_round:
        kinds = [
            {"kind": name, **measure_kind(laboratory, kind, rounds, new_tokens, on_round)}
            for name, kind in KINDS.items()
        ]
    return {
        "command": f"python -m tests.bench.speculation --rounds {rounds} --new-tokens {new_tokens} --record",
        "machine": machine.described(),
        "model": laboratory.model.name,
        "rounds": rounds,
        "new_tokens": new_tokens,
        "kinds": kinds,
    }


def measure_kind(
    laboratory: Laboratory,
    kind: Kind,
    rounds: int,
    new_tokens: int,
    on_round: Callable[[], None],
    *,
    modes: Modes = MODES,
) -> dict[str, Any]:
    without, guessing = modes
    answers = {prompt: Answers() for prompt in kind.prompts}
    cases = {
        (prompt, mode): partial(answer, laboratory, kind, prompt, mode, new_tokens=new_tokens, answers=answers[prompt])
        for prompt in kind.prompts
        for mode in modes
    }
    times = interleaved(cases, rounds=rounds, on_round=on_round)
    tokens = sum(each.last[guessing].usage.generated_tokens - 1 for each in answers.values())
    seconds = {mode: sum(times[prompt, mode].median for prompt in kind.prompts) for mode in modes}
    guessed = [each.last[guessing].speculation for each in answers.values()]
    return {
        "temperature": kind.temperature,
        "prompts": len(kind.prompts),
        "tokens": tokens,
        "tokens_per_second": {mode: tokens / seconds[mode] for mode in modes},
        "speed": seconds[without] / seconds[guessing],
        "drafted_tokens": sum(each.drafted_tokens for each in guessed),
        "accepted_tokens": sum(each.accepted_tokens for each in guessed),
        "different": sum(len(set(each.bits.values())) > 1 for each in answers.values()),
    }


def answer(
    laboratory: Laboratory, kind: Kind, prompt: str, mode: Speculation, *, new_tokens: int, answers: Answers
) -> float:
    """Answer once; the seconds after the first token."""
    template = laboratory.model.chat_template
    ids = laboratory.model.tokenizer.encode(prompt) if template is None else template.encode([Message("user", prompt)])
    parameters = DecodingParameters(
        new_tokens,
        SEED,
        temperature=kind.temperature,
        ignore_eos=kind.ignores_eos,
        logprobs=LogprobOptions(),
        speculation=mode,
    )
    (finished,) = laboratory.run([GenerationRequest(laboratory.new_id(), tuple(ids), parameters)])
    assert isinstance(finished, Finished), finished
    answers.bits[mode], answers.last[mode] = bits_of(finished), finished
    return finished.timings.decode_s


def table(figures: Mapping[str, Any]) -> str:
    rows = [
        (
            each["kind"],
            f"{each['tokens_per_second']['off']:,.0f}",
            f"{each['tokens_per_second']['auto']:,.0f}",
            f"{each['speed']:.2f}",
            f"{each['drafted_tokens']:,}",
            f"{each['accepted_tokens']:,}",
            f"{each['different']}",
        )
        for each in figures["kinds"]
    ]
    headings = ("one stream", "tokens/s, off", "tokens/s, auto", "ratio", "guessed", "kept", "answers that differ")
    note = (
        f"{figures['model']}, {figures['kinds'][0]['prompts']} prompts of each kind, at most {figures['new_tokens']} "
        f"tokens each, medians of {figures['rounds']} rounds; at temperature "
        f"{' and '.join(str(each['temperature']) for each in figures['kinds'])}. `{figures['command']}`"
    )
    return markdown_table(headings, rows) + f"\n\n{note}"


@click.command()
@click.option("--model", type=click.Path(exists=True, path_type=Path), help="GGUF file; default: the default model.")
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True, help="How often each is measured.")
@click.option("--new-tokens", type=click.IntRange(2), default=192, show_default=True, help="At most, of each answer.")
@click.option("--threads", type=click.IntRange(1), help="Default: the usable cores.")
@output_options
def main(model: Path | None, as_json: bool, records: bool, **given: Any) -> None:
    """Measure how much faster one stream is when tokens are guessed ahead, and fail when one bit differs.

    \b
    Examples:
      python -m tests.bench.speculation --rounds 1 --new-tokens 64
      python -m tests.bench.speculation --record
    """
    figures = measure(model or pull(), **given)
    deliver(NAME, figures, table(figures), as_json=as_json, records=records)
    sys.exit(any(each["different"] for each in figures["kinds"]))


if __name__ == "__main__":
    main()
