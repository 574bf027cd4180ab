"""What guessing tokens ahead does for one stream: texts that repeat their prompt, and free text.

Always: each prompt is answered with and without guesses in turn, in one engine, and both answers must have equal bits.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from model.chat import Message
from model.decoding.params import DecodingParameters, Speculation
from model.loading.hub import pull
from service.cli.console import count_bar
from service.op_sets import usable_cores
from service.request import Finished
from tests.bench import machine
from tests.bench.record import deliver, markdown_table, output_options
from tests.bench.timing import Times, interleaved
from tests.bits.laboratory import Laboratory
from tests.bits.questions import SENTENCES, Question

NAME = "speculation"
CACHE_BYTES = 1 << 28
ANSWER = 192
"""Tokens of each answer."""
MODES: tuple[Speculation, ...] = ("off", "auto")

LETTER = (
    "Dear Ms Keller, thank you for your letter of 12 March about the library in the old town hall. We have read it with "
    "care. The reading room will stay open on Saturdays from nine in the morning to four in the afternoon. The new "
    "catalogue will be ready in May, and the children's books will move to the first floor. With kind regards, the "
    "friends of the library."
)
FUNCTION = (
    "def mean(values):\n    total = 0.0\n    count = 0\n    for value in values:\n        total = total + value\n"
    "        count = count + 1\n    if count == 0:\n        return None\n    return total / count\n"
)
REPEATING = {
    "copy a letter": f"Write the following letter again, word for word.\n\n{LETTER}",
    "correct a text": f"Correct the spelling of this text and write it out in full.\n\n{' '.join(SENTENCES)}",
    "rename in code": f"Rename the variable `total` to `sum` in this function and write it out.\n\n{FUNCTION}",
}
FREE = {
    "a story": "Tell me a story about a lighthouse keeper who finds a map.",
    "advice": "How can I learn to play the piano as an adult?",
    "a letter": "Write a letter to a friend about your first week in a new city.",
}


@dataclass(frozen=True, slots=True)
class Ran:
    """One answer, and how fast it came."""

    seconds: float
    tokens: int
    drafted: int
    accepted: int
    bits: tuple[int, ...]


def measure(path: Path, *, rounds: int, temperature: float, new_tokens: int, **settings: Any) -> dict[str, Any]:
    laboratory = Laboratory(path, cache_bytes=CACHE_BYTES, **settings)
    with count_bar("rounds", 2 * (rounds + 1)) as on_round:
        kinds = {
            kind: measure_kind(laboratory, prompts, rounds, temperature, new_tokens, on_round)
            for kind, prompts in (("repeating", REPEATING), ("free", FREE))
        }
    return {
        "command": f"python -m tests.bench.speculation --rounds {rounds} --temperature {temperature} --record",
        "machine": machine.described(),
        "model": laboratory.model.name,
        "temperature": temperature,
        "new_tokens": new_tokens,
        "rounds": rounds,
        "kinds": kinds,
    }
