"""The engine thread and the event loop: every accepted request is answered, whatever happens between them."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest

from model.batch import Batch
from service.admission import Ledger
from service.errors import Draining, ServiceError, SessionBusy
from service.request import Delta, Failed, Finished, GenerationRequest, ListSessions
from service.runtime import IDLE_WAIT_S, REPORT_S, STALL_S, Runtime
from service.step_report import StepReport
from service.ticket import Ticket
from tests.engine_fakes import Context, HandClock, PagedModel, expected_ids, ids_of, make_engine, make_request
from tests.service.stuck import Stuck

PROMPT = tuple(range(2, 32))
SLOW_STEP_S = 0.01


@asynccontextmanager
async def running(
    on_report: Callable[[StepReport], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    step_s: float = 0.0,
) -> AsyncIterator[tuple[Runtime, PagedModel, list[StepReport]]]:
    """`step_s` is what each step takes more than it must."""
    engine, model = make_engine()
    if step_s:
        slow_down(model, step_s)
    reports: list[StepReport] = []
    ledger = Ledger(page_count=64, max_queue_tokens=1 << 20, max_sessions=8, clock=lambda: 0.0)
    runtime = Runtime(engine, ledger, on_report=on_report or reports.append, clock=clock)
    runtime.start()
    try:
        yield runtime, model, reports
    finally:
        await runtime.stop()


def slow_down(model: PagedModel, step_s: float) -> None:
    forward = model.forward

    def slowly(batch: Batch) -> list[Context]:
        time.sleep(step_s)
        return forward(batch)

    model.forward = slowly  # type: ignore[method-assign]


async def terminal(ticket: Ticket) -> Finished | Failed:
    while isinstance(event := await ticket.next_event(), Delta):
        pass
    return event


def in_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def bounded() -> None:
            await asyncio.wait_for(test(), 20)

        asyncio.run(bounded())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


def slow(request_id: str = "slow", session_id: str | None = None) -> GenerationRequest:
    """With steps of `SLOW_STEP_S`, one that runs longer than any test that ends it."""
    return make_request(PROMPT, request_id=request_id, max_new_tokens=1500, session_id=session_id, streams=True)


@in_loop
async def test_requests_submitted_together_are_all_answered() -> None:
    async with running() as (runtime, _, _):
        requests = [make_request(PROMPT[:n], request_id=str(n), streams=True) for n in range(1, 20)]
        answers = await asyncio.gather(*(terminal(runtime.submit(request)) for request in requests))

        assert [ids_of(answer) for answer in answers] == [expected_ids(request) for request in requests]


@in_loop
async def test_what_is_kept_for_a_key_that_goes_is_dropped_though_nothing_runs() -> None:
    async with running() as (runtime, _, reports):
        await terminal(runtime.submit(make_request(PROMPT, key_id="a", session_id="s")))
        runtime.let_keys_go(frozenset({"a"}))
        while reports[-1].idle_pages:
            await asyncio.sleep(0.001)

        assert () == (await runtime.command(ListSessions("c", "a"))).sessions


@in_loop
async def test_deltas_that_were_not_read_are_merged() -> None:
    async with running() as (runtime, _, _):
        ticket = runtime.submit(make_request(PROMPT, max_new_tokens=40, streams=True))
        await runtime.drain(10)

        delta, last = await ticket.next_event(), await ticket.next_event()

        assert isinstance(delta, Delta)
        assert isinstance(last, Finished)
        assert (delta.text, delta.sent) == (last.completions[0].text, 40)


@in_loop
async def test_a_cancelled_request_is_answered_and_its_session_is_free() -> None:
    async with running(step_s=SLOW_STEP_S) as (runtime, _, _):
        ticket = runtime.submit(slow(session_id="s"))
        await ticket.next_event()
        with pytest.raises(SessionBusy):
            runtime.submit(slow("other", "s"))

        ticket.cancel()
        ticket.cancel()
        ended = await terminal(ticket)

        assert isinstance(ended, Failed)
        assert ended.code == "cancelled"
        assert isinstance(await terminal(runtime.submit(make_request(PROMPT, session_id="s"))), Finished)


@in_loop
async def test_stopping_answers_what_still_runs() -> None:
    async with running(step_s=SLOW_STEP_S) as (runtime, _, _):
        ticket = runtime.submit(slow())
        await ticket.next_event()

        await runtime.stop()
        ended = await terminal(ticket)

        assert isinstance(ended, Failed)
        assert ended.code == "engine_stopped"
        assert not runtime.is_ready
        with pytest.raises(Draining):
            runtime.submit(make_request(PROMPT, request_id="late"))


@in_loop
async def test_draining_lets_running_requests_finish_and_refuses_new_ones() -> None:
    async with running() as (runtime, _, _):
        ticket = runtime.submit(make_request(PROMPT, max_new_tokens=100))
        drained = asyncio.create_task(runtime.drain(10))
        await asyncio.sleep(0)
        with pytest.raises(Draining):
            runtime.submit(make_request(PROMPT, request_id="late"))

        await drained

        assert isinstance(await terminal(ticket), Finished)
        assert (runtime.is_live, runtime.is_ready) == (True, False)


@in_loop
async def test_a_fault_of_the_engine_itself_answers_everyone_and_the_next_request_works() -> None:
    async with running() as (runtime, model, reports):
        model.fault = KeyboardInterrupt("like a panic in compiled code")
        failed = await terminal(runtime.submit(make_request(PROMPT, request_id="unlucky")))
        request = make_request(PROMPT, request_id="next")
        answer = await terminal(runtime.submit(request))

        assert isinstance(failed, Failed)
        assert failed.code == "engine_failed"
        assert ids_of(answer) == expected_ids(request)
        assert [outcome for report in reports for outcome in report.outcomes] == ["engine_failed", "length"]


@in_loop
async def test_session_commands_are_answered_between_steps() -> None:
    async with running(step_s=SLOW_STEP_S) as (runtime, _, _):
        ticket = runtime.submit(slow(session_id="s"))
        await ticket.next_event()

        answer = await runtime.command(ListSessions("l"))

        assert [(info.id, info.busy) for info in answer.sessions] == [("s", True)]
        ticket.cancel()


def fail(*_: object) -> None:
    raise RuntimeError("injected")


@contextmanager
def broken(runtime: Runtime, method: str) -> Iterator[None]:
    """A runtime whose engine has a fault in one of its methods."""
    setattr(runtime._engine, method, fail)
    yield
    delattr(runtime._engine, method)


@in_loop
async def test_a_session_command_that_meets_a_fault_is_answered_and_the_next_one_works() -> None:
    async with running() as (runtime, _, _):
        with broken(runtime, "command"), pytest.raises(ServiceError) as raised:
            await runtime.command(ListSessions("unlucky"))

        assert raised.value.status == 500
        assert (await runtime.command(ListSessions("next"))).sessions == ()


@in_loop
async def test_reports_wait_while_requests_run_and_are_told_before_an_end_is() -> None:
    async with running(clock=lambda: 0.0) as (runtime, _, reports):
        stuck = Stuck(runtime, after=2)
        runtime._engine.step = stuck.standing_still  # type: ignore[method-assign, assignment]
        ticket = runtime.submit(make_request(PROMPT, max_new_tokens=200, streams=True))
        await asyncio.to_thread(stuck.began.wait, 10)
        told = [report for report in reports if report.ran]
        stuck.go_on.set()
        await terminal(ticket)

        assert [] == told
        assert 200 == sum(report.generated_tokens for report in reports)


@in_loop
async def test_reports_wait_no_longer_than_a_moment() -> None:
    times = itertools.count(step=REPORT_S)
    async with running(clock=lambda: next(times), step_s=SLOW_STEP_S) as (runtime, _, reports):
        ticket = runtime.submit(slow())
        await ticket.next_event()
        told = [report for report in reports if report.ran]

        assert told
        assert not any(report.outcomes for report in told)
        ticket.cancel()
        await terminal(ticket)


@in_loop
async def test_a_wait_that_is_cut_short_loses_no_event() -> None:
    async with running() as (runtime, _, _):
        ticket = runtime.submit(make_request(PROMPT, max_new_tokens=40, streams=True))
        texts = []
        while True:
            waiting = asyncio.ensure_future(ticket.next_event())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            event = await ticket.next_event() if waiting.cancelled() else waiting.result()
            if not isinstance(event, Delta):
                break
            texts.append(event.text)

        assert isinstance(event, Finished)
        assert event.completions[0].text == "".join(texts)


@in_loop
async def test_whoever_reads_sees_the_end() -> None:
    async with running(step_s=SLOW_STEP_S) as (runtime, _, _):
        ticket = runtime.submit(slow())
        readers = [asyncio.create_task(terminal(ticket)) for _ in range(2)]
        await ticket.next_event()
        ticket.cancel()

        ended = await asyncio.wait_for(asyncio.gather(*readers), 10)

        assert ["cancelled"] * 2 == [event.code for event in ended if isinstance(event, Failed)]


@in_loop
async def test_a_report_that_nobody_can_take_costs_no_answer() -> None:
    async with running(on_report=fail) as (runtime, _, _):
        for request_id in ("first", "second"):
            assert isinstance(await terminal(runtime.submit(make_request(PROMPT, request_id=request_id))), Finished)


@in_loop
async def test_an_engine_that_cannot_begin_again_answers_everyone_and_accepts_no_more() -> None:
    async with running() as (runtime, model, _):
        model.fault = KeyboardInterrupt("like a panic in compiled code")
        with broken(runtime, "recover"):
            ended = await terminal(runtime.submit(make_request(PROMPT)))

        assert isinstance(ended, Failed)
        with pytest.raises(Draining):
            runtime.submit(make_request(PROMPT, request_id="late"))
        with pytest.raises(Draining):
            await runtime.command(ListSessions("late"))


@in_loop
async def test_a_fault_while_stopping_answers_everyone_and_ends_the_thread() -> None:
    async with running(step_s=SLOW_STEP_S) as (runtime, _, _):
        ticket = runtime.submit(slow())
        await ticket.next_event()

        with broken(runtime, "stop"):
            await runtime.stop()

        assert isinstance(await terminal(ticket), Failed)
        assert not runtime.is_live


@in_loop
async def test_stopping_gives_up_an_engine_that_hangs() -> None:
    """Everyone is answered once, also when the engine moves after all."""
    surprises: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: surprises.append(context))
    async with running() as (runtime, _, _):
        stuck = Stuck(runtime)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("service.runtime.STALL_S", 0.05)
            patch.setattr(runtime._engine, "step", stuck.standing_still)
            ticket = runtime.submit(make_request(PROMPT))
            command = asyncio.create_task(runtime.command(ListSessions("l")))
            await asyncio.to_thread(stuck.began.wait, 10)
            await runtime.stop()
        ended = await terminal(ticket)
        await asyncio.wait([command])
        stuck.go_on.set()

    assert isinstance(ended, Failed)
    assert ended.code == "engine_stopped"
    assert isinstance(command.exception(), Draining)
    assert surprises == []


@in_loop
async def test_an_engine_whose_step_does_not_end_is_neither_live_nor_ready_until_it_does() -> None:
    clock = HandClock()
    async with running(clock=clock) as (runtime, _, _):
        stuck = Stuck(runtime)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime._engine, "step", stuck.standing_still)
            ticket = runtime.submit(make_request(PROMPT))
            await asyncio.to_thread(stuck.began.wait, 10)
            before = runtime.is_live, runtime.is_ready
            clock.now += STALL_S
            hung = runtime.is_live, runtime.is_ready
            stuck.go_on.set()
            await terminal(ticket)

        assert ((True, True), (False, False), (True, True)) == (before, hung, (runtime.is_live, runtime.is_ready))


@in_loop
async def test_an_idle_engine_rests() -> None:
    async with running() as (runtime, _, reports):
        await terminal(runtime.submit(make_request(PROMPT)))
        await asyncio.sleep(0.05)
        before, began = len(reports), time.monotonic()
        await asyncio.sleep(0.3)

        assert len(reports) - before <= 1 + (time.monotonic() - began) / IDLE_WAIT_S
        assert runtime.is_ready


@in_loop
async def test_an_engine_that_is_given_up_answers_everyone_and_says_where_it_stands() -> None:
    async with running() as (runtime, _, _):
        stuck = Stuck(runtime)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime._engine, "step", stuck.standing_still)
            ticket = runtime.submit(make_request(PROMPT))
            command = asyncio.create_task(runtime.command(ListSessions("l")))
            await asyncio.to_thread(stuck.began.wait, 10)
            stack = runtime.give_up()
        ended = await terminal(ticket)
        await asyncio.wait([command])
        stuck.go_on.set()

        with pytest.raises(Draining):
            runtime.submit(make_request(PROMPT, request_id="late"))

    assert isinstance(ended, Failed)
    assert "engine_stopped" == ended.code
    assert isinstance(command.exception(), Draining)
    assert "standing_still" in stack


@in_loop
async def test_an_engine_has_ended_only_when_nobody_stopped_it() -> None:
    async with running() as (runtime, _, _):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime, "_turn", lambda: False)
            with suppress(Draining):  # where the thread has not even begun to wait
                await runtime.command(ListSessions("wakes it"))
            await asyncio.wait_for(runtime._closed.wait(), 10)
            runtime._thread.join(10)
        by_itself = runtime.has_ended
        await runtime.stop()

        assert (True, False) == (by_itself, runtime.has_ended)
