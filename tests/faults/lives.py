"""Faults of the engine, the process and the machine's clock, and what callers see of them."""

import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.end_to_end.test_numerical_error import BOMB, write_bomb
from tests.faults.figure import Figure, at_most, between, exactly, of_canary
from tests.faults.process import BROKEN, Reader, Server, reading, serving_process
from tests.hostile.canary import ask, singing

STREAMS = 8
STALL_S = 30.0
DRAIN_S = 5.0
PAUSE_S = 5.0
CLOSE_S = 3.0
HUNG_S = 60.0
LONG: dict[str, Any] = {"prompt": "The seed", "max_new_tokens": 200, "temperature": 1, "ignore_eos": True}
ENDLESS = LONG | {"max_new_tokens": 4000}


def bits(url: str) -> str:
    with httpx.Client(base_url=url, timeout=60) as client:
        return ask(client, use_cache=True)


def load(body: dict[str, Any], count: int = STREAMS) -> list[dict[str, Any]]:
    return [body | {"seed": seed} for seed in range(count)]


def codes(readers: list[Reader]) -> list[str]:
    """How each stream ended: the code of its error, a finish reason, or `cut`."""
    return [
        reader.terminal["error"]["code"] if "error" in reader.terminal else reader.terminal.get("finish_reason", "cut")
        for reader in readers
    ]


def panics(model: Path) -> Iterator[Figure]:
    """2: what is no Exception is raised in a step, four times."""
    with (
        serving_process(model, command=(*BROKEN, "panic", str(STALL_S), "serve")) as server,
        singing(server.url) as song,
    ):
        back_s, failed_with = [], []
        for _ in range(4):
            with reading(server.url, *load(ENDLESS, 4)) as readers:
                server.process.send_signal(signal.SIGUSR1)
            failed_at = time.monotonic()
            bits(server.url)
            back_s.append(time.monotonic() - failed_at)
            failed_with += codes(readers)
        server.wait_until_idle()
    yield exactly(2, "of 16 live requests, ended with engine_failed", failed_with.count("engine_failed"), 16)
    yield at_most(2, "to the next answer", max(back_s), 5, " s")
    yield from of_canary(2, song, may_fail=True)


def hangs(model: Path) -> Iterator[Figure]:
    """3: no step ends any more."""
    with serving_process(model, command=(*BROKEN, "hang", str(STALL_S), "serve")) as server:
        with reading(server.url, *load(ENDLESS)) as readers:
            server.process.send_signal(signal.SIGUSR1)
            broken = time.monotonic()
            dead_s = until_not_live(server) - broken
        status = server.process.wait(HUNG_S)
    yield between(3, "/livez no longer answers 200 after", dead_s, (STALL_S, STALL_S + 5), " s")
    yield exactly(3, "streams ended by an error", codes(readers).count("engine_stopped"), STREAMS)
    yield exactly(3, "exit code", status, 1)


def until_not_live(server: Server) -> float:
    """When health was first other than good."""
    deadline = time.monotonic() + 2 * STALL_S
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{server.url}/livez", timeout=2).status_code != httpx.codes.OK:
                break
        except httpx.TransportError:
            break
        time.sleep(0.05)
    return time.monotonic()


def not_finite(_: Path) -> Iterator[Figure]:
    """4: the numbers of one request overflow, in a model made for that."""
    with tempfile.TemporaryDirectory() as folder:
        model = write_bomb(Path(folder, "bomb.gguf"), BOMB)
        body = {"prompt_tokens": [100, 101, BOMB, 103], "max_new_tokens": 8}
        with serving_process(model) as server, singing(server.url) as song:
            answers = [httpx.post(f"{server.url}/generate", json=body, timeout=30) for _ in range(20)]
            counted = server.samples()["tane_requests_total numerical_error"]
    ended = [answer.json()["error"]["code"] for answer in answers]
    yield exactly(4, "of 20 such requests, ended with numerical_error", ended.count("numerical_error"), 20)
    yield exactly(4, "counted as such", int(counted), 20)
    yield from of_canary(4, song)


def told_to_end(model: Path) -> Iterator[Figure]:
    """5: SIGTERM under load, with time enough."""
    with serving_process(model, "--lame-duck-s", "1") as server:
        with reading(server.url, *load(LONG)) as readers:
            server.process.send_signal(signal.SIGTERM)
            refused, ready = refused_while_it_drains(server)
        status = server.process.wait(HUNG_S)
        errors = server.lines_of("error", "critical")
    whole = [reader for reader in readers if codes([reader]) == ["length"] and tokens(reader) == LONG["max_new_tokens"]]
    yield exactly(5, f"of {STREAMS} streams, sent to their end", len(whole), STREAMS)
    yield exactly(5, "/readyz answered 503 meanwhile", ready, True)
    yield exactly(5, "new requests: 503 with Retry-After and connection: close", all(map(sends_away, refused)), True)
    yield exactly(5, "exit code", status, 0)
    yield exactly(5, "lines of errors in the log", len(errors), 0)


