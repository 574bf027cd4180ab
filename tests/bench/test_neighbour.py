"""The table says what share of the speed is kept, and a busy process is gone when its block ends."""

import subprocess
from typing import Any

import pytest

from tests.bench import neighbour


def test_the_table_tells_the_share_that_is_kept() -> None:
    work = {"name": "a token", "quiet_ms": 4.0, "taken_ms": 8.0}

    table = neighbour.table({"works": [work], "threads": 2, "rounds": 5, "command": "command"})

    assert "| a token | 4.00 | 8.00 | 50% | 45% |" in table


def test_the_busy_process_ends_with_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour, "SETTLING_S", 0)
    started: list[subprocess.Popen[Any]] = []
    start = subprocess.Popen

    def remembered(*given: Any) -> subprocess.Popen[Any]:
        started.append(start(*given))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", remembered)

    with neighbour.busy_core():
        assert None is started[0].poll()

    assert started[0].poll() is not None
