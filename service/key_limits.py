"""What each key has under way and has used lately, over all models of a server, and whether it may ask for more.

Knows ids of keys, tokens and the times it is given; knows nothing of HTTP, models or threads. Callers without a key
count as one.
Always: what was entered is settled once; a key that has used nothing lately may always ask for something.
"""

from collections.abc import Callable
from dataclasses import dataclass

from service.errors import RateLimited
from service.request import GenerationRequest, Usage
from service.retrying import retry_after

MINUTE_S = 60.0
MEMORY = 0.8
"""How much of the mean duration of a key's requests is kept when another one ends."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """For each key; None: as much as it likes."""

    max_requests: int | None = None
    tokens_per_minute: int | None = None


@dataclass(slots=True)
class _Account:
    tokens: float
    """That may still be used; below 0 when a request used more than a minute's worth."""
    refilled_at: float
    running: int = 0
    mean_s: float = 1.0


@dataclass(frozen=True, slots=True)
class _Entry:
    account: _Account
    tokens: int
    began: float


class KeyLedger:
    """Accounts of all keys that came so far."""

    def __init__(self, limits: KeyLimits, *, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._accounts: dict[str | None, _Account] = {}
        self._entries: dict[str, _Entry] = {}

    def check(self, request: GenerationRequest) -> None:
        """Raises RateLimited for a request that its key may not make now, with the seconds until it may."""
        account = self._account(request.key_id)
        most = self._limits.max_requests
        if most is not None and account.running >= most:
            raise RateLimited(
                f"this key has {account.running} unfinished requests, as many as it may have",
                code="too_many_requests",
                allowed={"max_requests": most},
                retry_after_s=retry_after(account.mean_s / account.running),
            )
        a_minutes = self._limits.tokens_per_minute
        if a_minutes is None:
            return
        # More than a minute's worth could never be had: it is paid for afterwards.
        missing = min(tokens_of(request), a_minutes) - account.tokens
        if missing > 0:
            raise RateLimited(
                f"this key may use {a_minutes} tokens a minute, and the request may use {tokens_of(request)}",
                code="tokens_per_minute_exceeded",
                allowed={"tokens_per_minute": a_minutes},
                retry_after_s=retry_after(missing * MINUTE_S / a_minutes),
            )

    def enter(self, request: GenerationRequest) -> None:
        """Count a request that is accepted, with all tokens that it may use."""
        account = self._account(request.key_id)
        entry = _Entry(account, tokens_of(request), self._clock())
        account.running += 1
        account.tokens -= entry.tokens
        self._entries[request.id] = entry

    def settle(self, request_id: str, usage: Usage) -> None:
        """Credit a request that has ended with the tokens that it did not use."""
        entry = self._entries.pop(request_id)
        account, now = entry.account, self._clock()
        account.running -= 1
        account.mean_s = MEMORY * account.mean_s + (1 - MEMORY) * (now - entry.began)
        account.tokens += entry.tokens - usage.prompt_tokens - usage.resumed_tokens - usage.generated_tokens
        self._refill(account, now)

    def _account(self, key_id: str | None) -> _Account:
        now = self._clock()
        account = self._accounts.get(key_id)
        if account is None:
            account = self._accounts[key_id] = _Account(self._limits.tokens_per_minute or 0, now)
        self._refill(account, now)
        return account

    def _refill(self, account: _Account, now: float) -> None:
        """Tokens come back evenly, up to a minute's worth."""
        a_minutes = self._limits.tokens_per_minute or 0
        refilled = account.tokens + (now - account.refilled_at) * a_minutes / MINUTE_S
        account.tokens, account.refilled_at = min(a_minutes, refilled), now


def tokens_of(request: GenerationRequest) -> int:
    """The most tokens that the request's usage may come to."""
    return request.read_tokens + request.sample_count * request.tokens_left
