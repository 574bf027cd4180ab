"""One POST over a connection of its own, and its answer's body as it arrives.

A load client runs beside the server that it measures, so a piece of the body costs as little here as it can: it is
handed on in the very call that received it, and no task wakes for it.
Always: the connection is closed when the call ends, however it ends.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from service.cli.http_answer import AnswerReader, is_success

BUFFER_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect. `tls` is None for plain HTTP."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The status of an answer, and the body of one that is not a success."""

    status: int
    refusal: bytes

    @property
    def is_success(self) -> bool:
        return is_success(self.status)


async def post(target: Target, request: bytes, take: Callable[[bytes], None], *, silence_s: float) -> Answered:
    """Send a whole request, head and body, and give `take` the body of its success piece by piece.

    Raises TimeoutError after so many seconds of silence, OSError when there is no connection, BrokenAnswer (an OSError
    too) for anything but a whole answer, and what `take` raises.
    """
    loop = asyncio.get_running_loop()
    exchange = _Exchange(request, take, silence_s)
    async with asyncio.timeout(silence_s):
        transport, _ = await loop.create_connection(lambda: exchange, target.host, target.port, ssl=target.tls)
    try:
        return await exchange.answered
    finally:
        exchange.stop_watching()
        transport.abort()


class _Exchange(asyncio.BufferedProtocol):
    def __init__(self, request: bytes, take: Callable[[bytes], None], silence_s: float) -> None:
        self._request = request
        self._take = take
        self._silence_s = silence_s
        self._reader = AnswerReader()
        self._refusal = b""
        # One buffer for all pieces: the other kind of protocol allocates 256 KiB for each.
        self._buffer = bytearray(BUFFER_BYTES)
        self._loop = asyncio.get_running_loop()
        self.answered: asyncio.Future[Answered] = self._loop.create_future()
        self._heard = self._loop.time()
        self._watch = self._loop.call_later(silence_s, self._look)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._heard = self._loop.time()
        transport.write(self._request)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = self._loop.time()
        try:
            self._pass_on(self._reader.feed(bytes(self._buffer[:nbytes])))
        except Exception as problem:
            self._fail(problem)

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            self._reader.close()
        except ConnectionError as broken:
            self._fail(exc or broken)
        else:
            self._succeed_if_complete()

    def stop_watching(self) -> None:
        self._watch.cancel()

    def _pass_on(self, body: bytes) -> None:
        status = self._reader.status
        if status is not None and is_success(status):
            self._take(body)
        else:
            self._refusal += body
        self._succeed_if_complete()

    def _succeed_if_complete(self) -> None:
        if self._reader.is_complete and self._reader.status is not None and not self.answered.done():
            self.answered.set_result(Answered(self._reader.status, self._refusal))

    def _fail(self, problem: Exception) -> None:
        if not self.answered.done():
            self.answered.set_exception(problem)

    def _look(self) -> None:
        """One timer for the whole exchange, set anew only when it rings: pieces come far more often than silence."""
        left = self._heard + self._silence_s - self._loop.time()
        if left <= 0:
            self._fail(TimeoutError())
        else:
            self._watch = self._loop.call_later(left, self._look)
