"""One of several servers of the same models behind a router: an ASGI application with the life of its engines.

What `service.server` is for a server that listens itself. Knows the protocol of ASGI and nothing of the router; what
that asks, its health and how much waits, is answered here. Always: every answer names this replica; a call that is
cancelled ends as one whose client has gone; and an engine that does not move fails whoever waits for it, and this
replica's health for good.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from service.app import create_app
from service.context import Service
from service.logs import AnswerCut
from service.lookout import Lookout
from service.middleware import App, Receive, Scope, Send
from service.runtime import Runtime
from service.startup import runtimes_of

HEADER = b"x-tane-replica"
REQUEST_ID = b"x-request-id"
QUEUED_TOKENS = "queued_tokens"
LOOK_S = 1.0
"""Between two looks at engines, keys and memory."""
CLOSE_S = 5.0
"""How long the collector of traces may take what is left."""


class EngineLost(Exception):
    """An engine does not move: the replica is to be replaced."""


class Replica:
    """An application whose lifespan is that of the service's engines."""

    def __init__(self, service: Service, name: str) -> None:
        """`name` is told with every answer. Raises TypeError for a service whose engines are not its own."""
        self._app: App = create_app(service)
        self._name = name.encode()
        self._drain_s = service.settings.drain_s
        self._runtimes: Sequence[Runtime] = runtimes_of(service)
        self._lookout = Lookout(service, self._runtimes)
        self._tracer = service.tracer
        self._ending: set[asyncio.Task[None]] = set()
        """Calls that nobody waits for any more."""

    @property
    def load(self) -> dict[str, float]:
        """How much waits here: cache positions that unfinished requests may come to hold, over all models."""
        return {QUEUED_TOKENS: float(sum(runtime.queued_tokens for runtime in self._runtimes))}

    def check_health(self) -> None:
        """Raises EngineLost."""
        if self._lookout.has_lost_engine:
            raise EngineLost("an engine does not move")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        gone = asyncio.Event()
        call = asyncio.create_task(self._call(scope, _until(gone, receive), self._named(scope, send)))
        try:
            await asyncio.shield(call)
        except asyncio.CancelledError:
            gone.set()
            self._ending.add(call)
            call.add_done_callback(self._ending.discard)
            raise

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. A router cuts an answer that ends before its last piece, so what was logged is not raised again."""
        with suppress(AnswerCut):
            await self._app(scope, receive, send)

    def _named(self, scope: Scope, send: Send) -> Send:
        """A router that names requests tells the name itself; ours then stands in the log beside it, and in errors."""
        is_named = any(name == REQUEST_ID for name, _ in scope["headers"])

        async def send_named(message: Scope) -> None:
            if message["type"] == "http.response.start":
                own = [each for each in message["headers"] if not (is_named and each[0] == REQUEST_ID)]
                message = {**message, "headers": [*own, (HEADER, self._name)]}
            await send(message)

        return send_named

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start the engines, look after them, and stop them once what runs has ended or had its time."""
        await receive()
        for runtime in self._runtimes:
            runtime.start()
        watch = asyncio.create_task(self._watch())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        watch.cancel()
        await asyncio.gather(*(runtime.drain(self._drain_s) for runtime in self._runtimes))
        await asyncio.gather(*(runtime.stop() for runtime in self._runtimes))
        if self._tracer is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.to_thread(self._tracer.close), CLOSE_S)
        await send({"type": "lifespan.shutdown.complete"})

    async def _watch(self) -> None:
        while not self._lookout.has_lost_engine:
            self._lookout.look(time.monotonic())
            await asyncio.sleep(LOOK_S)


def _until(gone: asyncio.Event, receive: Receive) -> Receive:
    """Receives what comes, and that the client has gone once the event says so."""

    async def receive_until_gone() -> Scope:
        message, left = asyncio.ensure_future(receive()), asyncio.ensure_future(gone.wait())
        try:
            await asyncio.wait({message, left}, return_when=asyncio.FIRST_COMPLETED)
            return message.result() if message.done() else {"type": "http.disconnect"}
        finally:
            message.cancel()
            left.cancel()

    return receive_until_gone
