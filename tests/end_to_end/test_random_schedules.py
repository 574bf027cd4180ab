"""Random lives of the engine that serves: whatever ran before and beside it, an answer has the bits of a lone run."""

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import get_args

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from model.decoding.params import Speculation
from model.kv_cache import reservation
from service.request import DeleteSession, Delta, Failed, Finished, ForkSession, RequestEvent
from tests.bits.laboratory import FixedBudget, Laboratory, Truth, bits_of
from tests.bits.questions import Question, questions_of, searched
from tests.tiny_model import TinyShape, write_tiny_gguf

SMALLEST_CACHE = 1 << 20
SHAPE = TinyShape(context=1024, width=96, heads=3, kv_heads=3, head_width=128, feed_forward=96)
"""So that the smallest cache has 20 pages."""
LENGTHS = st.sampled_from((1, 2, 31, 32, 33, 63, 64, 65, 96, 100, 130, 150))
MOST_ROWS = 512
SESSIONS = ("a", "b", "c")
WAYS_TO_GUESS: tuple[Speculation, ...] = get_args(Speculation)
SEARCH = 4
"""The kind of question that beams answer."""
Asked = tuple[int, int, int, int]
ASKED = st.tuples(
    st.just(1) | st.integers(1, 40), st.integers(1, 3), st.integers(0, SEARCH), st.sampled_from((1, 1, 1, 2, 3))
)
"""New tokens, seed, kind of question and samples."""


@cache
def model_folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    write_tiny_gguf(Path(folder.name, "tiny.gguf"), shape=SHAPE, format="Q8_0")
    write_tiny_gguf(Path(folder.name, "draft.gguf"), shape=replace(SHAPE, layers=1), format="Q8_0")
    return folder


@cache
def laboratory(threads: int = 2) -> Laboratory:
    model = Path(model_folder().name, "tiny.gguf")
    draft = str(Path(model_folder().name, "draft.gguf"))
    return Laboratory(
        model,
        prompt_rows=MOST_ROWS,
        cache_bytes=SMALLEST_CACHE,
        threads=threads,
        draft=draft,
        draft_cache_bytes=SMALLEST_CACHE,
    )


@cache
def truth() -> Truth:
    return Truth(laboratory(threads=1))


class Schedule(RuleBasedStateMachine):
    """Submits, pauses, cancels, edits, forks and deletes, in any order, in a cache that is nearly full at first."""

    def __init__(self) -> None:
        super().__init__()
        self.laboratory = laboratory()
        self.laboratory.forget()
        self.cut(MOST_ROWS)
        self.questions: dict[str, Question] = {}
        self.histories = [tuple(range(first, first + 160)) for first in (3, 60, 110)]
        self.turns: dict[str, tuple[int, ...]] = {}
        self.busy: dict[str, str] = {}
        self.ended: set[str] = set()
        for history in self.histories:
            self.ask(history, (1, 1, 0, 1), None)
        self.receive(self.laboratory.until_idle())

    @rule(
        history=st.integers(0, 50),
        length=LENGTHS,
        suffix=st.just([]) | st.lists(st.integers(3, 319), max_size=40),
        asked=ASKED,
        session=st.sampled_from((None, *SESSIONS)),
        use_cache=st.sampled_from((True, True, True, False)),
    )
    def submit(
        self, history: int, length: int, *, suffix: list[int], asked: Asked, session: str | None, use_cache: bool
    ) -> None:
        """A prompt that begins like one of those before it."""
        self.ask((*self.histories[history % len(self.histories)][:length], *suffix), asked, session, use_cache)

    @rule(session=st.sampled_from(SESSIONS), suffix=st.lists(st.integers(3, 319), min_size=1, max_size=40), asked=ASKED)
    def continue_session(self, session: str, suffix: list[int], asked: Asked) -> None:
        self.ask((*self.turns.get(session, (5, 6)), *suffix), asked, session)

    @rule(session=st.sampled_from(SESSIONS), place=st.integers(0, 300), asked=ASKED)
    def edit_session(self, session: str, place: int, asked: Asked) -> None:
        ids = self.turns.get(session, (5, 6))
        place %= len(ids)
        self.ask((*ids[:place], ids[place] ^ 1, *ids[place + 1 :]), asked, session)

    def ask(self, prompt: tuple[int, ...], asked: Asked, session: str | None, use_cache: bool = True) -> None:
        new_tokens, seed, kind, samples = asked
        if kind == SEARCH:
            question = replace(searched(prompt, new_tokens, samples + seed), sample_count=samples)
        else:
            question = replace(questions_of([prompt] * seed, new_tokens)[kind - 4], sample_count=samples)
        request = question.request(
            self.laboratory.new_id(), session_id=session, use_cache=use_cache, streams=bool(kind % 2) or seed == 2
        )
        too_long = reservation(len(prompt), new_tokens, request.sequence_count) > self.laboratory.page_count
        if too_long or (session is not None and session in self.busy):
            return
        if kind != SEARCH:
            speculation = WAYS_TO_GUESS[(new_tokens + seed) % len(WAYS_TO_GUESS)]
            request = replace(request, parameters=replace(request.parameters, speculation=speculation))
        self.questions[request.id] = question
        if session:
            self.busy[session] = request.id
        self.laboratory.engine.submit(request, 0.0)

    @rule(steps=st.integers(1, 30))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.receive(self.laboratory.engine.step()[0])

    @rule()
    def pause(self) -> None:
        self.laboratory.pause()

    @rule(rows=st.sampled_from((1, 7, 32, 64, MOST_ROWS)))
    def cut(self, rows: int) -> None:
        """How many prompt rows each step runs from now on."""
        budget = self.laboratory.budget
        assert isinstance(budget, FixedBudget)
        budget.rows = rows

    @rule(which=st.integers(0, 100))
    def cancel(self, which: int) -> None:
        if self.questions:
            request_id = list(self.questions)[which % len(self.questions)]
            self.receive(self.laboratory.engine.cancel(request_id))

    @rule(session=st.sampled_from(SESSIONS), child=st.sampled_from(SESSIONS))
    def fork(self, session: str, child: str) -> None:
        self.laboratory.engine.command(ForkSession("f", session, child))

    @rule(session=st.sampled_from(SESSIONS))
    def delete(self, session: str) -> None:
        self.laboratory.engine.command(DeleteSession("d", session))

    def receive(self, events: list[RequestEvent]) -> None:
        for event in events:
            if isinstance(event, Delta):
                continue
            self.ended.add(event.request_id)
            sessions = [name for name, owner in self.busy.items() if owner == event.request_id]
            if isinstance(event, Failed):
                assert event.code == "cancelled"
            else:
                history = self.check(self.questions[event.request_id], event)
                self.turns |= dict.fromkeys(sessions, history)
            for session in sessions:
                del self.busy[session]

    def check(self, question: Question, finished: Finished) -> tuple[int, ...]:
        bits = bits_of(finished)
        assert truth()(question) == bits
        self.histories.append((*question.prompt_ids, *(token[0] for token in bits[0].tokens)))
        return self.histories[-1]

    @invariant()
    def books_balance(self) -> None:
        self.laboratory.engine.check_books()

    def teardown(self) -> None:
        self.receive(self.laboratory.until_idle())
        self.laboratory.engine.check_books()
        assert self.questions.keys() == self.ended


Schedule.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestSchedule = Schedule.TestCase
