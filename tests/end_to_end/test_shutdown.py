"""`tane serve` as a process: signals, exit codes, and what a caller sees while it stops."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.tiny_model import TinyShape, write_tiny_gguf

TANE = str(Path(sys.executable).with_name("tane"))
LONG = {"prompt": "The seed", "max_new_tokens": 6000, "num_return": 4, "ignore_eos": True, "stream": True}
ENDLESS = LONG | {"max_new_tokens": 8000, "num_return": 8}
"""Long enough that no engine is done with it before the signal comes."""


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=8192))


@contextmanager
def serve_process(model_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process on a free port, and its address."""
    command = [TANE, "serve", "--model", str(model_path), "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield process, address_of(process)
    finally:
        process.kill()
        process.communicate()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"running on (http://\S+)", line):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return found[1]
    raise AssertionError("the server ended before it served")


def stream(url: str, body: dict[str, object], lines: list[str], first: threading.Event) -> None:
    with httpx.stream("POST", f"{url}/generate", json=body, timeout=60) as response:
        for line in response.iter_lines():
            lines.append(line)
            first.set()


def wait_until_draining(url: str) -> None:
    """Wait for the signal to be seen: readiness goes, and the socket stays."""
    deadline = time.monotonic() + 30
    with httpx.Client() as client:
        while client.get(f"{url}/readyz").status_code != httpx.codes.SERVICE_UNAVAILABLE:
            assert time.monotonic() < deadline, "the server stays ready"
            time.sleep(0.005)


@contextmanager
def streaming(url: str, body: dict[str, object]) -> Iterator[list[str]]:
    """The lines of a long stream, begun; whole when the block is left."""
    lines: list[str] = []
    first = threading.Event()
    reader = threading.Thread(target=stream, args=(url, body, lines, first))
    reader.start()
    assert first.wait(60)
    yield lines
    reader.join(timeout=60)
    assert not reader.is_alive()


@pytest.mark.slow
def test_sigterm_lets_a_running_stream_finish_and_refuses_new_work(model_path: Path) -> None:
    with serve_process(model_path) as (process, url):
        with streaming(url, LONG) as lines:
            process.send_signal(signal.SIGTERM)
            wait_until_draining(url)
            refused = httpx.post(f"{url}/generate", json={"prompt": "late"})
        status = process.wait(timeout=60)

    events = [line[6:] for line in lines if line.startswith("data: ")]
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    assert "retry-after" in refused.headers
    assert events[-1] == "[DONE]"
    assert {choice["finish_reason"] for choice in json.loads(events[-2])["choices"]} == {"length"}
    assert status == 0


@pytest.mark.slow
def test_sigterm_lets_streams_of_every_model_finish_and_refuses_new_work_of_each(model_path: Path) -> None:
    with serve_process(model_path, "--variant", f"small={model_path}") as (process, url):
        with streaming(url, LONG) as of_main, streaming(url, LONG | {"model": "small"}) as of_variant:
            process.send_signal(signal.SIGTERM)
            wait_until_draining(url)
            refused = [
                httpx.post(f"{url}/generate", json={"prompt": "late", "model": name}) for name in (None, "small")
            ]
        status = process.wait(timeout=60)

    assert ["draining", "draining"] == [response.json()["error"]["code"] for response in refused]
    for lines in (of_main, of_variant):
        events = [line[6:] for line in lines if line.startswith("data: ")]
        assert {choice["finish_reason"] for choice in json.loads(events[-2])["choices"]} == {"length"}
    assert status == 0


@pytest.mark.slow
def test_past_the_drain_time_streams_end_with_an_error_event(model_path: Path) -> None:
    with serve_process(model_path, "--drain-s", "0.2") as (process, url):
        with streaming(url, ENDLESS) as lines:
            process.send_signal(signal.SIGTERM)
        status = process.wait(timeout=60)

    events = [line[6:] for line in lines if line.startswith("data: ")]
    assert json.loads(events[-2])["error"]["code"] == "engine_stopped"
    assert events[-1] == "[DONE]"
    assert status == 0


@pytest.mark.slow
def test_a_second_signal_ends_at_once(model_path: Path) -> None:
    with serve_process(model_path, "--drain-s", "60") as (process, url):
        lines: list[str] = []
        first = threading.Event()
        reader = threading.Thread(target=_read_until_cut, args=(url, lines, first), daemon=True)
        reader.start()
        assert first.wait(60)
        process.send_signal(signal.SIGTERM)
        wait_until_draining(url)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=50)
        reader.join(60)

    assert not [line for line in lines if '"finish_reason":"length"' in line]


def _read_until_cut(url: str, lines: list[str], first: threading.Event) -> None:
    try:
        stream(url, ENDLESS, lines, first)
    except httpx.HTTPError:
        return


def serve_to_its_end(model_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A server process that ends by itself."""
    command = [TANE, "serve", "--log-format", "text", "--model", str(model_path), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_a_port_that_is_taken_ends_the_process_with_1(model_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = serve_to_its_end(model_path, "--port", str(taken.getsockname()[1]))

    assert ended.returncode == 1
    assert "Address already in use" in ended.stderr


def test_a_model_file_that_is_none_ends_the_process_with_one_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + b"\xff" * 60)

    ended = serve_to_its_end(path)

    assert ended.returncode == 2
    assert "broken.gguf" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_a_variant_that_is_none_ends_the_process_with_one_line_that_names_it(model_path: Path) -> None:
    ended = serve_to_its_end(model_path, "--variant", "small=gone.gguf")

    assert (2, "Error: --variant small: gone.gguf: cannot be opened: No such file or directory") == (
        ended.returncode,
        ended.stderr.strip(),
    )
