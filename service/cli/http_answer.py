"""Reading one HTTP/1.1 answer (RFC 9112) from bytes that arrive in any pieces.

Knows framing and no meaning: the body comes out as it came, and no connection is opened.
Always: how the bytes are cut into pieces changes nothing; an answer that breaks off is never taken for a whole one.
"""

from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

MOST_HEAD_BYTES = 1 << 16
"""Of a head, a chunk's first line or its trailer."""
LINE_END = b"\r\n"
HEAD_END = b"\r\n\r\n"
CODE_DIGITS = 3
WITHOUT_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


class BrokenAnswer(ConnectionError):
    """What came is no HTTP/1.1 answer, or only the beginning of one."""


class AnswerReader:
    """Turns the bytes of a connection into a status and a body. For answers to anything but HEAD and CONNECT."""

    def __init__(self) -> None:
        self.status: int | None = None
        """Known once the head is there."""
        self.is_complete = False
        self._held = b""
        self._left = 0
        """Bytes of the body, or of this chunk of it, that are still to come."""
        self._read: Callable[[], bytes | None] = self._head

    def feed(self, data: bytes) -> bytes:
        """What these bytes bring of the body. Raises BrokenAnswer."""
        self._held += data
        pieces = []
        while not self.is_complete and (piece := self._read()) is not None:
            pieces.append(piece)
        if len(self._held) > MOST_HEAD_BYTES and not self.is_complete:
            raise BrokenAnswer("a line that does not end")
        return b"".join(pieces)

    def close(self) -> None:
        """Nothing more comes. Raises BrokenAnswer when something is missing."""
        if self._read == self._until_closed:
            self.is_complete = True
        if not self.is_complete:
            raise BrokenAnswer("the answer broke off")

    def _head(self) -> bytes | None:
        head = self._up_to(HEAD_END)
        if head is None:
            return None
        first, *lines = head.split(LINE_END)
        version, _, rest = first.partition(b" ")
        code, _, _ = rest.partition(b" ")
        if not (version.startswith(b"HTTP/1.") and len(code) == CODE_DIGITS and code.isdigit()):
            raise BrokenAnswer("no answer of HTTP/1.1")
        if int(code) >= HTTPStatus.OK:  # what comes before is informational
            self.status = int(code)
            self._begin_body(
                {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
            )
        return b""

    def _begin_body(self, fields: dict[bytes, bytes]) -> None:
        length = fields.get(b"content-length")
        if self.status in WITHOUT_BODY:
            self.is_complete = True
        elif fields.get(b"transfer-encoding", b"").lower() == b"chunked":
            self._read = self._chunk
        elif length is None:
            self._read = self._until_closed
        else:
            self._left, self._read = _number(length, 10), self._sized

    def _sized(self) -> bytes | None:
        piece = self._part()
        self.is_complete = not self._left
        return piece

    def _chunk(self) -> bytes | None:
        line = self._up_to(LINE_END)
        if line is None:
            return None
        self._left = _number(line.partition(b";")[0].strip(), 16)
        self._read = self._chunk_body if self._left else self._trailer
        return b""

    def _chunk_body(self) -> bytes | None:
        piece = self._part()
        if not self._left:
            self._read = self._chunk_end
        return piece

    def _chunk_end(self) -> bytes | None:
        between = self._up_to(LINE_END)
        if between:
            raise BrokenAnswer("a chunk is longer than it says")
        if between is not None:
            self._read = self._chunk
        return between

    def _trailer(self) -> bytes | None:
        line = self._up_to(LINE_END)
        self.is_complete = line == b""
        return None if line is None else b""

    def _until_closed(self) -> bytes | None:
        piece, self._held = self._held, b""
        return piece or None

    def _part(self) -> bytes | None:
        piece, self._held = self._held[: self._left], self._held[self._left :]
        self._left -= len(piece)
        return piece or None

    def _up_to(self, end: bytes) -> bytes | None:
        """What stands before the first `end`, taken together with it; None while that has not arrived."""
        before, found, after = self._held.partition(end)
        if not found:
            return None
        self._held = after
        return before


def is_success(status: int) -> bool:
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


def _number(digits: bytes, base: int) -> int:
    # `int` itself would take signs and underscores too.
    if digits.isalnum():
        with suppress(ValueError):
            return int(digits, base)
    raise BrokenAnswer("a length that is no number")
