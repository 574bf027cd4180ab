"""Server-sent events as bytes. Always: data is one line of JSON, so no text can forge an event."""

import json
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
LONG_LIST = 64

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
"""Kept, since `json.dumps` makes one for every call that asks for anything but its defaults."""


def encode_json(value: Any) -> bytes:
    """Compact JSON in UTF-8. Raises ValueError for a number that JSON cannot hold."""
    return _ENCODER.encode(value).encode("utf-8")


def encode_long_json(value: Any) -> bytes:
    """The same bytes, encoded in pieces between which other threads may run."""
    return "".join(_pieces(value)).encode("utf-8")


def event(data: Any, event_id: int | None = None) -> bytes:
    """One event; `event_id` is what a client that lost its connection can tell."""
    line = b"data: " + encode_json(data) + b"\n\n"
    return line if event_id is None else b"id: %d\n" % event_id + line


def long_event(data: Any) -> bytes:
    """One event that may be long, encoded in pieces."""
    return b"data: " + encode_long_json(data) + b"\n\n"


def _pieces(value: Any) -> Iterator[str]:
    """Each item of a long list is one piece, and so is everything outside of long lists."""
    if isinstance(value, dict) and value:
        for start, (name, item) in zip(chain("{", repeat(",")), value.items(), strict=False):
            yield f"{start}{_ENCODER.encode(name)}:"
            yield from _pieces(item)
        yield "}"
    elif isinstance(value, list) and value:
        for start, item in zip(chain("[", repeat(",")), value, strict=False):
            yield start
            yield from [_ENCODER.encode(item)] if len(value) > LONG_LIST else _pieces(item)
        yield "]"
    else:
        yield _ENCODER.encode(value)
