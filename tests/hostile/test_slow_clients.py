"""Clients that send a little and wait, many at once: they are answered in time, and the others are too.

The times are made short here; `python -m tests.hostile` has them as they are.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from service.settings import Settings
from tests.hostile.canary import singing
from tests.hostile.wire import connected, request
from tests.live import Live, live_server
from tests.tiny_model import TinyShape, write_tiny_gguf

HEAD_S, BODY_S, LEFTOVER_S = 0.3, 0.4, 0.3
CLIENTS = 40
HEAD = b"POST /generate HTTP/1.1\r\nhost: localhost\r\n"
BODY = request("POST", "/generate", b'{"prom', content_type="application/json", content_length="1000")
LEFTOVER = request("GET", "/livez", b"x", content_length="1000")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=512))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.connections.HEAD_S", HEAD_S)
        patch.setattr("service.connections.LEFTOVER_S", LEFTOVER_S)
        patch.setattr("service.beside.BODY_S", BODY_S)
        patch.setattr("service.server.LOOK_TICKS", 1)
        with live_server(Settings.load({}, {"model": str(path), "kv_cache_bytes": 4 << 20})) as server:
            yield server


def answers_to(live: Live, beginning: bytes, clients: int) -> list[bytes]:
    """What clients are sent until the server ends each connection. They all send this and nothing more."""
    with ExitStack() as open_ones:
        sockets = [open_ones.enter_context(connected(live.url)) for _ in range(clients)]
        for each in sockets:
            each.sendall(beginning)
        received = []
        for each in sockets:
            answer = b""
            while piece := each.recv(4096):
                answer += piece
            received.append(answer)
        return received


@pytest.mark.parametrize("beginning", [HEAD, BODY], ids=["head", "body"])
def test_many_that_do_not_end_what_they_began_are_all_408_and_nobody_else_notices(beginning: bytes, live: Live) -> None:
    with singing(live.url) as song:
        answers = answers_to(live, beginning, CLIENTS)

    assert {b"HTTP/1.1 408"} == {answer[:12] for answer in answers}
    assert song.is_unchanged


def test_a_connection_on_which_nothing_ever_comes_is_ended(live: Live) -> None:
    (answer,) = answers_to(live, b"", 1)

    assert answer.startswith(b"HTTP/1.1 408")


def test_a_body_that_nobody_waits_for_ends_the_connection(live: Live) -> None:
    (answer,) = answers_to(live, LEFTOVER, 1)

    assert answer.startswith(b"HTTP/1.1 200")


def test_a_head_that_drips_is_ended_in_the_same_time(live: Live) -> None:
    started = time.monotonic()
    with connected(live.url) as connection:
        connection.settimeout(0.02)
        answer = b""
        while not answer:
            connection.send(b"a")
            try:
                answer = connection.recv(4096)
            except TimeoutError:
                assert time.monotonic() - started < 20 * HEAD_S

    assert answer.startswith(b"HTTP/1.1 408")
