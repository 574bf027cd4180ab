"""Reads the stream of one answer and notes when its tokens came. Knows the events of `/v1/completions` and `/generate`.

Always: what cannot be understood makes the request a failed one.
"""

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from service.cli.load_report import StreamRecord
from service.event_stream import EventStreamDecoder


@dataclass
class ObservedStream:
    """One stream as it arrives."""

    started: float
    asked_tokens: int
    arrivals: list[float] = field(default_factory=list)
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    usage_tokens: int | None = None
    error: str | None = None
    is_complete: bool = False

    async def read(self, pieces: AsyncIterator[bytes]) -> None:
        decoder = EventStreamDecoder()
        async for piece in pieces:
            now = time.perf_counter()
            for event in decoder.feed(piece):
                self._take(event.data, now)

    def _take(self, data: str, now: float) -> None:
        if data == "[DONE]":
            self.is_complete = True
            return
        try:
            self._read_event(json.loads(data), now)
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
            self.error = "stream: not understood"

    def _read_event(self, event: dict[str, Any], now: float) -> None:
        if event.get("error"):
            self.error = f"stream: {_code_of(event)}"
        if usage := event.get("usage"):
            self._read_usage(usage)
        # The last event of /generate holds the whole text once more.
        pieces = event.get("choices") or () if "choices" in event else () if usage else (event,)
        if any(piece.get("text") or piece.get("token_ids") for piece in pieces):
            self.arrivals.append(now)

    def _read_usage(self, usage: dict[str, Any]) -> None:
        self.prompt_tokens = int(usage["prompt_tokens"])
        if "generated_tokens" in usage:
            self.usage_tokens, cached = int(usage["generated_tokens"]), usage["cached_tokens"]
        else:
            self.usage_tokens = int(usage["completion_tokens"])
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        self.cached_tokens = None if cached is None else int(cached)

    def record(self, error: str | None) -> StreamRecord:
        """`error` is why the request failed before its stream ended, if it did."""
        if error is None:
            error = self.error or (None if self.is_complete else "stream: ended early")
        if error is None and not self.arrivals:
            error = "stream: no tokens"
        return StreamRecord(
            started=self.started,
            ended=time.perf_counter(),
            arrivals=tuple(self.arrivals),
            asked_tokens=self.asked_tokens,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            usage_tokens=self.usage_tokens,
            error=error,
        )


def refusal(status: int, body: bytes) -> str:
    """What to call an answer that is no stream, by its status and code."""
    try:
        return f"http {status}: {_code_of(json.loads(body))}"
    except ValueError:
        return f"http {status}"


def _code_of(answer: Any) -> str:
    """The code or type in the usual error envelopes, else a plain word."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        return str(error.get("code") or error.get("type") or "error")
    return "error"
