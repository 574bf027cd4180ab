"""A server as a process, for faults that end it or hold it up."""

import json
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.bench.served import TANE
from tests.hostile.canary import bearer
from tests.source_files import ROOT

BROKEN = (sys.executable, "-m", "tests.faults.broken_server")


@dataclass(slots=True)
class Server:
    process: subprocess.Popen[str]
    url: str
    log: list[str]

    @property
    def files(self) -> int:
        """How many descriptors it holds."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @property
    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    @property
    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    @property
    def address_bytes(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[0]) * resource.getpagesize()

    def events(self, name: str) -> list[dict[str, Any]]:
        """The lines of its log that have this name."""
        return [line for line in map(json.loads, self.log) if line["event"] == name]

    def lines_of(self, *levels: str) -> list[dict[str, Any]]:
        """The lines of its log at these levels."""
        return [line for line in map(json.loads, self.log) if line["level"] in levels]

    def samples(self, key: str | None = None) -> dict[str, float]:
        """Every sample of /metrics by its name, followed by its labels' values but for the model."""
        text = httpx.get(f"{self.url}/metrics", headers=bearer(key), timeout=30).text
        return {
            " ".join((each.name, *(value for label, value in each.labels.items() if label != "model"))): each.value
            for family in text_string_to_metric_families(text)
            for each in family.samples
        }

    def wait_until_idle(self, key: str | None = None) -> None:
        for _ in range(2000):
            samples = self.samples(key)
            if samples["tane_active_requests running"] + samples["tane_active_requests queued"] == 0:
                return
            time.sleep(0.01)
        raise AssertionError("the server does not come to rest")


@contextmanager
def serving_process(
    model: Path,
    *options: str,
    command: Sequence[str] = (*TANE, "serve"),
    limits: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[Server]:
    """A server on a free port, killed when the block is left. `limits` are resources and what it may have of them."""
    process = subprocess.Popen(
        [*command, "--model", str(model), "--port", "0", "--log-format", "json", *options],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    for kind, most in limits.items():
        resource.prlimit(process.pid, kind, (most, most))
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
    key: str | None = None

    @property
    def terminal(self) -> dict[str, Any]:
        """The event before `[DONE]`; empty where the stream did not come to that."""
        event: dict[str, Any] = json.loads(self.events[-2]) if self.is_whole else {}
        return event

    @property
    def is_whole(self) -> bool:
        """Whether the stream ended as streams must, with a text or with an error."""
        return self.error is None and self.events[-1:] == ["[DONE]"]

    def run(self) -> None:
        try:
            with httpx.stream(
                "POST", f"{self.url}/generate", json=self.body, headers=bearer(self.key), timeout=60
            ) as answer:
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
