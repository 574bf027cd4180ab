"""Streams as their readers have them. Always: what was read is compared with the whole answer that ends a stream."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from service.affinity import HEADER, Caller
from service.answers import TaneError
from service.cli.load_prompts import prompt_of
from service.client import AsyncClient
from service.generate_fields import GenerateFields

PROMPT_TOKENS = 48
POLL_S = 0.005


@dataclass(slots=True)
class Stream:
    """One request and what came of it."""

    fields: dict[str, Any]
    affinity: str
    text: str = ""
    deltas: int = 0
    answer: Mapping[str, Any] | None = None
    error: str | None = None
    longest_gap_s: float = 0.0
    """Between two pieces."""

    @property
    def runs(self) -> bool:
        """Whether it has begun and not ended."""
        return self.deltas > 0 and self.answer is None

    @property
    def is_whole(self) -> bool:
        """Whether it ended, and its pieces are its text."""
        return self.answer is not None and self.text == self.answer["text"]

    async def read(self, client: AsyncClient, *, after_s: float = 0.0) -> None:
        await asyncio.sleep(after_s)
        last: float | None = None
        try:
            async for event in client.stream(**cast(GenerateFields, self.fields)):
                now = time.perf_counter()
                self.longest_gap_s = max(self.longest_gap_s, now - (last or now))
                last = now
                self._take(event)
        except TaneError as error:
            self.error = str(error)

    def _take(self, event: Mapping[str, Any]) -> None:
        if "usage" in event:
            self.answer = event
        else:
            self.deltas += 1
            self.text += event["text"]


def streams(count: int, tokens: int, api_key: str, seed: int) -> list[Stream]:
    """So many that belong together with no other, each with a seed."""
    made: list[Stream] = []
    for number in range(count):
        prompt = prompt_of(PROMPT_TOKENS, f"{seed} stream {number}", prefix=f"Story {number} of {seed}:")
        fields = {"prompt": prompt, "seed": number, "temperature": 0.8, "max_new_tokens": tokens, "ignore_eos": True}
        made.append(Stream(fields, Caller(api_key).affinity(fields)[HEADER]))
    return made


async def all_begun(every: list[Stream]) -> int:
    """Wait until each has brought something; answers how many still run then."""
    while not all(each.deltas or each.error for each in every):
        await asyncio.sleep(POLL_S)
    return sum(each.runs for each in every)
