"""The hostile bench: `python -m tests.hostile [OUT.json] [OPTIONS OF tane serve]` measures a server from outside.

Every input once, then many slow clients with the server's own deadlines, each beside a canary.
"""

import json
import selectors
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench.served import Served, served
from tests.hostile.assault import assault
from tests.hostile.canary import Song, singing
from tests.hostile.test_slow_clients import BODY, HEAD
from tests.hostile.wire import connected

SLOW_CLIENTS = 500
CALM_S = 5.0
WARMING = 3
"""Times that all is sent before the memory is looked at: it grows until the cache was once full."""
MOST_GROWTH = 2 << 20
KEY = "key-of-the-hostile-bench"
DEADLINES: dict[str, tuple[bytes, float]] = {"heads": (HEAD, 12.0), "bodies": (BODY, 32.0)}
"""What they send, and when all must have been ended: the server's deadline and two looks."""


def calm(url: str) -> float:
    with singing(url) as song:
        time.sleep(CALM_S)
    return song.slowest_percent_s


def figures_of(song: Song) -> dict[str, Any]:
    return {
        "canary_answers": len(song.seconds),
        "canary_unchanged": song.is_unchanged,
        "canary_p99_s": round(song.slowest_percent_s, 4),
    }


def slow_clients(url: str, beginning: bytes) -> dict[str, Any]:
    """Clients that never end what they began: how long the last was held."""
    with singing(url) as song, ExitStack() as open_ones, selectors.DefaultSelector() as waiting:
        started = time.monotonic()
        for _ in range(SLOW_CLIENTS):
            connection = open_ones.enter_context(connected(url))
            connection.sendall(beginning)
            waiting.register(connection, selectors.EVENT_READ)
        refused = 0
        while waiting.get_map():
            for key, _ in waiting.select():
                refused += key.fileobj.recv(4096).startswith(b"HTTP/1.1 408")  # type: ignore[union-attr]
                waiting.unregister(key.fileobj)
        last_s = time.monotonic() - started
    return {"clients": SLOW_CLIENTS, "answered_408": refused, "last_s": round(last_s, 1), **figures_of(song)}


def measure(server: Served) -> dict[str, Any]:
    calm_s = calm(server.url)
    for _ in range(WARMING):
        assault(server.url)
    before = server.memory["own"]
    report = assault(server.url)
    grown = server.memory["own"] - before
    return {
        "inputs": len(report.answers),
        "passed": len(report.answers) - len(report.problems),
        "problems": report.problems,
        "answered_5xx": report.faults,
        "memory_growth_bytes": grown,
        "calm_canary_p99_s": round(calm_s, 4),
        **figures_of(report.song),
        "slow_clients": {name: slow_clients(server.url, raw) for name, (raw, _) in DEADLINES.items()},
    }


def figures_with_keys(server: Served) -> dict[str, Any]:
    report = assault(server.url, KEY)
    return {
        "inputs": len(report.answers),
        "problems": report.problems,
        "answered_5xx": report.faults,
        **figures_of(report.song),
    }


def holds(figures: dict[str, Any]) -> bool:
    """Whether all is as it should be."""
    slow = figures["slow_clients"]
    return (
        not figures["problems"]
        and not figures["answered_5xx"]
        and figures["canary_unchanged"]
        and not figures["with_keys"]["problems"]
        and not figures["with_keys"]["answered_5xx"]
        and figures["with_keys"]["canary_unchanged"]
        and figures["memory_growth_bytes"] <= MOST_GROWTH
        and all(each["canary_unchanged"] and each["answered_408"] == SLOW_CLIENTS for each in slow.values())
        and all(slow[name]["last_s"] <= most_s for name, (_, most_s) in DEADLINES.items())
    )


def main() -> int:
    arguments = sys.argv[1:]
    out = Path(arguments.pop(0)) if arguments and not arguments[0].startswith("-") else None
    with served(*arguments) as server:
        figures = measure(server)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "keys").write_text(KEY)
        with served(*arguments, "--keys-file", str(Path(folder, "keys"))) as server:
            figures["with_keys"] = figures_with_keys(server)
    text = json.dumps(figures, indent=2) + "\n"
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, encoding="utf-8")
    return 0 if holds(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
