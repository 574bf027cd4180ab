"""What one connection may hold of the server, and for how long: uvicorn's protocol with the bounds that it lacks.

Knows HTTP/1.1 as bytes, and times that it is told; knows no routes and no models.
Always: a connection whose head is not complete in time, whose body goes on after the answer, or whose reader takes
nothing is ended by `look`; so is one beyond the number that may be open. What is refused here has the common envelope.
"""

import logging
import socket
from asyncio import BaseTransport
from contextlib import suppress
from http import HTTPStatus
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.errors import BadJson, Overloaded, RequestTimeout, ServiceError, envelope
from service.logs import told
from service.middleware import new_request_id
from service.sse import encode_json

logger = logging.getLogger(__name__)

HEAD_S = 10.0
"""How long the head of a request may take to arrive."""
HEAD_PIECE_BYTES = 4096
"""A head may be as long as h11 says, 16 KiB, and one of these more."""
LEFTOVER_S = 5.0
"""How long what is left of a body is still read, and dropped, once its request was answered."""
STALL_S = 20.0
"""How long a reader may take nothing of what waits for it."""
UNSENT_BYTES = 1 << 16
"""What the kernel takes beyond what the reader's side has room for. Its own measure would be megabytes."""


class Unchanged:
    """For how long something has stayed as it is, as far as one sees who looks at it from time to time."""

    def __init__(self) -> None:
        self._state: object = None
        self._since = 0.0

    def seconds(self, state: object, now: float) -> float:
        """Since when `state` was seen at every look, in seconds; 0 for None, which is nothing to wait for."""
        if state is None or state != self._state:
            self._state, self._since = state, now
        return now - self._since


class BoundedConnection(H11Protocol):
    """One connection of a client."""

    most_connections: ClassVar[int]
    of_this_port: ClassVar[set["BoundedConnection"]]
    """Those that are open."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head, self._leftover, self._unread = Unchanged(), Unchanged(), Unchanged()

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        _bound_unsent(transport)
        self.of_this_port.add(self)
        if len(self.of_this_port) > self.most_connections:
            self.refuse(
                Overloaded(
                    f"{self.most_connections} connections are open, as many as may",
                    code="too_many_connections",
                )
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self.of_this_port.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A head is parsed in pieces: the parser bounds only heads that it finds incomplete."""
        while data and not self.transport.is_closing():
            size = HEAD_PIECE_BYTES if self.conn.their_state is h11.IDLE else len(data)
            super().data_received(data[:size])
            data = data[size:]

    def look(self, now: float) -> None:
        """End the connection if it has not moved for too long. To be called about once a second."""
        if self._unread.seconds(self._waiting_for_reader(), now) >= STALL_S:
            logger.info("a reader took nothing; its connection is cut", extra=told("reader_stalled", seconds=STALL_S))
            self.transport.abort()
        elif self._head.seconds(self._waiting_for_head(), now) >= HEAD_S:
            self.refuse(RequestTimeout(f"the head of the request did not arrive within {HEAD_S:g} s"))
        elif self._leftover.seconds(self._dropping_body(), now) >= LEFTOVER_S:
            self.transport.close()

    def refuse(self, error: ServiceError) -> None:
        """Answer with this error, unless another answer has begun, and end the connection."""
        if self.transport.is_closing():
            return
        request_id = new_request_id()
        names = {"request_id": request_id, "status": error.status, "error_code": error.code}
        logger.info(error.message, extra=told("refused", **names))
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(self._answer(error, request_id))
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls for bytes that are no HTTP."""
        self.refuse(BadJson("the request is not valid HTTP/1.1, or its head is too long", code="invalid_http"))

    def _answer(self, error: ServiceError, request_id: str) -> bytes:
        body = encode_json(envelope(error, request_id))
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
            ("x-request-id", request_id),
            *([("retry-after", str(error.retry_after_s))] if error.retry_after_s is not None else []),
        ]
        reason = HTTPStatus(error.status).phrase
        events = (
            h11.Response(status_code=error.status, headers=headers, reason=reason),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        return b"".join(self.conn.send(event) or b"" for event in events)

    def _waiting_for_head(self) -> object:
        """Something that is another for each request, while its head is incomplete and no other timer runs."""
        awaited = self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None
        return (self.cycle or self) if awaited and not self.transport.is_closing() else None

    def _dropping_body(self) -> object:
        return self.cycle if self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY else None

    def _waiting_for_reader(self) -> int | None:
        """How many bytes wait for the reader, while nothing is added to them."""
        answered = self.cycle is not None and self.cycle.response_complete
        if not (answered or self.flow.write_paused or self.transport.is_closing()):
            return None
        return self.transport.get_write_buffer_size() or None


def bounded(most_connections: int) -> type[BoundedConnection]:
    """The protocol of a port that holds at most so many connections at once, whatever other ports hold."""
    return type("Bounded", (BoundedConnection,), {"most_connections": most_connections, "of_this_port": set()})


def _bound_unsent(transport: BaseTransport) -> None:
    """Have the kernel take little more than it can send, where it knows how."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    connected = transport.get_extra_info("socket")
    if option is not None and connected is not None:
        with suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, option, UNSENT_BYTES)
