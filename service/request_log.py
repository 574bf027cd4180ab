"""One log line for each HTTP request, when it has ended: ids, counts and times, and nothing that anyone wrote.

Knows events and the names of fields; knows no routes. Always: what stands in a line is a number, or comes from a closed
set or from our own making, or has passed `SAFE_ID`; so no prompt, no text and no forged line.
"""

import logging
import re
import time
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from service.context import Ticket
from service.logs import told
from service.request import Delta, Failed, Finished, GenerationRequest

logger = logging.getLogger(__name__)

SAFE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
"""Which ids of clients are repeated."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
WATCHED = frozenset({"/livez", "/readyz", "/metrics", "/ui/{name:path}"})
"""Routes that machines ask all the time: told only at level debug when all is well."""
OUR_FAULT = frozenset({"engine_failed", "numerical_error"})
GONE = 499
"""The status of an answer that nobody waited for."""


@dataclass(slots=True)
class RequestNote:
    """What is known of one request while it is answered."""

    request_id: str
    method: str
    client_request_id: str | None = None
    """What the client calls it, where that is fit to be repeated."""
    key_id: str | None = None
    began: float = field(default_factory=time.perf_counter)
    model: str | None = None
    streamed: bool = False
    asked: GenerationRequest | None = None
    """What is generated for it, once it was understood."""
    submitted: float | None = None
    """When it was; like `began` in seconds of `time.perf_counter`."""
    error_code: str | None = None
    """Of the error that was answered, before any text or after a fault of ours in a stream."""
    end: Finished | Failed | None = None
    fault: Exception | None = None
    """One that nobody expected."""

    def accept(self, model: str, asked: GenerationRequest) -> None:
        """It was understood, and is about to be submitted."""
        self.model, self.streamed, self.asked, self.submitted = model, asked.streams, asked, time.perf_counter()

    def log(self, route: str, status: int) -> None:
        """Tell of it, as it has ended."""
        outcome = self.outcome(status)
        level = logging.DEBUG if route in WATCHED and status < HTTPStatus.BAD_REQUEST else logging.INFO
        if self.fault is not None or status == HTTPStatus.INTERNAL_SERVER_ERROR or outcome in OUR_FAULT:
            level = logging.ERROR
        if logger.isEnabledFor(level):
            logger.log(
                level, "request", exc_info=self.fault, extra=told("request", **self._fields(route, status, outcome))
            )

    def outcome(self, status: int) -> str | None:
        """How the generation ended; None where nothing was to be generated."""
        if isinstance(self.end, Finished):
            return self.end.completions[0].finish_reason if self.end.completions else None
        if self.end is not None:
            return self.end.code
        return "cancelled" if status == GONE else None

    def _fields(self, route: str, status: int, outcome: str | None) -> dict[str, Any]:
        usage = None if self.end is None else self.end.usage
        timings = None if self.end is None else self.end.timings
        began = usage is not None and timings is not None and usage.generated_tokens > 0
        return {
            "request_id": self.request_id,
            "client_request_id": self.client_request_id,
            "key_id": self.key_id,
            "method": self.method if self.method in METHODS else "other",
            "route": route,
            "status": status,
            "error_code": self.error_code,
            "model": self.model,
            "streamed": self.streamed,
            "outcome": outcome,
            "prompt_tokens": usage and usage.prompt_tokens,
            "cached_tokens": usage and usage.cached_tokens,
            "generated_tokens": usage and usage.generated_tokens,
            "resumed_tokens": usage and usage.resumed_tokens,
            "queue_s": timings and round(timings.queue_s, 6),
            "prefill_s": timings and round(timings.prefill_s, 6),
            "decode_s": timings and round(timings.decode_s, 6),
            "paused_s": timings and round(timings.paused_s, 6),
            "ttft_s": round(timings.queue_s + timings.prefill_s, 6) if began and timings else None,
            "total_s": round(time.perf_counter() - self.began, 6),
        }


def new_note(request_id: str, method: str, headers: Iterable[tuple[bytes, bytes]]) -> RequestNote:
    """A note on a request that has just arrived."""
    theirs = next((value for name, value in headers if name == b"x-request-id"), b"")
    return RequestNote(request_id, method, theirs.decode("ascii") if SAFE_ID.fullmatch(theirs) else None)


def note_of(scope: MutableMapping[str, Any]) -> RequestNote:
    note: RequestNote = scope["state"]["note"]
    return note


class NotedTicket:
    """A ticket whose end is noted."""

    def __init__(self, ticket: Ticket, note: RequestNote) -> None:
        self._ticket = ticket
        self._note = note

    async def next_event(self) -> Delta | Finished | Failed:
        event = await self._ticket.next_event()
        if not isinstance(event, Delta):
            self._note.end = event
        return event

    def cancel(self) -> None:
        self._ticket.cancel()
