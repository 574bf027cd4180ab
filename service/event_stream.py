"""Reading server-sent events (WHATWG HTML, section 9.2.6) from bytes that arrive in any pieces.

Knows no JSON and opens no connection. Always: how the bytes are cut into pieces changes nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """`id` is the last one that the stream has named, as the standard says."""

    data: str
    id: str = ""
    event: str = "message"


class EventStreamDecoder:
    """Turns bytes into events. Comments and unknown fields are skipped; an event needs its blank line."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._after_return = False
        self._started = False
        self._data: list[str] = []
        self._id = ""
        self._event = ""

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        """The events that this piece completes. Lines end in LF, CR or CRLF, and in nothing else."""
        if not piece:
            return
        if self._after_return:
            piece = piece.removeprefix(b"\n")
        self._after_return = piece.endswith(b"\r")
        *lines, rest = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for end in lines:
            line = (self._line + end).decode("utf-8", errors="replace")
            self._line.clear()
            if event := self._take(line):
                yield event
        self._line += rest

    def _take(self, line: str) -> ServerSentEvent | None:
        if not self._started:
            self._started = True
            line = line.removeprefix("\ufeff")
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        event = ServerSentEvent("\n".join(self._data), self._id, self._event or "message")
        had_data = bool(self._data)
        self._data, self._event = [], ""
        return event if had_data else None
