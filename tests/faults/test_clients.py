"""Clients that reset, that do not read, and that are too many: nothing of them is left, and nobody else notices."""

import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from service.logs import event_of
from service.settings import Settings
from tests.hostile.canary import singing
from tests.hostile.wire import connected, post
from tests.live import Live, live_server
from tests.slow_steps import slow_steps
from tests.tiny_model import TinyShape, write_tiny_gguf

RESETS = 200
STALL_S = 1.0
MOST_CONNECTIONS = 40
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
LONG = {"prompt": "The seed", "max_new_tokens": 3000, "ignore_eos": True, "stream": True, "speculation": "off"}
LOUD = LONG | {"logprobs": {"top": 20}, "num_return": 4}
"""Several megabytes, more than anything on the way can hold."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=4096))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.connections.STALL_S", STALL_S)
        patch.setattr("service.server.LOOK_TICKS", 1)
        settings = {"model": str(path), "kv_cache_bytes": 16 << 20, "max_connections": MOST_CONNECTIONS}
        with live_server(Settings.load({}, settings)) as server:
            yield server


def reset_a_stream(live: Live) -> None:
    """Begin to read a stream, and have the kernel forget it."""
    with connected(live.url) as connection:
        connection.sendall(post("/generate", LONG))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)


@pytest.mark.slow
def test_streams_that_are_reset_leave_nothing(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    with slow_steps(0.001):
        reset_a_stream(live)
    wait_for_cancelled(live, 1)
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()

    with caplog.at_level(logging.INFO), slow_steps(0.001), singing(live.url) as song:
        for _ in range(RESETS):
            reset_a_stream(live)
    wait_for_cancelled(live, 1 + RESETS)

    assert song.is_unchanged
    assert 0 == live.samples()["tane_kv_cache_bytes leased"]
    assert [] == [record for record in caplog.records if record.levelno >= logging.WARNING]
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= files and threading.active_count() <= threads)


def wait_for_cancelled(live: Live, count: int) -> None:
    live.wait_until(lambda samples: samples["tane_requests_total cancelled"] == count)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.01)


def read_to_the_end(connection: socket.socket) -> bytes:
    received = b""
    try:
        while piece := connection.recv(1 << 16):
            received += piece
    except ConnectionError:
        return received
    return received


def test_a_reader_that_takes_nothing_is_cut_and_delays_nobody(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with connected(live.url, receive_buffer=4096) as connection, singing(live.url) as song:
        connection.sendall(post("/generate", LOUD))
        connection.recv(1)
        wait_until(lambda: "reader_stalled" in map(event_of, list(caplog.records)))
        received = read_to_the_end(connection)

    assert b"[DONE]" not in received
    assert len(received) < 1 << 20
    assert song.is_unchanged


def test_a_reader_that_is_slow_but_reads_gets_everything(live: Live) -> None:
    received = b""
    with connected(live.url, receive_buffer=4096) as connection:
        connection.sendall(post("/generate", LOUD | {"max_new_tokens": 200}, connection="close"))
        began = time.monotonic()
        while piece := connection.recv(1 << 14):
            received += piece
            if time.monotonic() - began < 2 * STALL_S:
                time.sleep(STALL_S / 10)

    assert b"[DONE]" in received


def test_connections_beyond_the_most_are_refused_and_open_ones_are_served(live: Live) -> None:
    with singing(live.url) as song, ExitStack() as open_ones:
        opened = [open_ones.enter_context(connected(live.url)) for _ in range(MOST_CONNECTIONS + 10)]
        answers = [each.recv(4096) for each in opened[MOST_CONNECTIONS:]]

    assert {b"HTTP/1.1 503"} == {answer[:12] for answer in answers}
    assert all(b'"too_many_connections"' in answer for answer in answers)
    assert song.is_unchanged


def test_a_server_that_was_full_of_connections_takes_new_ones_when_they_are_gone(live: Live) -> None:
    with ExitStack() as open_ones:
        for _ in range(MOST_CONNECTIONS + 10):
            open_ones.enter_context(connected(live.url))

    wait_until(lambda: httpx.get(f"{live.url}/livez").status_code == httpx.codes.OK)
