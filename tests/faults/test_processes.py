"""A server that hangs, is stopped for a while, is killed, or is told to end."""

import json
import resource
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults.process import BROKEN, reading, serving_process
from tests.hostile.canary import ask
from tests.hostile.wire import connected
from tests.tiny_model import TinyShape, write_tiny_gguf

STALL_S = 3.0
PAUSE_S = 5.0
LAME_DUCK_S = 2.0
LONG: dict[str, Any] = {"prompt": "The seed", "max_new_tokens": 8000, "num_return": 4, "ignore_eos": True, "seed": 3}
SHORT = LONG | {"max_new_tokens": 2000}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=8192))


def bits(url: str) -> str:
    with httpx.Client(base_url=url, timeout=30) as client:
        return ask(client, use_cache=True)


@pytest.mark.slow
def test_an_engine_that_hangs_fails_its_streams_and_ends_the_process_with_1(model: Path) -> None:
    with serving_process(model, command=(*BROKEN, "hang", str(STALL_S), "serve")) as server:
        with reading(server.url, LONG, LONG) as readers:
            server.process.send_signal(signal.SIGUSR1)
            broken = time.monotonic()
        status = server.process.wait(60)
        took_s = time.monotonic() - broken

    assert [None, None] == [reader.error for reader in readers]
    assert ["[DONE]"] * 2 == [reader.events[-1] for reader in readers]
    assert ["engine_stopped"] * 2 == [json.loads(reader.events[-2])["error"]["code"] for reader in readers]
    assert 1 == status
    assert STALL_S <= took_s < STALL_S + 30


@pytest.mark.slow
def test_where_a_lost_engine_stands_is_in_the_log(model: Path) -> None:
    with serving_process(model, command=(*BROKEN, "hang", str(STALL_S), "serve")) as server:
        with reading(server.url, LONG):
            server.process.send_signal(signal.SIGUSR1)
        server.process.wait(60)

    lines = [json.loads(line) for line in server.log]
    (lost,) = [line for line in lines if line["event"] == "engine_lost"]
    assert "hanging" in lost["stack"]
    assert {"exit_code": 1}.items() <= lines[-1].items()


@pytest.mark.slow
def test_a_process_that_was_stopped_for_a_while_goes_on_with_the_same_bits(model: Path) -> None:
    """Longer than a step may take: the clock has moved on, and the engine is not lost."""
    with serving_process(model, command=(*BROKEN, "hang", str(STALL_S), "serve")) as server:
        calm = bits(server.url)
        with reading(server.url, SHORT) as (undisturbed,):
            pass
        with reading(server.url, SHORT) as (reader,):
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(PAUSE_S)
            server.process.send_signal(signal.SIGCONT)
        after = bits(server.url)

    assert choices_of(undisturbed.events) == choices_of(reader.events)
    assert calm == after


def choices_of(events: list[str]) -> list[tuple[str, list[int]]]:
    return [(choice["text"], choice["token_ids"]) for choice in json.loads(events[-2])["choices"]]


@pytest.mark.slow
def test_a_server_that_was_killed_says_the_same_when_it_is_back(model: Path) -> None:
    with serving_process(model) as server:
        before = bits(server.url)
        with reading(server.url, LONG) as (reader,):
            server.process.kill()
    with serving_process(model) as server:
        after = bits(server.url)

    assert reader.error is not None
    assert before == after


@pytest.mark.slow
def test_with_a_lame_duck_time_readiness_is_seen_to_go_though_nothing_runs(model: Path) -> None:
    with serving_process(model, "--lame-duck-s", str(LAME_DUCK_S)) as server:
        server.process.send_signal(signal.SIGTERM)
        told = time.monotonic()
        while (ready := httpx.get(f"{server.url}/readyz")).status_code == httpx.codes.OK:
            time.sleep(0.005)
        status = server.process.wait(60)
        took_s = time.monotonic() - told

    assert (503, "draining") == (ready.status_code, ready.json()["error"]["code"])
    assert 0 == status
    assert LAME_DUCK_S <= took_s < LAME_DUCK_S + 30


@pytest.mark.slow
def test_under_load_sigterm_lets_every_stream_finish(model: Path) -> None:
    with serving_process(model) as server:
        with reading(server.url, *[SHORT | {"seed": seed} for seed in range(8)]) as readers:
            server.process.send_signal(signal.SIGTERM)
        status = server.process.wait(60)

    reasons = {choice["finish_reason"] for reader in readers for choice in json.loads(reader.events[-2])["choices"]}
    assert ({"length"}, 0) == (reasons, status)


@pytest.mark.slow
def test_a_rush_of_connections_never_takes_the_descriptors_that_are_kept(model: Path) -> None:
    limits = {resource.RLIMIT_NOFILE: 600}
    with serving_process(model, limits=limits) as server, ExitStack() as open_ones:
        before = bits(server.url)
        for _ in range(1500):
            open_ones.enter_context(connected(server.url))
        open_ones.close()
        after = bits(server.url)
        errors = server.lines_of("error", "critical")

    assert before == after
    assert [] == errors
