"""Who is let in: the door's own ledger of what accepted requests may cost, credited by their terminal events.

Knows prices in tokens and busy sessions; knows nothing of the engine's pages, HTTP or threads.
Always: a request that could never fit is refused whatever the load; one that could fit is accepted by an empty server.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from model.kv_cache import PAGE_SIZE, reservation
from service.errors import InvalidField, Overloaded, RateLimited, ServiceError, SessionBusy
from service.key_limits import KeyLedger, KeyLimits
from service.request import GenerationRequest, Usage
from service.retrying import retry_after

Session = tuple[str | None, str]
"""A session's id after that of its key."""
RATE_WINDOW_S = 30.0
LONGEST_EXPECTED_S = 60.0
"""What callers are told to wait at most, but for what is added by chance."""


@dataclass(frozen=True, slots=True)
class Entry:
    price: int
    key_id: str | None
    session: Session | None


@dataclass(frozen=True, slots=True)
class Quote:
    """What a request would cost."""

    cache_positions: int
    """That would be set aside for it."""
    expected_wait_s: float | None
    """Until there is room in the cache, at the recent rate; None when nothing ended lately to judge by."""
    refusal: ServiceError | None
    """Why it would not be accepted."""


class Ledger:
    """Accepted requests that have not ended, priced by the cache positions that they may come to hold."""

    def __init__(
        self,
        *,
        page_count: int,
        max_queue_tokens: int,
        max_sessions: int,
        clock: Callable[[], float],
        keys: KeyLedger | None = None,
        key_pages: int | None = None,
    ) -> None:
        """`keys` are shared with the ledgers of other models; `max_sessions` and `key_pages` are for each of them."""
        self._page_count = page_count
        self._max_queue_tokens = max_queue_tokens
        self._max_sessions = max_sessions
        self._clock = clock
        self._key_pages = key_pages
        self._outstanding_of: Counter[str | None] = Counter()
        self._keys = keys or KeyLedger(KeyLimits(), clock=clock)
        self._entries: dict[str, Entry] = {}
        self._busy: set[Session] = set()
        self._outstanding = 0
        self._settled: deque[tuple[float, int]] = deque()

    @property
    def outstanding_tokens(self) -> int:
        return self._outstanding

    def admit(self, request: GenerationRequest) -> None:
        """Enter a request. Raises InvalidField, SessionBusy, RateLimited or Overloaded, and then nothing is entered."""
        self._check(request)
        self._keys.enter(request)
        entry = Entry(_price(request), request.key_id, _session(request))
        self._entries[request.id] = entry
        self._outstanding += entry.price
        self._outstanding_of[entry.key_id] += entry.price
        if entry.session is not None:
            self._busy.add(entry.session)

    def quote(self, request: GenerationRequest) -> Quote:
        """What the request would cost and hear if it came now; nothing is entered."""
        price = _price(request)
        excess = max(0, self._outstanding + price - self._page_count * PAGE_SIZE)
        try:
            self._check(request)
        except ServiceError as refusal:
            return Quote(price, self._expected_s(excess), refusal)
        return Quote(price, self._expected_s(excess), None)

    def settle(self, request_id: str, usage: Usage) -> None:
        """Credit a request that has ended, having used so much."""
        self._keys.settle(request_id, usage)
        entry = self._entries.pop(request_id)
        self._outstanding -= entry.price
        self._outstanding_of[entry.key_id] -= entry.price
        if entry.session is not None:
            self._busy.discard(entry.session)
        self._settled.append((self._clock(), entry.price))
        self._forget_old()

    def _check(self, request: GenerationRequest) -> None:
        price, key_id, session = _price(request), request.key_id, _session(request)
        most = (self._key_pages or self._page_count) * PAGE_SIZE
        if price > most:
            whose = "the cache holds" if self._key_pages is None else "a key may hold"
            raise InvalidField(
                f"the request needs {price} cache positions "
                f"({request.read_tokens} prompt tokens and {request.sequence_count} times "
                f"{request.tokens_left} new ones); {whose} {most}",
                code="exceeds_cache",
                param="max_new_tokens" if request.parameters.max_new_tokens else "prompt",
                allowed={"max_cache_positions": most},
            )
        if session in self._busy:
            raise SessionBusy("the session is already generating; wait for its turn to end", param="session_id")
        self._keys.check(request)
        if self._key_pages is not None:
            self._check_share(price, self._outstanding_of[key_id], most)
        self._check_load(price, session)

    def _check_share(self, price: int, held: int, most: int) -> None:
        if held + price > most:
            raise RateLimited(
                f"unfinished requests of this key hold {held} of the {most} cache positions that it may hold",
                code="cache_share_exceeded",
                allowed={"max_cache_positions": most},
                retry_after_s=self._retry_after(held + price - most),
            )

    def _check_load(self, price: int, session: Session | None) -> None:
        excess = self._outstanding + price - self._max_queue_tokens
        if self._entries and excess > 0:
            raise Overloaded(
                f"the queue is full: unfinished requests hold {self._outstanding} of {self._max_queue_tokens} tokens",
                retry_after_s=self._retry_after(excess),
            )
        if session is None:
            return
        busy = sum(key_id == session[0] for key_id, _ in self._busy)
        if busy >= self._max_sessions:
            raise Overloaded(
                f"{busy} sessions are generating, as many as there may be",
                retry_after_s=self._retry_after(price),
            )

    def _retry_after(self, excess: int) -> int:
        """Seconds until so many tokens were settled at the recent rate, and a little more by chance."""
        return retry_after(min(LONGEST_EXPECTED_S, self._expected_s(excess) or 0.0))

    def _expected_s(self, excess: int) -> float | None:
        """Seconds until so many tokens were settled at the recent rate; None when none was settled lately."""
        if not excess:
            return 0.0
        self._forget_old()
        rate = sum(price for _, price in self._settled) / RATE_WINDOW_S
        return excess / rate if rate else None

    def _forget_old(self) -> None:
        horizon = self._clock() - RATE_WINDOW_S
        while self._settled and self._settled[0][0] < horizon:
            self._settled.popleft()


def _price(request: GenerationRequest) -> int:
    """The cache positions that the request may come to hold."""
    return PAGE_SIZE * reservation(request.read_tokens, request.tokens_left, request.sequence_count)


def _session(request: GenerationRequest) -> Session | None:
    return None if request.session_id is None else (request.key_id, request.session_id)
