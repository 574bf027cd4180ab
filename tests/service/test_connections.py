"""How long a connection may stand still: looked at by hand, at times that are told."""

import asyncio
import json
import logging
import re
import socket
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from service.connections import HEAD_S, LEFTOVER_S, STALL_S, UNSENT_BYTES, BoundedConnection, Unchanged, bounded
from service.logs import fields_of

GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"


class Wire(asyncio.Transport):
    """The client's side: what it was sent, and how much of that it has not taken."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.unread = 0
        self.ended: str | None = None

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return self.ended is not None

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    @property
    def status(self) -> int:
        return int(self.sent.split()[1])

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = json.loads(self.sent.partition(b"\r\n\r\n")[2])["error"]
        return error


class Server:
    """An app that answers at once, before it has read any body, or never; and its connections."""

    def __init__(self, *, answers: bool = True, most_connections: int = 8) -> None:
        self.received: list[str] = []
        self._answers = answers
        self._state = ServerState()
        SERVERS.append(self)
        self._config = uvicorn.Config(
            self._app, http=bounded(most_connections), interface="asgi3", lifespan="off", log_config=None
        )

    def connection(self) -> BoundedConnection:
        if not self._config.loaded:
            self._config.load()
        made = self._config.http_protocol_class(  # type: ignore[call-arg]
            config=self._config, server_state=self._state, app_state={}
        )
        assert isinstance(made, BoundedConnection)
        return made

    def connect(self) -> tuple[BoundedConnection, Wire]:
        connection, wire = self.connection(), Wire()
        connection.connection_made(wire)
        return connection, wire

    def hang_up(self) -> None:
        for connection in list(self._state.connections):
            connection.connection_lost(None)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        while not self._answers:
            message = await receive()
            self.received.append(message["type"])
            if message["type"] == "http.disconnect":
                return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


SERVERS: list[Server] = []
"""Those of the test that runs."""


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        async def whole() -> None:
            try:
                await test(*arguments, **named)
            finally:
                await hang_up()

        asyncio.run(asyncio.wait_for(whole(), 10))

    return run


async def hang_up() -> None:
    """The clients go away, so that no app waits any longer."""
    for server in SERVERS:
        server.hang_up()
    SERVERS.clear()
    await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("beginning", [b"", b"GET / HT", GET[:-2]])
@in_loop
async def test_a_head_that_does_not_come_is_408_and_ends_the_connection(beginning: bytes) -> None:
    connection, wire = Server().connect()
    connection.data_received(beginning)

    for second in range(int(HEAD_S) + 1):
        connection.look(second)

    assert (408, "request_timeout", "closed") == (wire.status, wire.error["code"], wire.ended)


@in_loop
async def test_a_head_that_comes_byte_by_byte_is_408_all_the_same() -> None:
    connection, wire = Server().connect()

    for second in range(int(HEAD_S) + 1):
        connection.data_received(GET[second : second + 1])
        connection.look(second)

    assert 408 == wire.status


@in_loop
async def test_the_head_of_a_second_request_has_a_time_of_its_own() -> None:
    connection, wire = Server().connect()
    connection.look(0)
    connection.data_received(GET)
    await settled()
    connection.data_received(b"GET")
    connection.look(HEAD_S)
    before = wire.ended

    connection.look(2 * HEAD_S)

    assert (None, "closed", 1) == (before, wire.ended, wire.sent.count(b"HTTP/1.1 408"))


@in_loop
async def test_a_request_that_is_being_answered_waits_for_no_head() -> None:
    connection, wire = Server(answers=False).connect()
    connection.data_received(GET)
    await settled()

    for second in range(60):
        connection.look(second)

    assert wire.ended is None


@in_loop
async def test_a_body_that_goes_on_after_the_answer_ends_the_connection() -> None:
    connection, wire = Server().connect()
    connection.data_received(POST)
    await settled()

    for second in range(int(LEFTOVER_S) + 1):
        connection.data_received(b"x")
        connection.look(second)

    assert (200, "closed") == (wire.status, wire.ended)


@in_loop
async def test_a_reader_that_takes_nothing_is_cut() -> None:
    server = Server(answers=False)
    connection, wire = server.connect()
    connection.data_received(GET)
    connection.pause_writing()
    wire.unread = 100_000

    connection.look(0)
    connection.look(STALL_S - 1)
    before = wire.ended
    connection.look(STALL_S)

    assert (None, "aborted") == (before, wire.ended)


@in_loop
async def test_a_reader_that_takes_little_by_little_is_not_cut() -> None:
    connection, wire = Server(answers=False).connect()
    connection.data_received(GET)
    connection.pause_writing()

    for second in range(100):
        wire.unread = 100_000 - second // 10
        connection.look(second)

    assert wire.ended is None


@in_loop
async def test_an_answer_whose_last_bytes_nobody_takes_is_cut_though_the_connection_was_closed() -> None:
    connection, wire = Server().connect()
    connection.data_received(GET)
    await settled()
    wire.unread = 100
    wire.close()

    connection.look(0)
    connection.look(STALL_S)

    assert "aborted" == wire.ended


@in_loop
async def test_a_stream_whose_reader_keeps_up_is_not_cut_by_what_is_on_its_way() -> None:
    connection, wire = Server(answers=False).connect()
    connection.data_received(GET)
    await settled()
    wire.unread = 100

    connection.look(0)
    connection.look(STALL_S)

    assert wire.ended is None


@in_loop
async def test_a_connection_too_many_is_503_with_a_time_to_return() -> None:
    server = Server(most_connections=2)
    server.connect()
    server.connect()

    _, wire = server.connect()

    assert (503, "too_many_connections", "closed") == (wire.status, wire.error["code"], wire.ended)
    assert re.search(rb"\r\nretry-after: [123]\r\n", wire.sent.lower())


@in_loop
async def test_a_place_that_is_left_can_be_taken() -> None:
    server = Server(most_connections=1)
    connection, _ = server.connect()
    connection.connection_lost(None)

    _, wire = server.connect()

    assert wire.ended is None


@pytest.mark.parametrize(
    "raw",
    [
        b"GARBAGE\r\n\r\n",
        GET.replace(b"host: a\r\n", b""),
        b"GET / HTTP/1.1\r\nx: " + b"a" * 70_000,
        GET.replace(b"\r\n\r\n", b"\r\n" + b"x: y\r\n" * 4000 + b"\r\n"),
    ],
)
@in_loop
async def test_what_is_no_http_is_400_in_the_common_form(raw: bytes) -> None:
    connection, wire = Server().connect()

    connection.data_received(raw)

    assert (400, "invalid_http", "closed") == (wire.status, wire.error["code"], wire.ended)
    assert f"x-request-id: {wire.error['request_id']}".encode() in wire.sent.lower()


@in_loop
async def test_a_body_that_turns_out_to_be_no_http_is_one_400_and_the_app_hears_that_the_client_is_gone() -> None:
    server = Server(answers=False)
    connection, wire = server.connect()
    connection.data_received(CHUNKED + b"3\r\nabc")
    await settled()

    connection.data_received(b"XX")
    await settled()

    assert (1, 400, "closed") == (wire.sent.count(b"HTTP/1.1 "), wire.status, wire.ended)
    assert "http.disconnect" == server.received[-1]


@in_loop
async def test_the_kernel_is_told_to_take_little_that_it_cannot_send() -> None:
    ours, theirs = socket.socket(), socket.create_server(("127.0.0.1", 0))
    with ours, theirs:
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(ours, theirs.getsockname())
        transport, _ = await loop.create_connection(Server().connection, sock=ours)

        told = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
        transport.abort()
        await settled()

    assert UNSENT_BYTES == told


def test_what_changes_has_lasted_no_time() -> None:
    unchanged = Unchanged()

    assert [0, 2, 0, 0, 0, 5] == [
        unchanged.seconds(state, now) for state, now in [("a", 1), ("a", 3), ("b", 4), (None, 5), ("b", 6), ("b", 11)]
    ]


def test_a_refusal_has_one_name_in_answer_and_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "service.connections")

    async def refused() -> Wire:
        connection, wire = Server().connect()
        connection.data_received(b"GARBAGE\r\n\r\n")
        return wire

    wire = asyncio.run(refused())

    (record,) = [record for record in caplog.records if record.name == "service.connections"]
    assert wire.error["request_id"] == fields_of(record)["request_id"]
    assert wire.error["request_id"].encode() in wire.sent.partition(b"\r\n\r\n")[0]
