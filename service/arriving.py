"""How much is held of bodies that are not whole yet, all connections together.

Knows sizes and ids of keys. Only the event loop may call it. Always: no number of connections makes the server hold
more than the bound; a body that would is refused, and what it held is free again; however much one key has begun to
send, another's body gets in, and however many large ones arrive, small ones do.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from service.errors import Overloaded
from service.shares import Shares

MAX_BYTES = 64 << 20
SHARE = 1 / 32
"""Of the memory that the process may hold: less than it has left when it begins to refuse."""
LARGEST_BODIES = 6
"""How many of them there is room for at least: whatever one key does, there is room for one of another."""
SMALL_BYTES = 64 << 10
"""Larger bodies leave a quarter of what their key may hold to those that are not."""


def most_bytes(memory_limit: int | None, body_bytes: int) -> int:
    """What may be held at once, in so much memory."""
    bound = MAX_BYTES if memory_limit is None else min(MAX_BYTES, int(memory_limit * SHARE))
    return max(bound, LARGEST_BODIES * body_bytes)


class Arriving:
    """How much of all bodies is held that are not whole yet. Only the event loop may change it."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self.shares = Shares(most)

    @contextmanager
    def one(self, key_id: str | None) -> Iterator["ArrivingBody"]:
        """A body of this key that arrives until the block ends."""
        body = ArrivingBody(self.shares, key_id)
        try:
            yield body
        finally:
            self.shares.add(key_id, -body.size)


class ArrivingBody:
    """One of them."""

    def __init__(self, shares: Shares, key_id: str | None) -> None:
        self._shares = shares
        self._key_id = key_id
        self.size = 0

    def add(self, size: int) -> None:
        """Raises Overloaded, and then nothing was added."""
        most = self._shares.most_of(self._key_id)
        if self.size + size > SMALL_BYTES:
            most = most * 3 // 4
        held = self._shares.of(self._key_id)
        if held + size > most:
            raise Overloaded("as many bytes of requests are arriving as may")
        self._shares.add(self._key_id, size)
        self.size += size
