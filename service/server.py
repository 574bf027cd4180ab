"""uvicorn around the app: start the engine, serve, and on SIGTERM let running requests finish.

Knows the server's life and nothing of routes. Always: while it drains the socket stays open, so that readiness is
seen to be gone and new work is refused with a reason; a second signal ends at once; and so does an engine that does not
move, once everyone who waits was answered.
"""

import asyncio
import logging
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import FrameType

import uvicorn

from service.addresses import place
from service.app import create_app
from service.connections import BoundedConnection, bounded
from service.context import Service
from service.logs import told
from service.lookout import Lookout
from service.runtime import Runtime
from service.settings import Settings
from service.startup import runtimes_of
from service.traced import Tracer

logger = logging.getLogger(__name__)

CLOSE_S = 5
"""How long open connections may take to close once nothing runs any more."""
LOOK_TICKS = 10
"""Every how many ticks, of a tenth of a second, connections and what the lookout knows are looked at."""
OTHER_FILES = 256
"""Descriptors that are kept for anything but connections of the main port."""
ACCEPTED_AT_ONCE, WAITING_TO_BE = 32, 2048
"""Connections that one turn of the loop takes, and that the kernel keeps until their turn comes.

asyncio has one number for both. Taken at once, more than may be open are, before the first is refused.
"""
WATCHERS = 64
"""Most connections of the port for metrics."""


class DrainingServer(uvicorn.Server):
    """Turns the first signal into a drain of every engine and the second into an exit."""

    def __init__(self, config: uvicorn.Config, service: Service, runtimes: Sequence[Runtime]) -> None:
        """`runtimes` are started and stopped with it."""
        super().__init__(config)
        self._settings = service.settings
        self._runtimes = runtimes
        self._lookout = Lookout(service, runtimes)
        self._end: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain: asyncio.Task[None] | None = None

    @property
    def has_lost_engine(self) -> bool:
        """Whether it ends because an engine does not move."""
        return self._lookout.has_lost_engine

    async def serve_until_drained(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            for runtime in self._runtimes:
                runtime.start()
            await self.serve()
        finally:
            await self._stop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            await self._listen_for_metrics()
            for each in (each for server in self.servers for each in server.sockets):
                with socket.socket(fileno=os.dup(each.fileno())) as again:
                    again.listen(WAITING_TO_BE)
            names = [each.getsockname()[:2] for server in self.servers for each in server.sockets]
            logger.info("ready", extra=told("ready", addresses=[place(host, port) for host, port in names]))

    async def _listen_for_metrics(self) -> None:
        """Serve the same app on a second port; by which port a request came tells what it may ask."""
        if self._settings.metrics_port is None:
            return
        made = partial(
            bounded(WATCHERS), config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            made, self.config.host, self._settings.metrics_port, backlog=self.config.backlog
        )
        self.servers.append(server)

    async def on_tick(self, counter: int) -> bool:
        if counter % LOOK_TICKS == 0:
            now = time.monotonic()
            for connection in list(self.server_state.connections):
                if isinstance(connection, BoundedConnection):
                    connection.look(now)
            self._lookout.look(now)
            if self.has_lost_engine and self._end is None:
                self._end = asyncio.create_task(self._stop_and_exit())
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called inside the signal handler, so it only hands over to the loop."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._on_signal, sig)

    def _on_signal(self, sig: int) -> None:
        if self._drain is not None:
            logger.warning("stopping at once", extra=told("stop_at_once", signal=signal.Signals(sig).name))
            self.force_exit = self.should_exit = True
            return
        running = sum(runtime.unfinished for runtime in self._runtimes)
        logger.info(
            "no new requests; those that run may finish",
            extra=told(
                "drain",
                signal=signal.Signals(sig).name,
                drain_s=self._settings.drain_s,
                running=running,
            ),
        )
        self._drain = asyncio.create_task(self._drain_and_exit())

    async def _drain_and_exit(self) -> None:
        ends = (runtime.drain(self._settings.drain_s) for runtime in self._runtimes)
        await asyncio.gather(asyncio.sleep(self._settings.lame_duck_s), *ends)
        await self._stop_and_exit()

    async def _stop_and_exit(self) -> None:
        await self._stop()
        self.should_exit = True

    async def _stop(self) -> None:
        await asyncio.gather(*(runtime.stop() for runtime in self._runtimes))


def http_config(service: Service, settings: Settings) -> uvicorn.Config:
    """uvicorn, as it serves this service."""
    return uvicorn.Config(
        create_app(service),
        host=settings.host,
        port=settings.port,
        http=bounded(connection_limit(settings.max_connections)),
        log_level=settings.log_level,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=CLOSE_S,
        backlog=ACCEPTED_AT_ONCE,
    )


def connection_limit(most: int) -> int:
    """How many connections may be open: `most`, or as many as this process may have descriptors for."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return most
    allowed = max(files - OTHER_FILES, files // 2)
    if allowed < most:
        logger.warning("at most %d connections, since the process may open %d files", allowed, files)
    return min(most, allowed)


def _close(tracer: Tracer) -> None:
    """Send what is left to be told, if the collector takes it in time."""
    last = threading.Thread(target=tracer.close, daemon=True)
    last.start()
    last.join(CLOSE_S)


def run_server(service: Service, settings: Settings) -> int:
    """Serve until a signal ends it; answers the process's exit code. Ends the process if an engine was lost."""
    server = DrainingServer(http_config(service, settings), service, runtimes_of(service))
    # uvicorn leaves by SystemExit when it cannot listen, and has said why.
    with suppress(SystemExit):
        asyncio.run(server.serve_until_drained())
    exit_code = 0 if server.started and not server.has_lost_engine else 1
    if service.tracer is not None:
        _close(service.tracer)
    logger.info("stop", extra=told("stop", exit_code=exit_code))
    if server.has_lost_engine:
        # The interpreter would wait for threads, or take away what the lost one still holds.
        os._exit(exit_code)
    return exit_code
