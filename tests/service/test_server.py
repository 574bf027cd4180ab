"""The server around the app: a port of their own for those who watch it."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from service.keys import Keys
from service.memory import MemoryUse
from service.memory_guard import MemoryGuard
from service.server import DrainingServer, http_config
from service.settings import Settings
from tests.fake_runtime import make_service
from tests.free_port import free_port
from tests.hostile.wire import connected

MOST_CONNECTIONS = 3


@pytest.fixture
def memory() -> list[MemoryUse]:
    """What a server is told to hold."""
    return [MemoryUse(1, 100)]


@pytest.fixture
def urls(memory: list[MemoryUse], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Of the main port and the one for metrics."""
    monkeypatch.setattr("service.server.LOOK_TICKS", 1)
    guard = MemoryGuard(lambda: tuple(memory))
    settings = Settings(
        port=0, metrics_port=free_port(), max_connections=MOST_CONNECTIONS, drain_s=0, log_level="error"
    )
    service = make_service(settings=settings, keys=Keys([b"secret"]), memory=guard)
    server = DrainingServer(http_config(service, settings), service, ())
    thread = threading.Thread(target=lambda: asyncio.run(server.serve_until_drained()), daemon=True)
    thread.start()
    while not server.started or len(server.servers) < 2:
        assert thread.is_alive()
        time.sleep(0.005)
    yield [f"http://127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in server.servers]
    server.should_exit = True
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_metrics_are_served_on_a_second_port(urls: list[str]) -> None:
    assert [401, 200] == [httpx.get(f"{url}/metrics").status_code for url in urls]


def test_health_answers_on_the_second_port_when_the_main_one_is_full(urls: list[str]) -> None:
    with ExitStack() as open_ones:
        for _ in range(MOST_CONNECTIONS):
            open_ones.enter_context(connected(urls[0]))

        assert [503, 200] == [httpx.get(f"{url}/livez").status_code for url in urls]


def test_connections_of_the_second_port_are_not_counted_on_the_main_one(urls: list[str]) -> None:
    with ExitStack() as open_ones:
        for _ in range(MOST_CONNECTIONS):
            open_ones.enter_context(connected(urls[1]))

        assert 200 == httpx.get(f"{urls[0]}/livez").status_code


def test_memory_is_looked_at_while_it_serves(urls: list[str], memory: list[MemoryUse]) -> None:
    seen = []
    for memory[0], expected in ((MemoryUse(97, 100), 503), (MemoryUse(50, 100), 200)):
        deadline = time.monotonic() + 30
        while (status := httpx.get(f"{urls[1]}/readyz").status_code) != expected and time.monotonic() < deadline:
            time.sleep(0.01)
        seen.append(status)

    assert [503, 200] == seen
