"""`tane serve` as a process of its own, for measurements from outside."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx

from tests.source_files import ROOT

TANE = (sys.executable, "-c", "from service.cli.main import main; main()")
"""What the installed command runs, with this interpreter."""
POLL_S = 0.005
LOG_BYTES = 1 << 16
"""In which the address is found."""


@dataclass(frozen=True, slots=True)
class Served:
    url: str
    process_id: int
    ready_s: float
    """From the start of the process until it said that it was ready."""

    @property
    def memory(self) -> dict[str, int]:
        """Resident bytes: together, of memory of its own, and of files."""
        fields = dict(re.findall(r"^(\w+):\s+(\d+) kB$", self._read("status"), re.MULTILINE))
        names = {"resident": "VmRSS", "own": "RssAnon", "files": "RssFile"}
        return {name: int(fields[field]) * 1024 for name, field in names.items()}

    def has_loaded(self, library: str) -> bool:
        """Whether a file with this in its path is mapped into the process."""
        return any(library in line.rpartition("/site-packages/")[2] for line in self._read("maps").splitlines())

    def _read(self, name: str) -> str:
        return Path("/proc", str(self.process_id), name).read_text(encoding="utf-8")


@contextmanager
def served(*options: str) -> Iterator[Served]:
    """A server on a free port until the block ends. Raises RuntimeError when it does not come up."""
    with tempfile.TemporaryFile() as log:
        started = time.perf_counter()
        process = subprocess.Popen(
            [*TANE, "serve", "--port", "0", *options], cwd=ROOT, stderr=log, start_new_session=True
        )
        try:
            while (url := _address(log)) is None or httpx.get(f"{url}/readyz").status_code != httpx.codes.OK:
                if process.poll() is not None:
                    raise RuntimeError("the server ended before it served")
                time.sleep(POLL_S)
            yield Served(url, process.pid, time.perf_counter() - started)
        finally:
            process.terminate()
            process.wait()


def _address(log: IO[bytes]) -> str | None:
    """Where the server runs, once it has said so. Reads without moving to where the server writes next."""
    found = re.search(rb"running on (http://\S+)", os.pread(log.fileno(), LOG_BYTES, 0))
    return found[1].decode() if found else None
