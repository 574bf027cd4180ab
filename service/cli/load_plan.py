"""What a load test does, as values. Knows no server and makes no request.

Always: every server of a run is asked the same questions, round by round; no two requests of a run to one server share
a prompt, beyond the prefix that they are meant to share.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from service.cli.load_prompts import Length, edited, prompt_of
from service.cli.load_report import Objective

LoadKind = Literal["concurrency", "rate", "sessions"]
OPEN_LOOP_S = 10
"""For about how long requests arrive, where nothing says how many."""


@dataclass(frozen=True, slots=True)
class Load:
    """One level: streams kept open (closed loop), requests that arrive per second (open loop), or sessions at once."""

    kind: LoadKind
    value: float

    def __str__(self) -> str:
        return f"{self.value:g} {ONE[self.kind] if self.value == 1 else UNITS[self.kind]}"


UNITS: Mapping[LoadKind, str] = {"concurrency": "streams", "rate": "requests/s", "sessions": "sessions"}
ONE: Mapping[LoadKind, str] = {"concurrency": "stream", "rate": "request/s", "sessions": "session"}


@dataclass(frozen=True, slots=True)
class Target:
    """A server. The key is in no text that is made of this."""

    url: str
    model: str | None = None
    name: str | None = None
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Question:
    """One request. With a session it is a turn of it."""

    prompt: str
    output_tokens: int
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Each level of `loads` is run once in each round."""

    loads: tuple[Load, ...]
    requests: int | None
    """At each level in each round; None for 8, or 2 for each stream, or what arrives in 10 seconds, where that is
    more."""
    prompt_tokens: Length
    output_tokens: Length
    seed: int
    warmup: int
    timeout_s: float
    shared_prefix: int = 0
    """Of each prompt's tokens so many are the same in all of its group."""
    prefix_groups: int = 1
    """Into which prompts fall in turn, when they share a prefix."""
    turns: int = 4
    """Of each session."""
    rounds: int = 1
    objective: Objective | None = None
    ignore_eos: bool = True
    tane_fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the body, where the server is Tane."""

    @property
    def has_sessions(self) -> bool:
        return any(load.kind == "sessions" for load in self.loads)

    def requests_at(self, load: Load) -> int:
        """In each round."""
        if load.kind == "sessions":
            return int(load.value) * self.turns
        per_unit = 2 if load.kind == "concurrency" else OPEN_LOOP_S
        return self.requests or max(8, math.ceil(per_unit * load.value))

    @property
    def request_count(self) -> int:
        """To each server."""
        return self.warmup + self.rounds * sum(self.requests_at(load) for load in self.loads)

    def warmup_questions(self) -> Iterator[Question]:
        return (self._question(f"warmup {index}", index) for index in range(self.warmup))

    def questions(self, level: str, load: Load) -> Iterator[Question]:
        """Those of one level in one round, which `level` names."""
        return (self._question(f"{level} {index}", index) for index in range(self.requests_at(load)))

    def turns_of(self, level: str, session: int) -> Iterator[Question]:
        """A prompt, then again and again the last one with a word changed somewhere."""
        name = f"{level} {session}"
        question = self._question(name, session)
        prompt, session_id = question.prompt, f"bench-{self.seed}-{name.replace(' ', '-')}"
        for turn in range(self.turns):
            prompt = edited(prompt, f"{self.seed} {name} {turn}") if turn else prompt
            yield Question(prompt, self.output_tokens.draw(f"{self.seed} output {name} {turn}"), session_id)

    def _question(self, name: str, index: int) -> Question:
        prompt_tokens = self.prompt_tokens.draw(f"{self.seed} prompt {name}")
        prefix = self._prefix(index % self.prefix_groups) if self.shared_prefix else "The"
        prompt = prompt_of(prompt_tokens, f"{self.seed} {name}", prefix=prefix)
        return Question(prompt, self.output_tokens.draw(f"{self.seed} output {name}"))

    def _prefix(self, group: int) -> str:
        return prompt_of(self.shared_prefix, f"{self.seed} shared{f' {group}' if group else ''}")
