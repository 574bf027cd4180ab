"""uvicorn around the app: start the engine, serve, and on SIGTERM let running requests finish.

Knows the server's life and nothing of routes. Always: while it drains the socket stays open, so that readiness is
seen to be gone and new work is refused with a reason; a second signal ends at once.
"""

import asyncio
import errno
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from service.app import create_app
from service.context import Service
from service.logs import told
from service.runtime import Runtime
from service.settings import Settings
from service.startup import runtimes_of

logger = logging.getLogger(__name__)

CLOSE_S = 5
"""How long open connections may take to close once nothing runs any more."""


class DrainingServer(uvicorn.Server):
    """Turns the first signal into a drain of every engine and the second into an exit."""

    def __init__(
        self, config: uvicorn.Config, runtimes: Sequence[Runtime], drain_s: float, metrics_port: int | None = None
    ) -> None:
        super().__init__(config)
        self._metrics_port = metrics_port
        self._runtimes = runtimes
        self._drain_s = drain_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain: asyncio.Task[None] | None = None

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
            names = [each.getsockname()[:2] for server in self.servers for each in server.sockets]
            logger.info("ready", extra=told("ready", addresses=[place(host, port) for host, port in names]))

    async def _listen_for_metrics(self) -> None:
        """Serve the same app on a second port; which port a request came by tells what it may ask."""
        if self._metrics_port is None:
            return
        protocol: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        made = partial(protocol, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(made, self.config.host, self._metrics_port))

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
                drain_s=self._drain_s,
                running=running,
            ),
        )
        self._drain = asyncio.create_task(self._drain_and_exit())

    async def _drain_and_exit(self) -> None:
        await asyncio.gather(*(runtime.drain(self._drain_s) for runtime in self._runtimes))
        await self._stop()
        self.should_exit = True

    async def _stop(self) -> None:
        await asyncio.gather(*(runtime.stop() for runtime in self._runtimes))


def place(host: str, port: int) -> str:
    """An address as it stands in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_problem(settings: Settings) -> str | None:
    """Why nothing can listen there, if so; tried without listening, so callers are not kept waiting for the model."""
    for port in (settings.port, settings.metrics_port):
        if port is None:
            continue
        try:
            found = _addresses(settings.host, port)
            for family, address in found:
                _try_address(family, address, is_only=len(found) == 1)
        except OSError as error:
            return f"cannot listen on {settings.host}:{port}: {error.strerror}"
    return None


def exposure_problem(settings: Settings) -> str | None:
    """Why these settings may not be served, if so: other machines could call without a key."""
    if settings.metrics_port == settings.port:
        return "--metrics-port must be another port than --port"
    if settings.keys_file is not None or settings.insecure:
        return None
    try:
        hosts = [address[0] for _, address in _addresses(settings.host, settings.port)]
    except OSError:
        return None  # nothing can listen there, which is told with its reason
    if all(ipaddress.ip_address(host.partition("%")[0]).is_loopback for host in hosts):
        return None
    return (
        f"other machines may reach {settings.host}, and no keys are asked for: give --keys-file, "
        "or --insecure if anyone may call"
    )


def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    """Family and address of everything that the name stands for. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [(family, address) for family, _, _, _, address in found]


def _try_address(family: int, address: Any, *, is_only: bool) -> None:
    """Bind for a moment. Of several addresses, one that this machine lacks is no fault. Raises OSError."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
            if family == socket.AF_INET6:
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, True)
            trial.bind(address)
    except OSError as error:
        if is_only or error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise


def run_server(service: Service, settings: Settings) -> int:
    """Serve until a signal ends it; answers the process's exit code."""
    runtimes = runtimes_of(service)
    config = uvicorn.Config(
        create_app(service),
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=CLOSE_S,
    )
    server = DrainingServer(config, runtimes, settings.drain_s, settings.metrics_port)
    # uvicorn leaves by SystemExit when it cannot listen, and has said why.
    with suppress(SystemExit):
        asyncio.run(server.serve_until_drained())
    exit_code = 0 if server.started else 1
    logger.info("stop", extra=told("stop", exit_code=exit_code))
    return exit_code
