"""A scripted model that takes time and may repeat itself, with another that guesses for it.

What is said after a text is a function that the test gives; `free` never repeats, `repeating` always does.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from model.batch import Batch
from model.decoding.choice import Ask, Choice
from model.decoding.params import Drawn, Speculation
from service.draft_model import DraftModel
from service.drafting import Drafting
from service.engine import Engine, EngineLimits
from service.request import Finished, GenerationRequest
from tests.engine_fakes import (
    EOS,
    Context,
    HandClock,
    PagedModel,
    ScriptedSampler,
    make_request,
    make_transcript,
    next_id,
    run,
)

PAGES = 256
PERIOD = 12
Says = Callable[[Context, int, int], int]


def repeating(context: Context, seed: int, sample_index: int) -> int:
    """Says what stood twelve places before; the seed and the sample shift where it begins."""
    return context[-PERIOD] if len(context) >= PERIOD else len(context) + 2


def free(context: Context, seed: int, sample_index: int) -> int:
    return next_id(context, seed, sample_index)


class SpeakingSampler(ScriptedSampler):
    """Draws what its script says, and accepts what was drafted where it is that."""

    def __init__(self, says: Says) -> None:
        self._says = says
        self.asked: list[Ask] = []
        self.read: list[int] = []
        """Before each of them, how many tokens."""

    def choose(self, logits: Sequence[Context], asks: Sequence[Ask]) -> list[Choice]:
        self.asked += asks
        return [Choice(ask.parents, tuple(self._tokens(logits, ask))) for ask in asks]

    def _tokens(self, logits: Sequence[Context], ask: Ask) -> Iterator[tuple[Drawn, ...]]:
        for parent, sample_index in zip(ask.parents, ask.sample_indices, strict=True):
            asking, taken = ask.sequences[parent], []
            self.read.append(len(logits[asking.rows[0]]))
            for row, draft in zip(asking.rows, (*asking.drafts, None), strict=True):
                taken.append(Drawn(self._says(logits[row], ask.parameters.seed, sample_index)))
                if taken[-1].token_id != draft:
                    break
            yield tuple(taken)


class TimedModel(PagedModel):
    """Takes so many seconds for a step and for each of its rows."""

    def __init__(self, page_count: int, clock: HandClock, *, step_s: float = 0.010, row_s: float = 0.001) -> None:
        super().__init__(page_count)
        self._clock = clock
        self._step_s = step_s
        self._row_s = row_s

    def forward(self, batch: Batch) -> list[Context]:
        self._clock.now += self._step_s + batch.row_count * self._row_s
        return super().forward(batch)


class Room:
    """An engine whose model costs time, with a draft model when it is told what that says."""

    def __init__(
        self,
        says: Says = repeating,
        *,
        draft_says: Says | None = None,
        draft_pages: int = PAGES,
        draft_step_s: float = 0.001,
        draft_context: int = 2048,
        row_s: float = 0.001,
    ) -> None:
        self.clock = HandClock()
        self.model = TimedModel(PAGES, self.clock, row_s=row_s)
        self.draft_model = TimedModel(draft_pages, self.clock, step_s=draft_step_s, row_s=0.0)
        self.draft_sampler = SpeakingSampler(draft_says or says)

        def make_drafting() -> Drafting:
            draft = None
            if draft_says is not None:
                draft = DraftModel(
                    self.draft_model,
                    self.draft_sampler,
                    page_count=draft_pages,
                    context_length=draft_context,
                    clock=self.clock,
                )
            return Drafting(clock=self.clock, eos_token_ids=frozenset({EOS}), model=draft)

        self.engine = Engine(
            self.model,
            SpeakingSampler(says),
            EngineLimits(PAGES, page_bytes=1000, session_ttl_s=1e9, max_sessions=8),
            make_transcript=make_transcript,
            eos_token_ids=frozenset({EOS}),
            clock=self.clock,
            make_drafting=make_drafting,
        )

    def ask(self, request: GenerationRequest) -> Finished:
        finished = run(self.engine, request)
        self.engine.check_books()
        return finished

    def drafted_rows(self) -> list[int]:
        """Of every step after the first how many rows were guesses, for one text at a time."""
        return [batch.row_count - 1 for batch in self.model.batches[1:]]


PROMPT = tuple(range(2, 2 + PERIOD)) * 2


def request(mode: Speculation = "auto", prompt: Sequence[int] = PROMPT, **given: Any) -> GenerationRequest:
    made = make_request(prompt, **{"max_new_tokens": 60, **given})
    return replace(made, parameters=replace(made.parameters, speculation=mode))
