"""What each API key keeps: a prefix tree and sessions of its own, over the pages that all of them share.

Knows ids of keys and pages; knows nothing of requests, text, tensors or HTTP.
Always: no tokens are compared and no session is named across keys; a key that needs a page gives up its own least
recently used one before one of another key goes.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from model.kv_cache import PagePool
from service.prefix_tree import PrefixTree
from service.request import EvictionReason
from service.sessions import Sessions


@dataclass(frozen=True, slots=True)
class Namespace:
    """The kept prefixes and the sessions of one key."""

    tree: PrefixTree
    sessions: Sessions


class Namespaces:
    """Those of all keys that came so far."""

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
        self.gone: frozenset[str] = frozenset()
        """Keys that will not come again; what is kept for them goes as soon as nothing runs with it."""

    def __iter__(self) -> Iterator[Namespace]:
        return iter(self._by_key.values())

    def of(self, key_id: str | None) -> Namespace:
        """The key's own, made when it comes for the first time."""
        found = self._by_key.get(key_id)
        if found is None:
            tree = PrefixTree(
                self._pool, clock=self._clock, evict_elsewhere=self._evict_oldest, most_pages=self._key_pages
            )
            sessions = Sessions(tree, page_bytes=self._page_bytes, ttl_s=self._session_ttl_s, limit=self._max_sessions)
            found = self._by_key[key_id] = Namespace(tree, sessions)
        return found

    def expire(self, now: float) -> None:
        """Forget sessions that outlived their time, and what is kept for keys that are gone."""
        for each in self:
            each.sessions.expire(now)
        for key_id in self.gone & self._by_key.keys():
            self._by_key[key_id].sessions.forget_idle("explicit")
            self._by_key[key_id].tree.clear()

    def clear(self) -> None:
        """Drop every page that nobody leases."""
        for each in self:
            each.tree.clear()

    def collect_evicted(self) -> dict[EvictionReason, int]:
        """Tokens evicted since the last call, by reason."""
        evicted: Counter[EvictionReason] = Counter()
        for each in self:
            evicted.update(each.tree.collect_evicted())
        return dict(evicted)

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
