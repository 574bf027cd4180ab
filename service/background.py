"""The engines of a service on an event loop in a thread of its own, for callers who have no loop or one of their own.

The only module that blocks a caller's thread. Knows runtimes and tickets; knows no fields and no text.
Always: it may be called from any thread but its own; a caller who gives up waiting cancels what it asked for; nothing
waits for ever: whatever is closed has answered everyone before, and a process that was forked off is refused.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from service.context import Served, Service, Ticket
from service.errors import Draining
from service.request import Delta, Failed, Finished, GenerationRequest
from service.startup import runtimes_of

Answer = TypeVar("Answer")

CLOSED = "this Tane is closed"


class Background:
    """Begins to run when it is made, and until `close`."""

    def __init__(self, service: Service) -> None:
        self._runtimes = runtimes_of(service)
        self._loop = asyncio.new_event_loop()
        # Reentrant, since a collection of garbage may close one while its thread holds the lock.
        self._lock = threading.RLock()
        self._closed: str | None = None
        """Why nothing can be asked any more."""
        self._thread = threading.Thread(target=self._run, name="tane", daemon=True)
        self._thread.start()
        _OPEN.add(self)
        self._call(self._start())

    def begin(self, served: Served, request: GenerationRequest) -> Ticket:
        """Accept a request. Raises InvalidField, SessionBusy, Overloaded or Draining."""
        accepted: list[Ticket] = []
        try:
            return self._call(_submit(served, request, accepted))
        except BaseException:
            self._soon(_cancel, accepted)
            raise

    def next_event(self, ticket: Ticket) -> Delta | Finished | Failed:
        """What is new; a terminal event comes last."""
        return self._call(ticket.next_event())

    def finish(self, served: Served, request: GenerationRequest) -> Finished | Failed:
        """The end of a request. Raises what `begin` raises."""
        return self._call(_finish(served, request))

    def end(self, ticket: Ticket) -> None:
        """Cancel a request and wait until it has ended, as all have once this is closed."""
        self.cancel(ticket)
        with suppress(Draining):
            self._call(_terminal(ticket))

    def cancel(self, ticket: Ticket) -> None:
        """Ask for the end of a request, and wait for nothing: also a collection of garbage may do so."""
        self._soon(ticket.cancel)

    def close(self) -> None:
        """End everything that runs with `engine_stopped`, and the threads. May be called again."""
        self.close_soon()
        self._thread.join()
        self._runtimes = []

    def close_soon(self) -> None:
        """Begin to close, and wait for nothing."""
        with self._lock:
            if self._closed is None:
                self._closed = CLOSED
                asyncio.run_coroutine_threadsafe(self._stop(), self._loop)

    def forget(self) -> None:
        """In a process that was forked off: the threads are the other one's, and so may the lock have been."""
        self._lock = threading.RLock()
        self._closed = self._closed or "a Tane answers in the process that made it, not in one forked off later"

    def _call(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """Run it on the loop and wait. What interrupts the wait cancels it."""
        asked = _Asked(coroutine)
        try:
            self._hand_over(asked)
            return asked.outcome.result()
        except BaseException:
            self._soon(asked.give_up)
            raise

    def _hand_over(self, asked: "_Asked[Any]") -> None:
        with self._lock:
            if self._closed is not None:
                asked.give_up()
                raise Draining(self._closed, code="closed")
            self._loop.call_soon_threadsafe(asked.begin)

    def _soon(self, call: Callable[..., None], *arguments: object) -> None:
        with self._lock:
            if self._closed is None:
                self._loop.call_soon_threadsafe(call, *arguments)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _start(self) -> None:
        for runtime in self._runtimes:
            runtime.start()

    async def _stop(self) -> None:
        await asyncio.gather(*(runtime.stop() for runtime in self._runtimes))
        # Everyone was answered: let those who still read see it.
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        self._loop.stop()


class _Asked(Generic[Answer]):
    """A coroutine that runs on the loop for another thread.

    Made before it is handed over, so that an interrupt at any moment of that finds what to give up.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Answer]) -> None:
        self.outcome: Future[Answer] = Future()
        self._coroutine = coroutine
        self._task: asyncio.Task[Answer] | None = None

    def begin(self) -> None:
        self._task = asyncio.create_task(self._coroutine)
        self._task.add_done_callback(self._tell)

    def give_up(self) -> None:
        if self._task is None:
            self._coroutine.close()
        else:
            self._task.cancel()

    def _tell(self, task: asyncio.Task[Answer]) -> None:
        if task.cancelled():
            self.outcome.cancel()
        elif error := task.exception():
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


async def _submit(served: Served, request: GenerationRequest, accepted: list[Ticket]) -> Ticket:
    accepted.append(served.runtime.submit(request))
    return accepted[0]


def _cancel(tickets: list[Ticket]) -> None:
    for ticket in tickets:
        ticket.cancel()


async def _finish(served: Served, request: GenerationRequest) -> Finished | Failed:
    ticket = served.runtime.submit(request)
    try:
        return await _terminal(ticket)
    finally:
        ticket.cancel()


async def _terminal(ticket: Ticket) -> Finished | Failed:
    event = await ticket.next_event()
    while isinstance(event, Delta):
        event = await ticket.next_event()
    return event


_OPEN: WeakSet[Background] = WeakSet()


@atexit.register
def _close_all() -> None:
    """The interpreter does not end while compiled code runs in a thread of ours."""
    for background in list(_OPEN):
        background.close()


def _forget_all() -> None:
    for background in list(_OPEN):
        background.forget()
    _OPEN.clear()


os.register_at_fork(after_in_child=_forget_all)
