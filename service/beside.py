"""Bodies that arrive in time, and what is read from them or written down beside the event loop.

Knows how long that may take; knows nothing of what a body or an answer says. Called on the event loop alone.
Always: what takes long keeps no stream waiting, and the bodies that wait for a thread are bounded in number.
"""

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TypeVar

from service.errors import Overloaded, RequestTimeout
from service.shares import Shares

SHORT_BODY_BYTES = 8192
"""Longer bodies are read in a worker thread: encoding 256 KiB of text takes a tenth of a second."""
SLOW_FIELDS = re.compile(rb"(?<!\\)\"(?:constraint|response_format)\"|\\u00[567]")
"""Bodies that hold one of these names, whose letters may be escaped, may have a constraint to compile."""
MAX_WAITING, MAX_WAITING_BYTES = 128, 64 << 20
"""How many bodies may be with the worker threads of a kind or wait for one, and how large together: they are whole.

Keys share both.
"""
BODY_S = 30.0
"""How long a body may take to arrive."""

Read = TypeVar("Read")
Written = TypeVar("Written")


async def in_time(body: Awaitable[bytes]) -> bytes:
    """The body, once it is there. Raises RequestTimeout, and what reading it raises."""
    try:
        async with asyncio.timeout(BODY_S):
            return await body
    except TimeoutError:
        raise RequestTimeout(f"the body did not arrive within {BODY_S:g} s") from None


async def read_beside(read: Callable[[bytes], Read], raw: bytes, key_id: str | None = None) -> Read:
    """The value of `read(raw)`, made in a worker thread when that may take long.

    Raises Overloaded when as many bodies of this key as may wait for one, and what `read` raises.
    """
    if SLOW_FIELDS.search(raw):
        return await _CONSTRAINED.run(read, raw, key_id)
    return await _LONG.run(read, raw, key_id) if len(raw) > SHORT_BODY_BYTES else read(raw)


async def write_beside(write: Callable[[], Written], *, is_long: bool) -> Written:
    """The value of `write()`, made in a worker thread when it is long. The requests that it answers were admitted."""
    return await asyncio.get_running_loop().run_in_executor(_WRITERS, write) if is_long else write()


def worker_lock() -> AbstractContextManager[object]:
    """A lock for what the worker threads share."""
    return threading.Lock()


class Readers:
    """Worker threads, and the bodies that are with them or wait for one."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._bodies, self._bytes = Shares(MAX_WAITING), Shares(MAX_WAITING_BYTES)

    async def run(self, read: Callable[[bytes], Read], raw: bytes, key_id: str | None) -> Read:
        held = ((self._bodies, 1), (self._bytes, len(raw)))
        if any(shares.of(key_id) + amount > shares.most_of(key_id) for shares, amount in held):
            raise Overloaded("as many requests wait to be read as may")
        for shares, amount in held:
            shares.add(key_id, amount)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, read, raw)
        finally:
            for shares, amount in held:
                shares.add(key_id, -amount)


_CONSTRAINED = Readers(1, "constraints")
"""One thread for all of them: what takes long to compile keeps nobody else waiting and takes one core at most."""
_LONG = Readers(4, "bodies")
_WRITERS = ThreadPoolExecutor(2, thread_name_prefix="answers")
