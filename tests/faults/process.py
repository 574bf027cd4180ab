"""A server as a process, for faults that end it or hold it up."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.bench.served import TANE
from tests.source_files import ROOT

BROKEN = (sys.executable, "-m", "tests.faults.broken_server")


@dataclass(slots=True)
class Server:
    process: subprocess.Popen[str]
    url: str
    log: list[str]


@contextmanager
def serving_process(model: Path, *options: str, command: Sequence[str] = (*TANE, "serve")) -> Iterator[Server]:
    """A server on a free port, killed when the block is left."""
    process = subprocess.Popen(
        [*command, "--model", str(model), "--port", "0", "--log-format", "json", *options],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    log: list[str] = []
    try:
        url = _address(process, log)
        assert process.stderr is not None
        rest = threading.Thread(target=log.extend, args=(process.stderr,), daemon=True)
        rest.start()
        yield Server(process, url, log)
        process.kill()
        rest.join(10)
    finally:
        process.kill()
        process.communicate()


def _address(process: subprocess.Popen[str], log: list[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        log.append(line)
        if found := re.search(r"running on (http://[^\s\"]+)", line):
            return found[1]
    raise AssertionError("the server ended before it served: " + "".join(log))


@dataclass(slots=True)
class Reader:
    """Reads one stream in a thread of its own."""

    url: str
    body: dict[str, Any]
    events: list[str] = field(default_factory=list)
    first: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    """Why the stream broke off, if it did."""

    def run(self) -> None:
        try:
            with httpx.stream("POST", f"{self.url}/generate", json=self.body, timeout=60) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data: "):
                        self.events.append(line.removeprefix("data: "))
                        self.first.set()
        except httpx.TransportError as error:
            self.error = error


@contextmanager
def reading(url: str, *bodies: dict[str, Any]) -> Iterator[list[Reader]]:
    """Streams that have begun; they are over when the block is left."""
    readers = [Reader(url, body | {"stream": True}) for body in bodies]
    threads = [threading.Thread(target=reader.run, daemon=True) for reader in readers]
    for thread in threads:
        thread.start()
    for reader in readers:
        assert reader.first.wait(30), "a stream does not begin"
    yield readers
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a stream hangs"
