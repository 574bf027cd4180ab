"""Faults of clients: they reset, leave, do not read, hold connections and never end what they began."""

import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.faults.figure import Figure, at_least, at_most, between, exactly, of_canary, percentile
from tests.faults.lives import LONG, bits, load
from tests.faults.process import Server, reading, serving_process
from tests.free_port import free_port
from tests.hostile.__main__ import DEADLINES, SLOW_CLIENTS, slow_clients
from tests.hostile.canary import Song, singing
from tests.hostile.wire import connected, post

RESETS = 200
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
GONE_S = 0.5
ENDLESS = LONG | {"max_new_tokens": 4000, "stream": True}
WAITING, WAITING_TOKENS = 12, 1500
MIB = 1 << 20
LOUD = LONG | {"max_new_tokens": 400, "num_return": 4, "logprobs": {"top": 20}, "stream": True}
"""More than anything on the way can hold."""
STALL_S = 20.0
CACHE_BYTES = 40 * MIB
"""So much is written to soon, and takes no more memory from then on."""
NEIGHBOURS = 4
CONNECTIONS, FILES = 10_000, 4096


def reset_one(server: Server) -> None:
    """Begin to read a stream, and have the kernel forget it."""
    with connected(server.url) as connection:
        connection.sendall(post("/generate", ENDLESS))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)


def resets(model: Path) -> Iterator[Figure]:
    """8: streams that are reset."""
    with serving_process(model) as server:
        with singing(server.url) as song:
            reset_one(server)
        server.wait_until_idle()
        before, files, threads = server.samples(), server.files, server.threads
        with singing(server.url) as song:
            for _ in range(RESETS):
                reset_one(server)
            reset_s = time.monotonic()
            while server.samples()["tane_requests_total cancelled"] < before["tane_requests_total cancelled"] + RESETS:
                assert time.monotonic() < reset_s + 30, "streams that were reset go on"
                time.sleep(0.01)
            gone_s = time.monotonic() - reset_s
        server.wait_until_idle()
        after = server.samples()
        left = server.files - files, server.threads - threads
        lines = server.lines_of("warning", "error", "critical")
    yield at_most(8, "the last of 200 is cancelled within", gone_s, GONE_S, " s")
    yield exactly(8, "bytes of the cache still leased", int(after["tane_kv_cache_bytes leased"]), 0)
    yield at_most(8, "descriptors more than before", left[0], 0)
    yield at_most(8, "threads more than before", left[1], 0)
    yield exactly(8, "lines of warnings and errors in the log", len(lines), 0)
    yield from of_canary(8, song)


def leavers(model: Path) -> Iterator[Figure]:
    """9: clients that leave while another holds all of the cache."""
    waiting: dict[str, Any] = {"prompt_tokens": [70] * WAITING_TOKENS, "max_new_tokens": 8}
    with serving_process(model, "--kv-cache-bytes", str(48 * MIB)) as server:
        calm = bits(server.url)
        free = int(server.samples()["tane_kv_cache_bytes free"] / bytes_per_token(server))
        with connected(server.url) as holder, ExitStack() as open_ones:
            holder.sendall(post("/generate", ENDLESS | {"max_new_tokens": free - 300}))
            wait_for(server, "running", 1)
            for number in range(WAITING):
                connection = open_ones.enter_context(connected(server.url))
                body = waiting | ({"session_id": "s"} if number == 0 else {})
                connection.sendall(post("/generate", body | {"stream": number % 2 == 0}))
            wait_for(server, "queued", WAITING)
            before = server.samples()
            open_ones.close()
            wait_for(server, "queued", 0)
            again = httpx.post(f"{server.url}/generate", json=waiting | {"prompt_tokens": [70] * 8}, timeout=60)
            after = server.samples()
        server.wait_until_idle()
        same = bits(server.url) == calm
        leased = server.samples()["tane_kv_cache_bytes leased"]
    taken_up = after["tane_prompt_tokens_total"] - before["tane_prompt_tokens_total"] - 8
    yield exactly(9, f"prompt tokens of {WAITING} that left, taken up", int(taken_up), 0)
    yield exactly(9, "status of the next turn of a session that was left", again.status_code, 200)
    yield exactly(9, "bytes of the cache still leased", int(leased), 0)
    yield exactly(9, "the canary has the same bits", same, True)


def bytes_per_token(server: Server) -> int:
    engine = httpx.get(f"{server.url}/info").json()["engine"]
    return int(engine["kv_bytes_per_token"])


def wait_for(server: Server, state: str, count: int) -> None:
    deadline = time.monotonic() + 30
    while server.samples()[f"tane_active_requests {state}"] != count:
        assert time.monotonic() < deadline, f"there are never {count} requests {state}"
        time.sleep(0.01)


