"""Standard error of `tane serve` as a process: every line is a JSON object, whatever clients send."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.tiny_model import TinyShape, write_tiny_gguf

pytestmark = pytest.mark.slow

TANE = str(Path(sys.executable).with_name("tane"))
CANARY = "canary-7f3a"
PROMPT = f"The {CANARY} lies in the ground"
LONG = {"prompt": PROMPT, "max_new_tokens": 8000, "ignore_eos": True, "stream": True, "num_return": 4}
FORGED = b'GET /livez HTTP/1.1\r\nhost: x\r\nx-request-id: a"}\n{"event":"forged"}\r\n\r\n'
NO_HTTP = b'{"event":"forged"}\r\n\r\n'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=8192))


def send_raw(url: str, payload: bytes) -> None:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(payload)
        connection.recv(4096)


def use(url: str) -> None:
    """Everything that a client may do, and some that it may not."""
    with httpx.Client(base_url=url, timeout=60) as client:
        body = {"prompt": PROMPT, "max_new_tokens": 6, "ignore_eos": True}
        client.post("/generate", json=body)
        client.post("/generate", json={**body, "stream": True})
        client.post("/generate", json={**body, "temperature": 9})
        client.get(f"/{CANARY}", params={"key": CANARY})
        client.get("/info", headers={"x-request-id": 'a"}{"event":"forged"}'})
        client.get("/info", headers={"x-request-id": "theirs-1"})
        with client.stream("POST", "/generate", json=LONG) as response:
            next(response.iter_lines())
    send_raw(url, FORGED)
    send_raw(url, NO_HTTP)


@pytest.fixture(scope="module")
def written(model: Path) -> list[str]:
    """What a server wrote, from its start to its end."""
    command = [TANE, "serve", "--model", str(model), "--port", "0", "--threads", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if '"event":"ready"' in line:
            (address,) = json.loads(line)["addresses"]
            use(f"http://{address}")
            break
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=30)
    assert 0 == process.returncode
    return [*lines, *rest.splitlines()]


@pytest.fixture(scope="module")
def lines(written: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written]


@pytest.fixture(scope="module")
def requests(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == "request"]


def test_every_line_is_an_object_with_time_level_and_event(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        assert ["ts", "level", "event"] == list(line)[:3]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["ts"])


def test_times_do_not_go_back(lines: list[dict[str, Any]]) -> None:
    times = [datetime.fromisoformat(line["ts"]) for line in lines]

    assert sorted(times) == times


def test_the_life_of_the_server_is_told_in_order(lines: list[dict[str, Any]]) -> None:
    events = [line["event"] for line in lines if line["event"] not in ("log", "request")]

    assert ["start", "loaded", "ready", "refused", "refused", "drain", "stop"] == events


def test_nothing_is_forged(lines: list[dict[str, Any]]) -> None:
    assert [] == [line for line in lines if line["event"] == "forged"]


def test_neither_prompts_nor_paths_are_told(written: list[str]) -> None:
    assert [] == [line for line in written if CANARY in line]


def test_each_request_has_one_line(requests: list[dict[str, Any]]) -> None:
    assert {1} == set(Counter(line["request_id"] for line in requests).values())
    assert Counter({("/generate", 200): 3, ("/generate", 422): 1, ("other", 404): 1, ("/info", 200): 2}) == Counter(
        (line["route"], line["status"]) for line in requests
    )


def test_whole_and_streamed_answers_have_their_counts_and_times(requests: list[dict[str, Any]]) -> None:
    ended = [line for line in requests if line["outcome"] == "length"]

    assert [(False, 6), (True, 6)] == [(line["streamed"], line["generated_tokens"]) for line in ended]
    assert all(0 < line["ttft_s"] < line["total_s"] for line in ended)
    assert 0 == ended[0]["cached_tokens"] < ended[1]["cached_tokens"] < ended[1]["prompt_tokens"]


def test_a_client_that_went_away_is_told_as_cancelled_with_its_counts(requests: list[dict[str, Any]]) -> None:
    (line,) = [line for line in requests if line["outcome"] == "cancelled"]

    assert line["streamed"]
    assert 0 < line["generated_tokens"] < 32000


def test_only_a_plain_id_of_a_client_is_told(requests: list[dict[str, Any]]) -> None:
    assert [None, "theirs-1"] == [line["client_request_id"] for line in requests if line["route"] == "/info"]


def test_a_server_that_cannot_start_says_so_in_the_same_form(tmp_path: Path) -> None:
    command = [TANE, "serve", "--model", str(tmp_path / "gone.gguf")]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    start, problem = [json.loads(line) for line in ended.stderr.splitlines()]
    assert (2, "start", "not_started") == (ended.returncode, start["event"], problem["event"])
    assert problem["message"].endswith("gone.gguf: cannot be opened: No such file or directory")
