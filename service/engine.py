"""One step of the engine: choose rows, compute logits, choose tokens, account for them.

Knows the order of things and nothing of their insides: no threads, no HTTP, no text; time comes from the clock that
it is given.
Always: a fault in one step fails the requests of that step and no others; the books are checked whenever nothing runs.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from model.batch import Batch
from model.decoding.choice import Ask, Choice
from model.kv_cache import PagePool
from service.drafting import Drafting
from service.logs import told
from service.namespaces import Namespaces
from service.plan import Plan
from service.request import (
    CommandAnswer,
    DeleteSession,
    DescribeSession,
    FailureCode,
    ForkSession,
    GenerationRequest,
    ListSessions,
    RequestEvent,
    SessionCommand,
    SessionProblem,
)
from service.scheduler import MakeTranscript, Scheduler
from service.sessions import Session, Sessions
from service.step_budget import StepBudget
from service.step_report import StepReport

logger = logging.getLogger(__name__)

Clock = Callable[[], float]
MakeBudget = Callable[[], StepBudget]
MakeDrafting = Callable[[], Drafting]
"""Made anew with every cache."""


class Runner(Protocol):
    def forward(self, batch: Batch) -> Any: ...


class Chooser(Protocol):
    def choose(self, logits: Any, asks: Sequence[Ask]) -> list[Choice]: ...


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What bounds the engine's memory."""

    page_count: int
    page_bytes: int
    session_ttl_s: float
    max_sessions: int
    key_pages: int | None = None
    """That one key may hold."""


class Engine:
    """The scheduler, the model and the sampler, turned by whoever calls `step`."""

    def __init__(
        self,
        runner: Runner,
        sampler: Chooser,
        limits: EngineLimits,
        *,
        make_transcript: MakeTranscript,
        eos_token_ids: frozenset[int],
        control_token_ids: frozenset[int] = frozenset(),
        clock: Clock,
        make_budget: MakeBudget = StepBudget,
        make_drafting: MakeDrafting | None = None,
    ) -> None:
        self._runner = runner
        self._sampler = sampler
        self._limits = limits
        self._make_transcript = make_transcript
        self._eos_token_ids = eos_token_ids
        self._control_token_ids = control_token_ids
        self._clock = clock
        self._make_budget = make_budget
        self._make_drafting = make_drafting or (lambda: Drafting(clock=clock, eos_token_ids=eos_token_ids))
        self._gone: frozenset[str] = frozenset()
        self._build()

    @property
    def is_idle(self) -> bool:
        """Whether a step would have nothing to run."""
        return not (self._scheduler.running or self._scheduler.queued)

    def submit(self, request: GenerationRequest, arrived: float) -> None:
        self._scheduler.submit(request, arrived)

    def cancel(self, request_id: str) -> list[RequestEvent]:
        self._scheduler.cancel(request_id, self._clock())
        return self._scheduler.take_events()

    def stop(self) -> tuple[list[RequestEvent], StepReport]:
        """End everything that was accepted."""
        self._scheduler.fail_everything("engine_stopped", self._clock())
        return self._scheduler.take_events(), self._scheduler.report(0.0)

    def step(self) -> tuple[list[RequestEvent], StepReport]:
        """Run one batch. Its events and its report; after an exception both come from `recover`."""
        started = self._clock()
        self._scheduler.expire(started)
        plan = self._scheduler.plan(started)
        if plan is not None:
            self._run(plan, started)
        if self.is_idle:
            self.check_books()
        return self._scheduler.take_events(), self._scheduler.report(self._clock() - started)

    def command(self, command: SessionCommand) -> CommandAnswer:
        """Carry out one session command, among the sessions of its key."""
        sessions = self._namespaces.of(command.key_id).sessions
        if isinstance(command, ListSessions):
            return CommandAnswer(command.id, sessions.describe_all(self._clock()))
        session = sessions.get(command.session_id)
        if session is None:
            return CommandAnswer(command.id, problem="session_not_found")
        match command:
            case DescribeSession():
                return self._answer(command.id, sessions, session)
            case DeleteSession():
                return self._delete(command, sessions, session)
            case ForkSession():
                return self._fork(command, sessions, session)

    def let_keys_go(self, key_ids: frozenset[str]) -> None:
        """Keep nothing for these keys, now and later, beyond what runs for them. Replaces those named before."""
        self._gone = key_ids
        self._namespaces.let_go(key_ids)

    def check_books(self) -> None:
        """Raise BooksError when pages, tokens or sessions do not add up."""
        self._scheduler.check_books()

    def recover(self, code: FailureCode) -> tuple[list[RequestEvent], StepReport]:
        """After a fault of the engine itself: fail everything that was accepted and begin with an empty cache."""
        self._scheduler.abort(code, self._clock())
        answers = self._scheduler.take_events(), self._scheduler.report(0.0)
        self._build()
        return answers

    def _build(self) -> None:
        pool = PagePool(self._limits.page_count)
        self._namespaces = Namespaces(
            pool,
            page_bytes=self._limits.page_bytes,
            session_ttl_s=self._limits.session_ttl_s,
            max_sessions=self._limits.max_sessions,
            key_pages=self._limits.key_pages,
        )
        self._namespaces.let_go(self._gone)
        self._scheduler = Scheduler(
            pool,
            self._namespaces,
            make_transcript=self._make_transcript,
            eos_token_ids=self._eos_token_ids,
            control_token_ids=self._control_token_ids,
            budget=self._make_budget(),
            drafting=self._make_drafting(),
        )

    def _run(self, plan: Plan, started: float) -> None:
        try:
            logits = self._runner.forward(plan.batch)
            choices = self._sampler.choose(logits, plan.asks)
        except Exception:
            request_ids = [each.id for each in plan.actives]
            logger.exception(
                "a step failed, and with it its requests", extra=told("step_failed", request_ids=request_ids)
            )
            self._scheduler.abandon(plan, self._clock())
            return
        now = self._clock()
        self._scheduler.observe(plan, now - started)
        self._scheduler.commit(plan, choices, now)

    def _answer(self, command_id: str, sessions: Sessions, session: Session) -> CommandAnswer:
        return CommandAnswer(command_id, (sessions.describe(session, self._clock()),))

    def _delete(self, command: DeleteSession, sessions: Sessions, session: Session) -> CommandAnswer:
        if session.busy:
            return CommandAnswer(command.id, problem="session_busy")
        answer = self._answer(command.id, sessions, session)
        sessions.forget(session, "explicit")
        return answer

    def _fork(self, command: ForkSession, sessions: Sessions, session: Session) -> CommandAnswer:
        problem: SessionProblem | None = None
        if session.busy:
            problem = "session_busy"
        elif sessions.get(command.new_session_id) is not None:
            problem = "session_exists"
        if problem:
            return CommandAnswer(command.id, problem=problem)
        forked = sessions.fork(session, command.new_session_id, self._clock())
        return self._answer(command.id, sessions, forked)
