"""Bytes to a server and back, as no client library would send them."""

import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_S = 60.0
SECOND_ANSWER_S = 0.2
END_S = 10.0


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """What came back. `status` is None where the connection was ended without an answer."""

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    seconds: float = 0.0
    is_over: bool = True
    """Whether the server has ended the connection."""
    more: bytes = b""
    """What came after the answer."""

    @property
    def code(self) -> str | None:
        """Of the error, in the common form."""
        try:
            error: dict[str, Any] = json.loads(self.body)["error"]
        except (ValueError, KeyError, TypeError):
            return None
        whole = {"type", "code", "message", "param", "allowed", "request_id"} == error.keys()
        return str(error["code"]) if whole and self.headers.get("x-request-id") == error["request_id"] else None


@contextmanager
def connected(url: str, *, receive_buffer: int | None = None) -> Iterator[socket.socket]:
    """A connection to the server at this address."""
    address = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(TIMEOUT_S)
        connection.connect((address.hostname or "", address.port or 0))
        yield connection


def talk(url: str, raw: bytes, *, ends: bool = False) -> WireAnswer:
    """Send these bytes on a connection of their own, and read what comes back; an end that should come is awaited."""
    started = time.perf_counter()
    with connected(url) as connection:
        # It may be refused before all of it was sent, and answered.
        with suppress(OSError):
            connection.sendall(raw)
        answer = HTTPResponse(connection)
        try:
            answer.begin()
            body = answer.read()
        except (OSError, HTTPException):
            return WireAnswer(None, seconds=time.perf_counter() - started)
        seconds = time.perf_counter() - started
        is_over, more = _rest(connection, END_S if ends else SECOND_ANSWER_S)
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return WireAnswer(answer.status, headers, body, seconds, is_over, more)


def _rest(connection: socket.socket, patience_s: float) -> tuple[bool, bytes]:
    """Whether the connection is over, and what else is sent on it."""
    connection.settimeout(patience_s)
    more = b""
    try:
        while piece := connection.recv(1 << 16):
            more += piece
    except TimeoutError:
        return False, more
    except OSError:
        return True, more
    return True, more


def request(method: str, target: str, body: bytes = b"", *, host: str = "localhost", **headers: str) -> bytes:
    """The bytes of a request; names of headers are written with underscores."""
    lines = [f"{method} {target} HTTP/1.1", f"host: {host}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def post(target: str, body: Any, **headers: str) -> bytes:
    """A request with this body, as JSON unless it is bytes, and headers that fit it unless they are given."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request(
        "POST", target, raw, **{"content_type": "application/json", "content_length": str(len(raw))} | headers
    )


def chunked(target: str, body: bytes, piece: int) -> bytes:
    """The same in chunks of this size."""
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(part), part)
        for part in (body[start : start + piece] for start in range(0, len(body), piece))
    )
    head = request("POST", target, content_type="application/json", transfer_encoding="chunked")
    return head + chunks + b"0\r\n\r\n"
