"""Who is let in: the door's own ledger of what accepted requests may cost, credited by their terminal events.

Knows prices in tokens and busy sessions; knows nothing of the engine's pages, HTTP or threads.
Always: a request that could never fit is refused whatever the load; one that could fit is accepted by an empty server.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from model.kv_cache import PAGE_SIZE, reservation
from service.errors import InvalidField, Overloaded, SessionBusy
from service.request import GenerationRequest

RATE_WINDOW_S = 30.0
LONGEST_RETRY_S = 60


@dataclass(frozen=True, slots=True)
class Entry:
    price: int
    session_id: str | None


class Ledger:
    """Accepted requests that have not ended, priced by the cache positions that they may come to hold."""

    def __init__(
        self, *, page_count: int, max_queue_tokens: int, max_sessions: int, clock: Callable[[], float]
    ) -> None:
        self._page_count = page_count
        self._max_queue_tokens = max_queue_tokens
        self._max_sessions = max_sessions
        self._clock = clock
        self._entries: dict[str, Entry] = {}
        self._busy: set[str] = set()
        self._outstanding = 0
        self._settled: deque[tuple[float, int]] = deque()

    @property
    def outstanding_tokens(self) -> int:
        return self._outstanding

    def admit(self, request: GenerationRequest) -> None:
        """Enter a request. Raises InvalidField, SessionBusy or Overloaded, and then nothing is entered."""
        pages = reservation(request.read_tokens, request.tokens_left, request.sequence_count)
        if pages > self._page_count:
            raise InvalidField(
                f"the request needs {pages * PAGE_SIZE} cache positions "
                f"({request.read_tokens} prompt tokens and {request.sequence_count} times "
                f"{request.tokens_left} new ones); the cache holds {self._page_count * PAGE_SIZE}",
                code="exceeds_cache",
                param="max_new_tokens" if request.parameters.max_new_tokens else "prompt",
                allowed={"max_cache_positions": self._page_count * PAGE_SIZE},
            )
        if request.session_id in self._busy:
            raise SessionBusy("the session is already generating; wait for its turn to end", param="session_id")
        price = pages * PAGE_SIZE
        self._check_load(price, request.session_id)
        self._entries[request.id] = Entry(price, request.session_id)
        self._outstanding += price
        if request.session_id is not None:
            self._busy.add(request.session_id)

    def settle(self, request_id: str) -> None:
        """Credit a request that has ended."""
        entry = self._entries.pop(request_id)
        self._outstanding -= entry.price
        if entry.session_id is not None:
            self._busy.discard(entry.session_id)
        self._settled.append((self._clock(), entry.price))
        self._forget_old()

    def _check_load(self, price: int, session_id: str | None) -> None:
        excess = self._outstanding + price - self._max_queue_tokens
        if self._entries and excess > 0:
            raise Overloaded(
                f"the queue is full: unfinished requests hold {self._outstanding} of {self._max_queue_tokens} tokens",
                retry_after_s=self._retry_after(excess),
            )
        if session_id is not None and len(self._busy) >= self._max_sessions:
            raise Overloaded(
                f"{len(self._busy)} sessions are generating, as many as there may be",
                retry_after_s=self._retry_after(price),
            )

    def _retry_after(self, excess: int) -> int:
        """Seconds until so many tokens were settled at the recent rate, spread so that not all return at once."""
        self._forget_old()
        rate = sum(price for _, price in self._settled) / RATE_WINDOW_S
        expected = excess / rate if rate else 1.0
        return max(1, min(LONGEST_RETRY_S, round(expected * random.uniform(1.0, 1.5))))

    def _forget_old(self) -> None:
        horizon = self._clock() - RATE_WINDOW_S
        while self._settled and self._settled[0][0] < horizon:
            self._settled.popleft()
