"""Random lives of the engine: whatever happens, the books balance, everyone is answered once, and texts are right."""

from typing import Any
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from model.kv_cache import reservation
from service.request import (
    CommandAnswer,
    DeleteSession,
    Delta,
    Failed,
    Finished,
    ForkSession,
    GenerationRequest,
    ListSessions,
    RequestEvent,
)
from tests.engine_fakes import NAN, HandClock, expected_ids, ids_of, make_engine, make_request

PAGES = 16
KEY_IDS = st.sampled_from((None, "a"))
SESSIONS = ("a", "b", "c", "d")
LENGTHS = st.sampled_from((1, 2, 31, 32, 33, 63, 64, 65, 96, 100, 150))


class EngineLife(RuleBasedStateMachine):
    """Submits, cancels, edits, forks, deletes, faults and time, in any order."""

    def __init__(self) -> None:
        super().__init__()
        # So that in a short life many give way.
        self.haste = patch.multiple("service.preemption", PATIENCE_S=0.05, LEAST_GAIN=4, GAIN_SHARE=20)
        self.haste.start()
        self.clock = HandClock()
        self.engine, self.model = make_engine(page_count=PAGES, clock=self.clock, max_sessions=3)
        self.requests: dict[str, GenerationRequest] = {}
        self.terminals: dict[str, Finished | Failed] = {}
        self.texts: dict[tuple[str, int], str] = {}
        self.histories: list[tuple[int, ...]] = [tuple(range(2, 30)) * 6]
        self.busy: dict[tuple[str | None, str], str] = {}
        self.reported = [0, 0]

    @rule(
        history=st.integers(0, 50),
        length=LENGTHS,
        suffix=st.just([]) | st.lists(st.integers(2, 38), max_size=40),
        new=st.just(1) | st.integers(1, 70) | st.integers(100, 180),
        samples=st.sampled_from((1, 1, 1, 1, 2, 3)),
        session=st.sampled_from((None, *SESSIONS)),
        key_id=KEY_IDS,
        use_cache=st.sampled_from((True, True, True, False)),
        deadline=st.sampled_from((None, None, None, 3.0)),
        seed=st.integers(0, 3),
        poisoned=st.sampled_from((False,) * 12 + (True,)),
    )
    def submit(self, history: int, length: int, suffix: list[int], poisoned: bool, **given: Any) -> None:
        prompt = (*self.histories[history % len(self.histories)][:length], *suffix, *([NAN] if poisoned else []))
        session = given["session"]
        pages = reservation(len(prompt), given["new"], given["samples"])
        if not prompt or pages > PAGES or (given["key_id"], session) in self.busy:
            return
        request = make_request(
            prompt,
            request_id=f"r{len(self.requests)}",
            max_new_tokens=given["new"],
            sample_count=given["samples"],
            session_id=session,
            key_id=given["key_id"],
            use_cache=given["use_cache"],
            deadline_s=given["deadline"],
            seed=given["seed"],
            streams=True,
        )
        self.requests[request.id] = request
        if session:
            self.busy[given["key_id"], session] = request.id
        self.engine.submit(request, self.clock())

    @rule(
        history=st.integers(0, 50),
        length=LENGTHS,
        suffix=st.just([]) | st.lists(st.integers(2, 38), max_size=3),
        new=st.just(1) | st.integers(1, 40),
        session=st.sampled_from((None, *SESSIONS)),
        key_id=KEY_IDS,
    )
    def whole_turn(self, **given: Any) -> None:
        """A request that meets nothing: most of what sessions keep comes from these."""
        self.model.fault = None
        self.submit(**given, samples=1, use_cache=True, deadline=None, seed=0, poisoned=False)
        self.step(60)

    @rule(steps=st.integers(1, 30))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.clock.now += 0.01
            events, report = self.engine.step()
            self.reported[0] += report.prompt_tokens
            self.reported[1] += report.generated_tokens
            self.receive(events)

    @rule(which=st.integers(0, 100))
    def cancel(self, which: int) -> None:
        if self.requests:
            request_id = f"r{which % len(self.requests)}"
            events = self.engine.cancel(request_id)
            assert (request_id in self.terminals) == (not events)
            self.receive(events)

    @rule()
    def fault(self) -> None:
        self.model.fault = RuntimeError("injected")

    @rule(seconds=st.sampled_from((0.1, 0.5, 4.0, 4.0, 60.0, 200.0)))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(session=st.sampled_from(SESSIONS), child=st.sampled_from(SESSIONS), key_id=KEY_IDS)
    def fork(self, session: str, child: str, key_id: str | None) -> None:
        self.refused_only_when_busy(self.engine.command(ForkSession("f", session, child, key_id)), key_id, session)

    @rule(session=st.sampled_from(SESSIONS), key_id=KEY_IDS)
    def delete(self, session: str, key_id: str | None) -> None:
        self.refused_only_when_busy(self.engine.command(DeleteSession("d", session, key_id)), key_id, session)

    def refused_only_when_busy(self, answer: CommandAnswer, key_id: str | None, session: str) -> None:
        assert (answer.problem == "session_busy") == ((key_id, session) in self.busy)

    def receive(self, events: list[RequestEvent]) -> None:
        for event in events:
            assert event.request_id not in self.terminals, "an event after the terminal one"
            if isinstance(event, Delta):
                key = (event.request_id, event.index)
                self.texts[key] = self.texts.get(key, "") + event.text
                continue
            self.terminals[event.request_id] = event
            self.busy = {name: owner for name, owner in self.busy.items() if owner != event.request_id}
            if isinstance(event, Finished):
                self.check(self.requests[event.request_id], event)

    def check(self, request: GenerationRequest, finished: Finished) -> None:
        assert len(finished.completions) == request.sample_count
        for completion in finished.completions:
            ids, truth = ids_of(finished, completion.index), expected_ids(request, completion.index)
            assert ids == (truth[: len(ids)] if completion.finish_reason == "deadline" else truth)
            assert self.texts.get((request.id, completion.index), "") == completion.text
        computed, reused = finished.cache.computed_tokens, finished.cache.reused_tokens
        assert computed + reused == len(request.prompt_ids) == finished.usage.prompt_tokens
        self.histories.append((*request.prompt_ids, *ids_of(finished)))

    @invariant()
    def books_balance(self) -> None:
        self.engine.check_books()
        assert self.model.misread == 0

    def teardown(self) -> None:
        try:
            self.end()
        finally:
            self.haste.stop()

    def end(self) -> None:
        self.model.fault = None
        for _ in range(5000):
            if self.engine.is_idle:
                break
            self.step(1)
        self.engine.check_books()
        assert self.requests.keys() == self.terminals.keys()
        for key_id in (None, "a"):
            assert not any(info.busy for info in self.engine.command(ListSessions("l", key_id)).sessions)
        usages = [terminal.usage for terminal in self.terminals.values()]
        assert self.reported == [sum(u.prompt_tokens for u in usages), sum(u.generated_tokens for u in usages)]


EngineLife.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestEngineLife = EngineLife.TestCase
