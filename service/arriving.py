"""How much is held of bodies that are not whole yet, all connections together.

Knows sizes alone. Only the event loop may call it. Always: no number of connections makes the server hold more than the
bound; a body that would is refused, and what it held is free again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from service.errors import Overloaded

MAX_BYTES = 64 << 20
SHARE = 1 / 32
"""Of the memory that the process may hold: less than it has left when it begins to refuse."""
RETRY_S = 1


def most_bytes(memory_limit: int | None, body_bytes: int) -> int:
    """What may be held at once, in so much memory: one body of the largest size at least."""
    bound = MAX_BYTES if memory_limit is None else min(MAX_BYTES, int(memory_limit * SHARE))
    return max(bound, body_bytes)


class Arriving:
    """How much of all bodies is held that are not whole yet. Only the event loop may change it."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most = most
        self._bytes = 0

    @contextmanager
    def one(self) -> Iterator["ArrivingBody"]:
        """A body that arrives until the block ends."""
        body = ArrivingBody(self._add)
        try:
            yield body
        finally:
            self._bytes -= body.size

    def _add(self, size: int) -> None:
        if self._bytes + size > self._most:
            raise Overloaded(
                f"{self._bytes} bytes of other requests are arriving, as many as may", retry_after_s=RETRY_S
            )
        self._bytes += size


class ArrivingBody:
    """One of them."""

    def __init__(self, add: Callable[[int], None]) -> None:
        self._add = add
        self.size = 0

    def add(self, size: int) -> None:
        """Raises Overloaded, and then nothing was added."""
        self._add(size)
        self.size += size
