"""One accepted request and the client that waits for its answer.

Knows ASGI messages and tickets; knows no JSON.
Always: a client that goes away cancels its request once, whether the answer was whole, streamed or never begun; a
request whose end was seen is not cancelled; and a stream that began ends with a terminal event and `[DONE]`.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import ExitStack, closing, suppress
from typing import Any, Protocol

from starlette.responses import Response

from service import sse
from service.beside import write_beside
from service.context import Ticket
from service.errors import OUR_FAULT, ServiceError, envelope
from service.request import Delta, Failed, Finished
from service.request_log import RequestNote, note_of
from service.responses import failure, is_long

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class StreamFormat(Protocol):
    """How one route writes its events."""

    def delta(self, delta: Delta) -> bytes: ...

    def finished(self, event: Finished) -> bytes: ...


class Exchange:
    """Follows a ticket, and cancels it when the client goes away."""

    def __init__(self, ticket: Ticket, receive: Receive) -> None:
        self._ticket = ticket
        self._over = self._ended = False
        self._watcher = asyncio.create_task(self._watch(receive))

    async def next_event(self) -> Delta | Finished | Failed:
        """What is new; after a terminal event the request is over."""
        event = await self._ticket.next_event()
        if not isinstance(event, Delta):
            self._over = self._ended = True
        return event

    async def give_up(self) -> None:
        """Cancel what still runs, and see the end unless it was seen."""
        self._cancel()
        while not self._ended:
            await self.next_event()

    def close(self) -> None:
        """Nobody waits any longer: cancel what still runs."""
        self._watcher.cancel()
        self._cancel()

    async def _watch(self, receive: Receive) -> None:
        # A task keeps the exception that it ends with, whose frames keep this exchange and so the answer and the task:
        # a cycle, which large answers would wait in to be collected.
        with suppress(asyncio.CancelledError):
            while (await receive())["type"] != "http.disconnect":
                pass
            self._cancel()

    def _cancel(self) -> None:
        if not self._over:
            self._over = True
            self._ticket.cancel()


async def whole_answer(ticket: Ticket, receive: Receive) -> Finished:
    """Wait for the end. Raises GenerationFailed, also when the client has gone."""
    with closing(Exchange(ticket, receive)) as exchange:
        event = await exchange.next_event()
        while isinstance(event, Delta):
            event = await exchange.next_event()
    if isinstance(event, Failed):
        raise failure(event)
    return event


async def begin_stream(
    ticket: Ticket, receive: Receive, form: StreamFormat, request_id: str, keep_alive_s: float
) -> "EventStream":
    """Wait for the first event, so that a failure before it still has its own status. Raises GenerationFailed."""
    exchange = Exchange(ticket, receive)
    with ExitStack() as unless_begun:
        unless_begun.callback(exchange.close)
        first = await exchange.next_event()
        if isinstance(first, Failed):
            raise failure(first)
        unless_begun.pop_all()
    return EventStream(exchange, first, form, request_id, keep_alive_s)


class Patience:
    """Cuts the waits of one task short, by TimeoutError, once one lasts too long.

    Does what `asyncio.timeout` does, with one timer for all waits of a stream. It is set anew only when it rings, since
    nearly every wait is for the next token, and far shorter.
    """

    def __init__(self, seconds: float) -> None:
        task = asyncio.current_task()
        assert task is not None, "only a task waits"
        self._task = task
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._began: float | None = None
        """When the wait that goes on began."""
        self._cancelling = 0
        """How often the task was told to end before that wait."""
        self._is_cut = False
        self._timer = self._loop.call_later(seconds, self._look)

    def __enter__(self) -> None:
        self._began = self._loop.time()
        self._cancelling = self._task.cancelling()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._began = None
        if not self._is_cut:
            return
        self._is_cut = False
        if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError

    def close(self) -> None:
        """No wait is cut short any more."""
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        due = (now if self._began is None else self._began) + self._seconds
        if due <= now:
            self._is_cut = True
            self._task.cancel()
            due = now + self._seconds
        self._timer = self._loop.call_at(due, self._look)


class EventStream(Response):
    """A response of events that ends with exactly one terminal event and `[DONE]`, also after a fault of ours."""

    def __init__(
        self,
        exchange: Exchange,
        first: Delta | Finished,
        form: StreamFormat,
        request_id: str,
        keep_alive_s: float,
    ) -> None:
        super().__init__(
            media_type="text/event-stream", headers={"cache-control": "no-store", "x-accel-buffering": "no"}
        )
        del self.headers["content-length"]
        self._exchange = exchange
        self._first = first
        self._form = form
        self._request_id = request_id
        self._keep_alive_s = keep_alive_s

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        with closing(self._exchange):
            try:
                await self._send_events(send, note_of(scope))
            except OSError:
                # A server may say so that the client has gone; the watcher hears of it too.
                await self._exchange.give_up()

    async def _send_events(self, send: Send, note: RequestNote) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            terminal = await self._send_deltas(send)
        except OSError:
            raise
        except Exception as fault:
            error = ServiceError(OUR_FAULT)
            note.fault, note.error_code = fault, error.code
            terminal = sse.event(envelope(error, self._request_id))
        await _send_body(send, terminal + sse.DONE, more=False)
        await self._exchange.give_up()

    async def _send_deltas(self, send: Send) -> bytes:
        """Send everything but the terminal event, which is returned."""
        event: Delta | Finished | Failed = self._first
        with closing(Patience(self._keep_alive_s)) as patience:
            while isinstance(event, Delta):
                await _send_body(send, self._form.delta(event))
                event = await self._next_event(patience, send)
        if isinstance(event, Failed):
            return sse.event(envelope(failure(event), self._request_id))
        end = event
        return await write_beside(lambda: self._form.finished(end), is_long=is_long(end))

    async def _next_event(self, patience: Patience, send: Send) -> Delta | Finished | Failed:
        while True:
            with suppress(TimeoutError), patience:
                return await self._exchange.next_event()
            await _send_body(send, sse.KEEP_ALIVE)


async def _send_body(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})