def sends_away(answer: httpx.Response) -> bool:
    headers = answer.headers
    is_refused = answer.status_code == httpx.codes.SERVICE_UNAVAILABLE and "retry-after" in headers
    return is_refused and headers["connection"] == "close"


def tokens(reader: Reader) -> int:
    return int(reader.terminal["usage"]["generated_tokens"])


def refused_while_it_drains(server: Server) -> tuple[list[httpx.Response], bool]:
    """What new requests hear until the socket is gone, and whether readiness was seen to go."""
    answers, is_unready = [], False
    with suppress(httpx.TransportError):
        while server.process.poll() is None:
            is_unready = is_unready or httpx.get(f"{server.url}/readyz").status_code == httpx.codes.SERVICE_UNAVAILABLE
            if is_unready:
                answers.append(httpx.post(f"{server.url}/generate", json=LONG))
            time.sleep(0.05)
    return answers, is_unready


def told_too_late(model: Path) -> Iterator[Figure]:
    """6: streams that are longer than the drain; and a second signal, which ends at once."""
    for seconds, second_after_s in ((DRAIN_S, None), (DRAIN_S, 1.0)):
        with serving_process(model, "--drain-s", str(seconds)) as server:
            with reading(server.url, *load(ENDLESS)) as readers:
                server.process.send_signal(signal.SIGTERM)
                told = time.monotonic()
                if second_after_s is not None:
                    time.sleep(second_after_s)
                    server.process.send_signal(signal.SIGTERM)
            status = server.process.wait(HUNG_S)
            took_s = time.monotonic() - told
        if second_after_s is None:
            yield between(6, f"a drain of {seconds:g} s ends after", took_s, (seconds, seconds + CLOSE_S), " s")
            ended = codes(readers).count("engine_stopped")
            yield exactly(6, f"of {STREAMS} streams, ended by an error event", ended, STREAMS)
            yield exactly(6, "exit code", status, 0)
        else:
            yield between(6, "a second signal after 1 s ends after", took_s, (1, 1 + CLOSE_S), " s")


def killed(model: Path) -> Iterator[Figure]:
    """7: kill -9, and another start."""
    with serving_process(model) as server:
        before = bits(server.url)
        with reading(server.url, *load(ENDLESS)) as readers:
            server.process.kill()
            died = time.monotonic()
        noticed_s = time.monotonic() - died
    began = time.monotonic()
    with serving_process(model) as server:
        while httpx.get(f"{server.url}/readyz").status_code != httpx.codes.OK:
            time.sleep(0.01)
        ready_s = time.monotonic() - began
        after = bits(server.url)
    broken = sum(reader.error is not None for reader in readers)
    yield exactly(7, f"of {STREAMS} streams, seen as broken", broken, STREAMS)
    yield at_most(7, "all of them within", noticed_s, 2, " s")
    yield at_most(7, "ready again after", ready_s, 10, " s")
    yield exactly(7, "the canary has the same bits", before == after, True)


def clocks(model: Path) -> Iterator[Figure]:
    """17: the time of day jumps by hours, and the process is stopped for a while."""
    command = (*BROKEN, "clock", "3", "serve")
    with serving_process(model, "--session-ttl-s", "600", command=command) as server:
        session = LONG | {"session_id": "s", "max_new_tokens": 1}
        httpx.post(f"{server.url}/generate", json=session, timeout=30)
        with singing(server.url) as song, reading(server.url, *load(LONG | {"deadline_ms": 60_000})) as readers:
            for _ in range(2):
                server.process.send_signal(signal.SIGUSR1)
                time.sleep(0.5)
            with stopped(server):
                time.sleep(PAUSE_S)
        kept = httpx.get(f"{server.url}/sessions/s").status_code
        samples, requests = server.samples(), server.events("request")
    sums = [value for name, value in samples.items() if name.endswith("_seconds_sum")]
    told = [value for line in requests for name, value in line.items() if name.endswith("_s")]
    durations = [value for value in told if value is not None]
    yield exactly(17, f"of {STREAMS} streams, sent to their end", codes(readers).count("length"), STREAMS)
    yield exactly(17, "the session is still there", kept, 200)
    yield exactly(17, "durations below 0 in metrics and log", sum(value < 0 for value in [*sums, *durations]), 0)
    yield from of_canary(17, song)


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def polled(stop: threading.Event, url: str, every_s: float, statuses: list[int]) -> None:
    """Ask this address until told to stop; 0 stands for no answer within 10 seconds."""
    while not stop.wait(every_s):
        try:
            statuses.append(httpx.get(url, timeout=10).status_code)
        except httpx.TransportError:
            statuses.append(0)
