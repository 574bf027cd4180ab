"""Faults of load: more requests than can be served, and a neighbour on the machine.

Always: who asks has connections of its own for each request, as strangers do, and does not try again.
"""

import asyncio
import itertools
import random
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.bench.neighbour import busy_core
from tests.faults.figure import Figure, at_least, at_most, exactly, of_canary, percentile
from tests.faults.lives import polled
from tests.faults.process import Server, serving_process
from tests.hostile.canary import singing
from tests.hostile.wire import post

PLACES = 12
"""Requests that the queue has room for, beside the canary's."""
PROMPT_TOKENS, NEW_TOKENS = 64, 64
TOKEN_IDS = range(300, 40_000)
SEEDS = itertools.count()
"""No request is like another, so none finds anything in the cache."""
PRICE = 32 * 5
"""Cache positions that one is priced at."""
SECONDS = 20.0
RECOVERY_S = 10.0
TIMES = (2, 4)
"""As many requests as can be served."""
REFUSED_S = 0.05


@dataclass(slots=True)
class Crowd:
    """What became of the requests that were sent."""

    refused_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    """To the first token, of those that were served."""
    tokens: int = 0
    """Of whole answers."""
    seconds: float = 0.0
    without_retry: int = 0
    """Refused without being told when to return."""
    strange: list[bytes] = field(default_factory=list)
    """Neither served nor refused."""

    @property
    def goodput(self) -> float:
        """Tokens of whole answers a second."""
        return self.tokens / self.seconds


def body(seed: int) -> bytes:
    prompt = random.Random(seed).choices(TOKEN_IDS, k=PROMPT_TOKENS)
    fields = {"prompt_tokens": prompt, "max_new_tokens": NEW_TOKENS, "seed": seed, "temperature": 1}
    return post("/generate", fields | {"ignore_eos": True, "stream": True}, connection="close")


async def ask(url: str, seed: int, crowd: Crowd) -> None:
    address, began = urlsplit(url), time.perf_counter()
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(body(seed))
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 503 " in head:
        crowd.refused_s.append(time.perf_counter() - began)
        crowd.without_retry += b"\r\nretry-after:" not in head.lower()
    else:
        received = await reader.readuntil(b"data: ")
        first_s = time.perf_counter() - began
        received += await reader.read()
        if b"[DONE]" in received and b'data: {"error"' not in received:
            crowd.first_s.append(first_s)
            crowd.tokens += NEW_TOKENS
        else:
            crowd.strange.append(received[-200:])
    writer.close()
    await writer.wait_closed()


async def steadily(url: str, places: int, seconds: float) -> Crowd:
    """So many callers who each ask again when they were answered."""
    crowd, began = Crowd(), time.perf_counter()

    async def caller() -> None:
        while time.perf_counter() - began < seconds:
            await ask(url, next(SEEDS), crowd)

    await asyncio.gather(*(caller() for _ in range(places)))
    crowd.seconds = time.perf_counter() - began
    return crowd


async def rushing(url: str, rate: float, seconds: float) -> Crowd:
    """So many requests a second, at random times, whatever became of those before."""
    crowd, began, draw = Crowd(), time.perf_counter(), random.Random(int(rate * 1000))
    tasks: list[asyncio.Task[None]] = []
    due = 0.0
    while due < seconds:
        await asyncio.sleep(max(0.0, began + due - time.perf_counter()))
        tasks.append(asyncio.create_task(ask(url, next(SEEDS), crowd)))
        due += draw.expovariate(rate)
    await asyncio.gather(*tasks)
    crowd.seconds = time.perf_counter() - began
    return crowd


def overload(model: Path) -> Iterator[Figure]:
    """12: the queue has room for a dozen; then come as many as can be served, twice and four times that."""
    with serving_process(model, "--max-queue-tokens", str((PLACES + 1) * PRICE)) as server:
        asyncio.run(steadily(server.url, PLACES, RECOVERY_S / 2))
        with singing(server.url) as song, asked_for_health(server) as statuses:
            before = asyncio.run(steadily(server.url, PLACES, RECOVERY_S))
            rate = before.goodput / NEW_TOKENS
            calm, *crowds = (asyncio.run(rushing(server.url, times * rate, SECONDS)) for times in (1, *TIMES))
            after = asyncio.run(steadily(server.url, PLACES, RECOVERY_S))
    for times, crowd in zip(TIMES, crowds, strict=True):
        yield at_least(12, f"{times} times: goodput to that of 1 time", crowd.goodput / calm.goodput, 0.9)
        yield at_most(12, f"{times} times: refused within (99 %)", percentile(crowd.refused_s, 0.99), REFUSED_S, " s")
        yield at_most(
            12,
            f"{times} times: first token (95 %) to that of 1 time",
            percentile(crowd.first_s, 0.95) / percentile(calm.first_s, 0.95),
            2,
        )
        yield exactly(12, f"{times} times: refused without Retry-After", crowd.without_retry, 0)
        yield exactly(12, f"{times} times: neither served nor refused", len(crowd.strange), 0)
    yield at_least(12, "goodput in the ten seconds after, to that before", after.goodput / before.goodput, 0.9)
    yield exactly(12, "/livez other than 200", sum(status != 200 for status in statuses), 0)
    yield from of_canary(12, song, may_fail=True)


@contextmanager
def asked_for_health(server: Server) -> Iterator[list[int]]:
    """The statuses of /livez, asked four times a second until the block ends."""
    statuses: list[int] = []
    over = threading.Event()
    thread = threading.Thread(target=polled, args=(over, f"{server.url}/livez", 0.25, statuses))
    thread.start()
    try:
        yield statuses
    finally:
        over.set()
        thread.join()


def neighbour(model: Path) -> Iterator[Figure]:
    """21: a process that never rests, beside a dozen callers."""
    with serving_process(model) as server, singing(server.url) as song, asked_for_health(server) as statuses:
        quiet = asyncio.run(steadily(server.url, PLACES, RECOVERY_S))
        with busy_core():
            busy = asyncio.run(steadily(server.url, PLACES, SECONDS))
    yield exactly(21, "requests that did not end well", len(busy.strange) + len(busy.refused_s), 0)
    yield exactly(21, "/livez other than 200", sum(status != 200 for status in statuses), 0)
    yield at_least(21, "goodput to that without", busy.goodput / quiet.goodput, 0.4)
    yield at_most(21, "median time to the first token", statistics.median(busy.first_s), 5, " s")
    yield from of_canary(21, song)
