"""The service's engine on the native op set, as a server builds it, stepped by hand and asked questions.

Always: pages that nothing was written to are full of NaN.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.decoding.params import LogprobOptions
from service.preemption import can_pause
from service.request import Delta, Failed, Finished, GenerationRequest, RequestEvent, Terminal
from service.settings import Settings
from service.startup import load
from service.step_budget import StepBudget
from tests.bits.questions import Bits, Question, answer_of, greedy, prose, random_prompt

CACHE_BYTES = 16 << 20
NEAR_TIES = 4
CANDIDATES = 200


class FixedBudget(StepBudget):
    """So many prompt rows in every step, whatever they cost."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows

    def prefill_rows(self, decode_rows: int) -> int:
        return self.rows


class Laboratory:
    """One engine, loaded from a model file as `tane serve` loads it."""

    def __init__(
        self, model: Path, *, prompt_rows: int | None = None, cache_bytes: int = CACHE_BYTES, **settings: Any
    ) -> None:
        """`prompt_rows` is how many prompt rows a step runs; without it, as many as the measured cost allows."""
        flags = {"model": str(model), "engine": "native", "kv_cache_bytes": cache_bytes, **settings}
        budget = StepBudget() if prompt_rows is None else FixedBudget(prompt_rows)
        loaded = load(Settings.load({}, flags), make_budget=lambda: budget)
        self.budget = budget
        self.engine, self.ops, self.model = loaded.engine, loaded.ops, loaded.model
        self.page_count = loaded.info.page_count
        self._asked = 0
        self.ops.poison_pages()

    @property
    def vocabulary_size(self) -> int:
        return self.model.config.vocabulary_size

    def forget(self) -> None:
        """Begin again with an empty cache and free pages full of NaN."""
        self.engine.recover("engine_stopped")
        self.ops.poison_pages()

    def new_id(self) -> str:
        self._asked += 1
        return f"r{self._asked}"

    def ask(self, question: Question, **given: Any) -> Bits:
        """The answer to a question that nothing runs beside. `given` are fields of the request."""
        return bits_of(self.finish(question, **given))

    def finish(self, question: Question, **given: Any) -> Finished:
        (finished,) = self.run([question.request(self.new_id(), **given)])
        assert isinstance(finished, Finished), finished
        return finished

    def ask_together(self, questions: Sequence[Question], **given: Any) -> list[Bits]:
        """The answers to questions that are asked at the same time, in their order."""
        return [bits_of(each) for each in self.run([each.request(self.new_id(), **given) for each in questions])]

    def run(self, requests: Iterable[GenerationRequest]) -> list[Terminal]:
        """Run requests to their ends side by side; how each ended, in the order of the requests."""
        asked = list(requests)
        for request in asked:
            self.engine.submit(request, 0.0)
        ended = {event.request_id: event for event in self.until_idle() if not isinstance(event, Delta)}
        return [ended[request.id] for request in asked]

    def pause(self) -> int:
        """Have everyone who can give their pages back, as if others wanted them; answers how many did."""
        scheduler = self.engine._scheduler
        pausable = [each for each in scheduler._running if can_pause(each)]
        for active in reversed(pausable):
            scheduler._preempt(active, 0.0)
        return len(pausable)

    def until_idle(self) -> list[RequestEvent]:
        """Every event until nothing runs."""
        events: list[RequestEvent] = []
        while not self.engine.is_idle:
            events += self.engine.step()[0]
        return events


def bits_of(terminal: Terminal) -> Bits:
    assert isinstance(terminal, Finished), terminal
    return tuple(answer_of(completion) for completion in terminal.completions)


@dataclass(slots=True)
class Truth:
    """What an engine answers that computes each question alone and from nothing. Remembers what it was asked."""

    laboratory: Laboratory
    known: dict[Question, Bits] = field(default_factory=dict)

    def __call__(self, question: Question) -> Bits:
        if question not in self.known:
            self.known[question] = self.laboratory.ask(question, use_cache=False)
        return self.known[question]


def prompts_for(laboratory: Laboratory, lengths: Sequence[int], *, seed: int = 0) -> list[tuple[int, ...]]:
    """Prompts of these lengths, prose and random ids in turn, and a few more that come close to a tie."""
    draw = random.Random(seed)
    encode = laboratory.model.tokenizer.encode
    made = [
        prose(draw, length, encode) if index % 2 else random_prompt(draw, length, laboratory.vocabulary_size)
        for index, length in enumerate(lengths)
    ]
    return [*made, *near_ties(laboratory, draw)]


def near_ties(laboratory: Laboratory, draw: random.Random) -> list[tuple[int, ...]]:
    """Of many short random prompts, those whose greedy answers choose between the closest two tokens somewhere."""
    prompts = [random_prompt(draw, draw.randint(3, 12), laboratory.vocabulary_size) for _ in range(CANDIDATES)]
    questions = [greedy(prompt, 4, logprobs=LogprobOptions(2)) for prompt in prompts]
    terminals = laboratory.run([question.request(laboratory.new_id()) for question in questions])
    gaps = {prompt: narrowest_gap(terminal) for prompt, terminal in zip(prompts, terminals, strict=True)}
    return sorted(gaps, key=gaps.__getitem__)[:NEAR_TIES]


def narrowest_gap(terminal: Terminal) -> float:
    """The least difference between the log-probabilities of the likeliest two tokens of an answer."""
    assert not isinstance(terminal, Failed), terminal
    (completion,) = terminal.completions
    return min(record.top[0].logprob - record.top[1].logprob for record in completion.tokens)
