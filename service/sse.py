"""Server-sent events as bytes. Always: data is one line of JSON, so no text can forge an event."""

import json
from typing import Any

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
"""Kept, since `json.dumps` makes one for every call that asks for anything but its defaults."""


def encode_json(value: Any) -> bytes:
    """Compact JSON in UTF-8. Raises ValueError for a number that JSON cannot hold."""
    return _ENCODER.encode(value).encode("utf-8")


def event(data: Any, event_id: int | None = None) -> bytes:
    """One event; `event_id` is what a client that lost its connection can tell."""
    line = b"data: " + encode_json(data) + b"\n\n"
    return line if event_id is None else b"id: %d\n" % event_id + line
