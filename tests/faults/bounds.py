"""Faults of files and of bounds: broken models, more than memory holds, and one key that takes what it can get."""

import asyncio
import os
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.bench.served import TANE
from tests.faults.figure import Figure, at_least, at_most, exactly, of_canary
from tests.faults.lives import LONG, bits
from tests.faults.process import Server, reading, serving_process
from tests.hostile.canary import bearer, singing
from tests.hostile.wire import request
from tests.source_files import ROOT

CUTS = (0, 1, 100, 4096, 100_000, 50_000_000)
MIB = 1 << 20
HEADROOM = 512 * MIB
BODY_BYTES = 2 * MIB - 1
BODIES = 400
WAIT_S = 5.0
NEARLY = 0.96
"""Share of a bound that is held from when on everything is refused, and a little more."""
LOOKS_S = 3.0
GUARD_SHARE = 0.95
KEYS = ("hog-key", "victim-key")
SHARE = 0.5
ATTEMPTS = 200
VICTIM_TOKENS = 600


def files(model: Path) -> Iterator[Figure]:
    """16: files that were cut short; and one that is while it is served."""
    with tempfile.TemporaryDirectory() as folder:
        cut = Path(folder, "cut.gguf")
        starts = []
        for size in CUTS:
            with model.open("rb") as whole:
                cut.write_bytes(whole.read(size))
            began = time.monotonic()
            ended = subprocess.run(
                [*TANE, "serve", "--model", str(cut), "--port", "0", "--log-format", "text"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            starts.append((ended.returncode, len(ended.stderr.strip().splitlines()), time.monotonic() - began))
        yield exactly(
            16,
            f"of {len(CUTS)} cut files, refused with exit code 2",
            [code for code, _, _ in starts].count(2),
            len(CUTS),
        )
        yield at_most(16, "lines that say why", max(lines for _, lines, _ in starts), 1)
        yield at_most(
            16, "the slowest refusal, Python's start included", max(took_s for _, _, took_s in starts), 3, " s"
        )
        served = Path(shutil.copy(model, Path(folder, "served.gguf")))
        with serving_process(served) as server, singing(server.url) as song:
            time.sleep(1)
            os.truncate(served, 1000)
            time.sleep(1)
            served.unlink()
            time.sleep(1)
        yield from of_canary(16, song)


def memory(model: Path) -> Iterator[Figure]:
    """18: bodies that come to three times what is left, while the address space is bounded."""
    with serving_process(model, "--kv-cache-bytes", str(64 * MIB)) as server:
        calm = server.address_bytes
    limit = calm + HEADROOM
    options = ("--kv-cache-bytes", str(64 * MIB), "--max-connections", "4096")
    with serving_process(model, *options, limits={resource.RLIMIT_AS: limit}) as server:
        peak, over = [server.address_bytes], threading.Event()
        watcher = threading.Thread(target=watched, args=(server, peak, over))
        watcher.start()
        with singing(server.url) as song:
            heads = asyncio.run(flooded(server.url))
        over.set()
        watcher.join()
        is_alive = server.process.poll() is None
        good = httpx.post(f"{server.url}/generate", json=LONG | {"max_new_tokens": 4}, timeout=60).status_code
    refused = [head for head in heads if head.startswith(b"HTTP/1.1 503")]
    yield from nearly_full(model)
    yield exactly(18, "the process still runs", is_alive, True)
    yield at_most(18, "most of the limit that was held", max(peak) / limit, GUARD_SHARE)
    yield exactly(18, "requests beyond it are refused with 503", len(refused) > 0 and len(refused) == len(heads), True)
    yield exactly(18, "status of a request afterwards", good, 200)
    yield from of_canary(18, song, may_fail=True)


def nearly_full(model: Path) -> Iterator[Figure]:
    """18, where the bound comes down to what is held, and goes up again."""
    with serving_process(model, "--kv-cache-bytes", str(64 * MIB)) as server, reading(server.url, LONG) as (reader,):
        calm = bits(server.url)
        heard = []
        for limit in (int(server.address_bytes / NEARLY), resource.RLIM_INFINITY):
            resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
            time.sleep(LOOKS_S)
            ready = httpx.get(f"{server.url}/readyz").status_code
            answer = httpx.post(f"{server.url}/generate", json=LONG | {"max_new_tokens": 4}, timeout=60)
            heard.append((ready, answer.status_code))
        told = [line["pressure"] for line in server.events("memory")]
        same = bits(server.url) == calm
    yield exactly(18, "nearly full: /readyz and a new request", heard[0], (503, 503))
    yield exactly(18, "nearly full: the log tells", told, ["refuse", "none"])
    yield exactly(18, "nearly full: what ran before ends", reader.terminal.get("finish_reason"), "length")
    yield exactly(18, "with room again: /readyz and a new request", heard[1], (200, 200))
    yield exactly(18, "the canary has the same bits", same, True)


def watched(server: Server, peak: list[int], over: threading.Event) -> None:
    while not over.wait(0.02):
        peak.append(server.address_bytes)


async def flooded(url: str) -> list[bytes]:
    """Send bodies but for their last byte, all at once; what those hear who hear something."""
    head = request("POST", "/generate", content_type="application/json", content_length=str(BODY_BYTES + 1))
    heads = await asyncio.gather(*(unended(url, head + b" " * BODY_BYTES) for _ in range(BODIES)))
    return [each for each in heads if each]


async def unended(url: str, raw: bytes) -> bytes:
    """What comes back for this, within a time in which no body is given up."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(raw)
    try:
        return await asyncio.wait_for(reader.read(4096), WAIT_S)
    except (TimeoutError, OSError):
        return b""
    finally:
        writer.transport.abort()


def hog(model: Path) -> Iterator[Figure]:
    """19: two keys, of which each may hold half of the cache."""
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder, "keys")
        keys.write_text("\n".join(KEYS))
        options = ("--keys-file", str(keys), "--key-cache-share", str(SHARE), "--kv-cache-bytes", str(64 * MIB))
        with serving_process(model, *options) as server, singing(server.url, KEYS[1]) as song:
            first = turn(server)
            over = threading.Event()
            answers: list[int] = []
            attackers = [threading.Thread(target=attack, args=(server, over, answers, each)) for each in range(8)]
            for thread in attackers:
                thread.start()
            turns = []
            for _ in range(10):
                turns.append(turn(server))
                time.sleep(0.5)
            over.set()
            for thread in attackers:
                thread.join()
            last = turn(server)
        turns.append(last)
        strange = [status for status in answers if status not in (200, 429, 503)]
        yield exactly(19, "turns of the other key, of 11 answered", [each.status_code for each in turns].count(200), 11)
        reused = [each.json()["cache"]["reused_tokens"] for each in turns if each.status_code == 200]
        kept = first.json()["usage"]["prompt_tokens"] - 1
        yield exactly(19, "turns of its session that found all of it", sum(each >= kept for each in reused), 11)
        refused = answers.count(429) + answers.count(503)
        yield at_least(19, "requests of the first key that are refused with 429 or 503", refused, 1)
        yield exactly(19, "answers to it other than 200, 429 and 503", len(strange), 0)
        yield from of_canary(19, song)


def turn(server: Server) -> httpx.Response:
    """One turn of the other key's session, always the same."""
    body: dict[str, Any] = {"prompt_tokens": [300 + place for place in range(VICTIM_TOKENS)], "max_new_tokens": 4}
    return httpx.post(
        f"{server.url}/generate", json=body | {"session_id": "mine", "seed": 1}, headers=bearer(KEYS[1]), timeout=60
    )


def attack(server: Server, over: threading.Event, answers: list[int], number: int) -> None:
    """Ask for a good part of the share, for ever new sessions and prompts."""
    for attempt in range(ATTEMPTS):
        if over.is_set():
            return
        start = 1000 + number * 4000 + attempt * 7
        body = {"prompt_tokens": [start + place for place in range(900)], "max_new_tokens": 32}
        body |= {"session_id": f"s{number}-{attempt}"}
        try:
            answer = httpx.post(f"{server.url}/generate", json=body, headers=bearer(KEYS[0]), timeout=60)
        except httpx.TransportError:
            answers.append(0)
        else:
            answers.append(answer.status_code)
