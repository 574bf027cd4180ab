"""Which running requests give their pages back so that one of another key can begin, where the cache is full.

Knows requests, pages and what each key was given; moves nothing itself.
Always: a request gives way only to one that has waited, and whose key was given less, also once what the first one did
not use is given back to its key: so keys take turns and do not chase one another. Always: between two pauses a request
gains tokens, the more the longer what may have to be computed again; and nobody gives way in vain.
"""

from collections import Counter
from collections.abc import Sequence

from model.kv_cache import PagePool
from service.fair_queue import FairQueue
from service.sequence import Active

PATIENCE_S = 1.0
"""How long a request waits before others give way to it."""
LEAST_GAIN = 64
"""Tokens that a request gains before it gives way; with fewer than that left to gain it does not."""
GAIN_SHARE = 8
"""It gains at least the length of the context that it was admitted with, divided by this."""


def is_pressing(waiting: Active, now: float) -> bool:
    """Whether a request has waited long enough for others to give way."""
    return now - waiting.waiting_since >= PATIENCE_S


def who_gives_way(
    waiting: Active, needed: int, running: Sequence[Active], queue: FairQueue, pool: PagePool
) -> list[Active]:
    """Those whose pages make up what is missing of the `needed` ones, admitted last first; no one if all is in vain."""
    giving = _Giving(pool)
    given_back: Counter[str | None] = Counter()
    for active in reversed(running):
        if giving.available >= needed:
            break
        key_id = active.request.key_id
        left = given_back[key_id] + active.tokens_left
        if can_pause(active) and _has_had_its_turn(active) and queue.is_owed(waiting.request.key_id, key_id, left):
            given_back[key_id] = left
            giving.add(active)
    return giving.fewest(needed) if giving.available >= needed else []


def can_pause(active: Active) -> bool:
    """Whether a running request can go on later from its tokens alone."""
    return active.request.sequence_count == 1 and not active.is_prefilling


def _has_had_its_turn(active: Active) -> bool:
    """Whether it has gained enough since it was admitted, and does not end soon."""
    (sequence,) = active.sequences
    began = len(active.context_ids)
    gained = len(sequence.ids) - began
    return gained >= max(LEAST_GAIN, began // GAIN_SHARE) and active.tokens_left >= LEAST_GAIN


class _Giving:
    """Requests that may give way, and how many pages could be promised if they did."""

    def __init__(self, pool: PagePool) -> None:
        self.available = pool.available
        self._pool = pool
        self._actives: list[Active] = []
        self._held: Counter[int] = Counter()

    def add(self, active: Active) -> None:
        assert active.promise is not None, "what runs was promised its pages"
        self._actives.append(active)
        self.available += active.promise.remaining
        for page in active.sequences[0].lease.pages:
            self._held[page] += 1
            self.available += self._held[page] == self._pool.references(page)

    def fewest(self, needed: int) -> list[Active]:
        """Without those whose pages are not needed beside the others'."""
        kept = self._actives
        for active in self._actives:
            others = _Giving(self._pool)
            for each in kept:
                if each is not active:
                    others.add(each)
            if others.available >= needed:
                kept = others._actives
        return kept
