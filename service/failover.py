"""One answer of `POST /generate`, asked for as often as it takes: what to send next, where, after how long, and what is
new of what comes.

Knows bodies, events and errors; opens no connection and never sleeps.
Always: a caller sees each token once and in order, then one terminal event, whatever was interrupted in between; the
seed is fixed before the first attempt, so every attempt asks for the same answer, and all of it comes from engines that
compute the same bits.
"""

import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.affinity import Caller
from service.answers import FINGERPRINT, TaneError
from service.calls import EventReader, unexpected_shape

SEED_BITS = 53
"""A drawn seed is exact as a float64, as those that servers draw."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 10.0
"""Between rounds through all servers; each wait is twice the one before."""
ATTEMPTS = 8
"""In a row that brought nothing new, before the last error is raised."""
OTHER_ENGINE = "fingerprint_mismatch"
RETRIED_STATUS = frozenset({408, 429, 502, 503})
RETRIED_CODES = frozenset(
    {"connection_failed", "timeout", "stream_interrupted", "engine_failed", "engine_stopped", "overloaded", "draining"}
    | {"http_500", "http_504"}  # of a proxy, whose server has gone: those of Tane have names of their own
)


@dataclass(slots=True)
class _Text:
    """What a caller has seen of one text, and what an attempt that begins anew will repeat of it."""

    ids: list[int] = field(default_factory=list)
    length: int = 0
    repeated_tokens: int = 0
    repeated_length: int = 0

    def begin_anew(self) -> None:
        self.repeated_tokens, self.repeated_length = len(self.ids), self.length

    def go_on(self) -> None:
        self.repeated_tokens = self.repeated_length = 0

    def news(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """The event without what was seen before; None when nothing is left of it."""
        tokens = min(self.repeated_tokens, len(event["token_ids"]))
        length = min(self.repeated_length, len(event["text"]))
        self.repeated_tokens -= tokens
        self.repeated_length -= length
        lists = {name: event[name][tokens:] for name in ("token_ids", "logprobs", "explain") if event.get(name)}
        new = {**event, **lists, "text": event["text"][length:]}
        self.ids += new["token_ids"]
        self.length += len(new["text"])
        return new if new["token_ids"] or new["text"] else None


class Pursuit:
    """One answer, from the first attempt to its terminal event. `place` says which server the next attempt asks."""

    def __init__(
        self,
        fields: Mapping[str, Any],
        servers: int,
        *,
        place: int = 0,
        attempts: int = ATTEMPTS,
        headers: Mapping[str, str] | None = None,
        shows: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`shows`: the events are handed on as they come, so that what has come cannot be taken back."""
        self.place = place
        self.headers = headers or {}
        """Of every attempt."""
        self.is_over = False
        # A server takes null for what is left out.
        given = {name: value for name, value in fields.items() if value is not None}
        self._fields = {"seed": secrets.randbits(SEED_BITS), **given, "stream": True}
        self._servers = servers
        self._attempts = attempts
        self._clock = clock
        self._began = clock()
        self._texts: dict[int, _Text] = {}
        self._given = list(given.get("resume", {}).get("token_ids", ()))
        self._may_resume = given.get("num_return", 1) == 1 and given.get("beam_width", 1) == 1
        self._shows = shows
        self._fingerprint: str | None = None
        """Of the engine whose tokens have come."""
        self._resumes = False
        self._failures = 0
        self._tried = 0
        self._reader = EventReader()

    def body(self) -> dict[str, Any]:
        """What the next attempt sends: the request, after the tokens that have come where it can go on from them."""
        self._reader = EventReader()
        self._tried += 1
        body = dict(self._fields)
        if "deadline_ms" in body and self._tried > 1:
            body["deadline_ms"] = max(1, int(body["deadline_ms"] - 1000 * (self._clock() - self._began)))
        seen = self._texts.get(0)
        self._resumes = self._may_resume and seen is not None and bool(seen.ids)
        for text in self._texts.values():
            text.go_on() if self._resumes else text.begin_anew()
        if seen is not None and self._resumes:
            body["resume"] = {"token_ids": [*self._given, *seen.ids]}
        return body

    def begins(self, headers: Mapping[str, str]) -> None:
        """The attempt is answered. Raises TaneError where the tokens that came are of an engine with other bits."""
        fingerprint = headers.get(FINGERPRINT)
        if self._fingerprint is None or not self._texts:
            self._fingerprint = fingerprint
        elif fingerprint not in (None, self._fingerprint):
            message = f"{fingerprint} cannot go on with the answer of {self._fingerprint}"
            raise TaneError(200, OTHER_ENGINE, message)

    def events(self, piece: bytes) -> Iterator[dict[str, Any]]:
        """What is new in these bytes of the attempt's answer. Raises TaneError for an error among the events."""
        for event, _ in self._reader.feed(piece):
            if self._reader.complete:
                self.is_over = True
                yield event
                return
            with unexpected_shape(200):
                new = self._texts.setdefault(event["index"], _Text()).news(event)
            if new is not None:
                self._failures = 0
                yield new

    def check_complete(self) -> None:
        """To be called when the attempt's bytes have ended. Raises TaneError when the terminal event never came."""
        self._reader.check_complete()

    def wait_after(self, error: TaneError) -> float:
        """Seconds until the next attempt. Raises the error again where another attempt would not help."""
        if self.is_over:
            return 0.0
        if self._resumes and self._is_of_resume(error):
            self._may_resume = False
            return 0.0
        if error.code == OTHER_ENGINE and not self._shows:
            self._texts.clear()
            return 0.0
        if not self._is_passing(error):
            raise error
        self._failures += 1
        if self._failures >= self._attempts:
            raise error
        self.place = (self.place + 1) % self._servers
        rounds, within = divmod(self._failures, self._servers)
        if within:
            return 0.0
        backoff = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** (rounds - 1)) * random.uniform(0.5, 1.0)
        return max(backoff, float(error.retry_after_s or 0))

    def _is_passing(self, error: TaneError) -> bool:
        """Whether it may be another time or elsewhere. A session may be busy with the attempt that broke off."""
        if error.code == "session_busy":
            return self._tried > 1
        return error.code in RETRIED_CODES or error.code == OTHER_ENGINE or error.status in RETRIED_STATUS

    @staticmethod
    def _is_of_resume(error: TaneError) -> bool:
        return error.code == "resume_mismatch" or (error.param or "").split(".")[0] == "resume"


class Servers:
    """Where a client asks, and as whom."""

    def __init__(self, base_urls: str | Sequence[str], api_key: str | None, attempts: int) -> None:
        urls = [base_urls] if isinstance(base_urls, str) else list(base_urls)
        if not urls:
            raise ValueError("at least one base URL is needed")
        self._urls = [f"{url.rstrip('/')}/generate" for url in urls]
        self._attempts = attempts
        self._place = 0
        """Of the server that answered last."""
        self._caller = Caller(api_key)

    @property
    def headers(self) -> dict[str, str]:
        """What every call carries."""
        return self._caller.headers

    def pursue(self, fields: Mapping[str, Any], *, shows: bool = True) -> Pursuit:
        headers = self._caller.affinity(fields)
        return Pursuit(
            fields, len(self._urls), place=self._place, attempts=self._attempts, headers=headers, shows=shows
        )

    def url_of(self, pursuit: Pursuit) -> str:
        return self._urls[pursuit.place]

    def note(self, pursuit: Pursuit) -> None:
        self._place = pursuit.place