class Timed:
    """Reads one stream and notes when each event came."""

    def __init__(self, url: str, body: dict[str, Any]) -> None:
        self._url, self._body = url, body
        self.came: list[float] = []

    def run(self) -> None:
        with httpx.stream("POST", f"{self._url}/generate", json=self._body, timeout=120) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    self.came.append(time.perf_counter())

    @property
    def gaps(self) -> list[float]:
        """Seconds between events, but for the end."""
        return [after - before for before, after in zip(self.came[:-3], self.came[1:-2], strict=True)]


def gaps_beside(server: Server) -> float:
    """The time between tokens that one in twenty of the neighbours' exceeds."""
    body = LONG | {"max_new_tokens": 200, "stream": True}
    streams = [Timed(server.url, each) for each in load(body, NEIGHBOURS)]
    threads = [threading.Thread(target=stream.run) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return percentile([gap for stream in streams for gap in stream.gaps], 0.95)


def slow_reader(model: Path) -> Iterator[Figure]:
    """10: a stream that is read, and then two that are not, one after the other, each beside others."""
    with serving_process(model, "--kv-cache-bytes", str(CACHE_BYTES)) as server:
        with reading(server.url, LOUD), singing(server.url):
            read_s = gaps_beside(server)
        unread = [_beside_unread(server, times) for times in (1, 2)]
    yield exactly(10, "lines that tell of the cuts", len(server.events("reader_stalled")), len(unread))
    for each in unread:
        yield between(10, "cut after", each.cut_s, (STALL_S - 2, STALL_S + 3), " s")
    yield at_most(10, "MiB more after the second than after the first", (unread[1].held - unread[0].held) / MIB, 5)
    most_s = max(each.gaps_s for each in unread)
    yield at_most(10, "others' time between tokens (95 %), to that beside one who reads", most_s / read_s, 1.1)
    for each in unread:
        yield from of_canary(10, each.song)


@dataclass(frozen=True, slots=True)
class _Unread:
    """What was seen beside a reader who took nothing."""

    gaps_s: float
    cut_s: float
    held: int
    """Bytes in memory when all was over."""
    song: Song


def _beside_unread(server: Server, times: int) -> _Unread:
    """Until the reader is cut for the so many-th time."""
    server.wait_until_idle()
    with connected(server.url, receive_buffer=4096) as connection, singing(server.url) as song:
        connection.sendall(post("/generate", LOUD))
        connection.recv(1)
        began = time.monotonic()
        gaps_s = gaps_beside(server)
        while len(server.events("reader_stalled")) < times:
            assert time.monotonic() < began + 3 * STALL_S, "who does not read is never cut"
            time.sleep(0.05)
        cut_s = time.monotonic() - began
    server.wait_until_idle()
    return _Unread(gaps_s, cut_s, server.resident_bytes, song)


def connections(model: Path) -> Iterator[Figure]:
    """11: more connections than the server may have descriptors for."""
    hard, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(CONNECTIONS, most - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    port = free_port()
    options = ("--metrics-port", str(port), "--max-connections", str(CONNECTIONS))
    with serving_process(model, *options, limits={resource.RLIMIT_NOFILE: FILES}) as server:
        before = server.resident_bytes
        with singing(server.url) as song:
            with ExitStack() as open_ones:
                for _ in range(count):
                    open_ones.enter_context(connected(server.url))
                answered_s = [seconds_of(f"http://127.0.0.1:{port}/livez") for _ in range(20)]
                grown = server.resident_bytes - before
            closed = time.monotonic()
            while not is_served(server) and time.monotonic() < closed + 30:
                time.sleep(0.05)
            recovered_s = time.monotonic() - closed
        failures = server.lines_of("error", "critical")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, most))
    yield at_least(11, "connections", count, CONNECTIONS)
    yield at_most(11, "/livez on the second port: the slowest of 20", max(answered_s), 0.2, " s")
    yield at_most(11, "answers on the main port again after", recovered_s, 5, " s")
    yield at_most(11, "MiB more than before", grown / MIB, 150)
    yield exactly(11, "lines of errors in the log", len(failures), 0)
    yield from of_canary(11, song)


def seconds_of(url: str) -> float:
    began = time.perf_counter()
    assert httpx.get(url, timeout=30).status_code == httpx.codes.OK
    return time.perf_counter() - began


def is_served(server: Server) -> bool:
    try:
        return httpx.get(f"{server.url}/livez", timeout=5).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def slowloris(model: Path) -> Iterator[Figure]:
    """13: clients that never end what they began."""
    with serving_process(model) as server:
        for name, (raw, most_s) in DEADLINES.items():
            found = slow_clients(server.url, raw)
            yield exactly(13, f"of {SLOW_CLIENTS} {name}, answered with 408", found["answered_408"], SLOW_CLIENTS)
            yield at_most(13, f"the last of the {name} is ended after", found["last_s"], most_s, " s")
            yield exactly(13, f"canary beside the {name}: unchanged", found["canary_unchanged"], True)
