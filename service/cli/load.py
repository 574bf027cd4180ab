"""Loads servers that speak `POST /v1/completions`, Tane or others, level by level.

Knows when requests are made; knows no HTTP and no terminals.
Always: several servers take turns, the order reversed every second round, and never two at once, so that a disturbed
machine disturbs all of them alike.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from service.cli.load_client import LoadClient, LoadError, ServerKind, connected
from service.cli.load_plan import Load, LoadPlan, Question, Target
from service.cli.load_prompts import arrivals
from service.cli.load_report import LevelReport, StreamRecord, level_report


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a run found out about one server, level by level."""

    server: ServerKind
    model: str
    levels: tuple[LevelReport, ...]


async def run_load(targets: Sequence[Target], plan: LoadPlan, on_request: Callable[[], None]) -> list[LoadReport]:
    """Drive each server through every level in every round. `on_request` is called as each request ends.

    Raises LoadError when a server cannot be reached, no warm-up request succeeds, or sessions are asked of one without.
    """
    async with AsyncExitStack() as stack:
        drivers = [
            _Driver(await stack.enter_async_context(connected(target, plan)), plan, on_request) for target in targets
        ]
        for driver in drivers:
            await driver.warm_up()
        for number in range(plan.rounds):
            for level in range(len(plan.loads)):
                for driver in drivers[:: -1 if number % 2 else 1]:
                    await driver.run(number, level)
    return [driver.report() for driver in drivers]


@dataclass(slots=True)
class _Measured:
    """All rounds of one level."""

    records: list[StreamRecord] = field(default_factory=list)
    wall_s: float = 0.0


class _Driver:
    """Makes the requests to one server."""

    def __init__(self, client: LoadClient, plan: LoadPlan, on_request: Callable[[], None]) -> None:
        self._client = client
        self._plan = plan
        self._on_request = on_request
        self._levels = [_Measured() for _ in plan.loads]

    async def warm_up(self) -> None:
        records: list[StreamRecord] = []
        for question in self._plan.warmup_questions():
            await self._ask(question, records)
        if records and all(record.error for record in records):
            raise LoadError(f"no warm-up request succeeded: {records[-1].error}")

    async def run(self, number: int, level: int) -> None:
        """One level in one round."""
        load, measured = self._plan.loads[level], self._levels[level]
        name = f"{number} {level}"
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            if load.kind == "rate":
                await self._let_arrive(name, load, measured.records, group)
            elif load.kind == "sessions":
                for session in range(int(load.value)):
                    group.create_task(self._keep_session(self._plan.turns_of(name, session), measured.records))
            else:
                questions = self._plan.questions(name, load)
                for _ in range(int(load.value)):
                    group.create_task(self._keep_busy(questions, measured.records))
        measured.wall_s += time.perf_counter() - started
        if load.kind == "sessions":
            await self._forget(name, load)

    def report(self) -> LoadReport:
        levels = (
            level_report(str(load), load.value, measured.records, measured.wall_s, self._plan.objective)
            for load, measured in zip(self._plan.loads, self._levels, strict=True)
        )
        return LoadReport(self._client.kind, self._client.model, tuple(levels))

    async def _keep_busy(self, questions: Iterator[Question], records: list[StreamRecord]) -> None:
        for question in questions:
            await self._ask(question, records)

    async def _let_arrive(self, name: str, load: Load, records: list[StreamRecord], group: asyncio.TaskGroup) -> None:
        """Begin each request when it is due, however many are unanswered."""
        questions = list(self._plan.questions(name, load))
        started = time.perf_counter()
        for question, after in zip(
            questions, arrivals(load.value, len(questions), f"{self._plan.seed} {name}"), strict=True
        ):
            due = started + after
            await asyncio.sleep(due - time.perf_counter())
            group.create_task(self._ask(question, records, due))

    async def _keep_session(self, turns: Iterator[Question], records: list[StreamRecord]) -> None:
        for question in turns:
            await self._ask(question, records)

    async def _ask(self, question: Question, records: list[StreamRecord], due: float | None = None) -> None:
        records.append(await self._client.ask(question, due))
        self._on_request()

    async def _forget(self, name: str, load: Load) -> None:
        for session in range(int(load.value)):
            question = next(self._plan.turns_of(name, session))
            assert question.session_id is not None, "a turn has its session"
            await self._client.forget(question.session_id)
