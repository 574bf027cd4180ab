"""Requests that wait for pages, taken so that every key gets its turn (start-time fair queueing, Goyal et al. 1996).

Knows keys and what requests may come to use; knows nothing of pages, sessions or times.
Always: requests of one key are taken in the order they came, also when they are put back; of those at the head of each
key's line that one is taken whose key was given least; new tokens that a request ends without count as not given; a key
that asked for nothing saves nothing up.
"""

from collections import deque
from collections.abc import Iterator

from service.key_limits import tokens_of
from service.sequence import Active


class FairQueue:
    """A line for each key."""

    def __init__(self) -> None:
        self._lines: dict[str | None, deque[Active]] = {}
        """None of them is empty; in the order in which they began."""
        self._given: dict[str | None, int] = {}
        """Tokens that each key was given, or would have been while it asked for nothing."""
        self._level = 0
        """What the key that was served last had been given before."""

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[Active]:
        for line in self._lines.values():
            yield from line

    @property
    def head(self) -> Active | None:
        """The request that is next."""
        return self._lines[self._next_key()][0] if self._lines else None

    def append(self, active: Active) -> None:
        key_id = active.request.key_id
        if key_id not in self._lines:
            self._given[key_id] = max(self._given.get(key_id, 0), self._level)
            self._lines[key_id] = deque()
        self._lines[key_id].append(active)

    def take(self) -> Active:
        """Take the head, and count it for its key. Raises ValueError when nothing waits."""
        key_id = self._next_key()
        active = self._lines[key_id][0]
        self._level = self._given[key_id]
        self._given[key_id] += active.tokens_left if active.preemptions else tokens_of(active.request)
        self.remove(active)
        return active

    def put_back(self, active: Active) -> None:
        """Let a request that was taken wait again, before all others of its key, which gets back what was not used."""
        key_id = active.request.key_id
        self._lines.setdefault(key_id, deque()).appendleft(active)
        self._given[key_id] -= active.tokens_left

    def ended(self, active: Active) -> None:
        """A request that was taken has ended: its key gets back what was not used."""
        self._given[active.request.key_id] -= active.tokens_left

    def is_owed(self, key_id: str | None, other_id: str | None, given_back: int) -> bool:
        """Whether a key that waits was given less than another one, also if that gave so many tokens back."""
        return key_id != other_id and self._given[key_id] < self._given[other_id] - given_back

    def remove(self, active: Active) -> None:
        """Let a request leave the line; it was given nothing."""
        line = self._lines[active.request.key_id]
        line.remove(active)
        if not line:
            del self._lines[active.request.key_id]

    def clear(self) -> None:
        self._lines.clear()

    def _next_key(self) -> str | None:
        return min(self._lines, key=self._given.__getitem__)
