"""What each API key keeps: a prefix tree and sessions of its own, over the pages that all of them share.

Knows ids of keys and pages; knows nothing of requests, text, tensors or HTTP.
Always: no tokens are compared and no session is named across keys; a key that needs a page gives up its own least
recently used one before one of another key goes. No step pays for keys that came before, but for one that evicts pages
of others: all of them are looked at once a second, and what holds nothing is forgotten.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from model.kv_cache import PagePool
from service.prefix_tree import PrefixTree
from service.request import EvictionReason
from service.sessions import Sessions

SWEEP_S = 1.0
"""Between looks at all keys; a session may outlive its time by so much."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """The kept prefixes and the sessions of one key."""

    tree: PrefixTree
    sessions: Sessions

    @property
    def is_empty(self) -> bool:
        return self.tree.is_empty and self.sessions.is_empty


class Namespaces:
    """Those of all keys for which something runs or is kept."""

    def __init__(
        self,
        pool: PagePool,
        *,
        page_bytes: int,
        session_ttl_s: float,
        max_sessions: int,
        key_pages: int | None = None,
    ) -> None:
        """`max_sessions` and `key_pages` are for each key; the door admits no more than fits into the latter."""
        self._pool = pool
        self._page_bytes = page_bytes
        self._session_ttl_s = session_ttl_s
        self._max_sessions = max_sessions
        self._key_pages = key_pages
        self._clock = count(1)
        self._by_key: dict[str | None, Namespace] = {}
        self._evicted: Counter[EvictionReason] = Counter()
        self._next_sweep = 0.0
        self._gone: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[Namespace]:
        return iter(self._by_key.values())

    def of(self, key_id: str | None) -> Namespace:
        """The key's own, made when it comes for the first time."""
        found = self._by_key.get(key_id)
        if found is None:
            tree = PrefixTree(
                self._pool,
                clock=self._clock,
                evict_elsewhere=self._evict_oldest,
                most_pages=self._key_pages,
                evicted=self._evicted,
            )
            sessions = Sessions(tree, page_bytes=self._page_bytes, ttl_s=self._session_ttl_s, limit=self._max_sessions)
            found = self._by_key[key_id] = Namespace(tree, sessions)
        return found

    def let_go(self, key_ids: frozenset[str]) -> None:
        """These keys will not come again: what is kept for them goes with the next step, and what runs within a second
        of its end. Replaces those named before.
        """
        self._gone = key_ids
        self._next_sweep = 0.0

    def expire(self, now: float, in_use: Iterable[Namespace] = ()) -> None:
        """Once a second: forget sessions that outlived their time, and keys that are gone or for which nothing is kept.

        Those in use are of requests that have not ended; what these will keep is kept in them.
        """
        if now < self._next_sweep:
            return
        self._next_sweep = now + SWEEP_S
        for each in self:
            each.sessions.expire(now)
        for key_id in self._gone & self._by_key.keys():
            self._by_key[key_id].sessions.forget_idle("explicit")
            self._by_key[key_id].tree.clear()
        used = set(in_use)
        self._by_key = {key: each for key, each in self._by_key.items() if each in used or not each.is_empty}

    def clear(self) -> None:
        """Drop every page that nobody leases."""
        for each in self:
            each.tree.clear()

    def collect_evicted(self) -> dict[EvictionReason, int]:
        """Tokens evicted since the last call, by reason."""
        evicted = dict(self._evicted)
        self._evicted.clear()
        return evicted

    def busy_count(self) -> int:
        return sum(len(each.sessions.busy_ids()) for each in self)

    def check(self) -> None:
        """Raise BooksError unless the pages of every tree are as it says."""
        for each in self:
            each.tree.check()

    def _evict_oldest(self) -> bool:
        """Drop the leaf that is longest unused of all; whether there was one."""
        uses = [(use, each.tree) for each in self if (use := each.tree.oldest_use) is not None]
        return bool(uses) and min(uses, key=lambda use: use[0])[1].evict("capacity")
