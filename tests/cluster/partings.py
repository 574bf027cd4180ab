"""What becomes of streams when a replica is lost, when one leaves in good order, and when a reader goes.

Knows servers by their address and replicas by their names; knows nothing of Ray. Always: every text after a loss is
compared with that of a calm run.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import httpx

from service.affinity import HEADER, Caller
from service.client import AsyncClient
from tests.cluster.streams import Stream, all_begun, streams
from tests.cluster.witness import Witness

SILENCE_S = 120.0
SHORT_TOKENS = 4
BETWEEN_SHORT_S = 0.05
CANCELLED = 'outcome="cancelled"'


class Replicas(Protocol):
    """What can be done to replicas."""

    @property
    def url(self) -> str: ...

    @property
    def api_key(self) -> str: ...

    def kill(self, replica: str) -> None:
        """End its process at once."""

    def wait_until_replaced(self, replica: str) -> float:
        """Seconds until another answers in its place."""


@dataclass(frozen=True, slots=True)
class Failover:
    """What became of requests while a replica was lost."""

    streams: int
    had_begun: int
    """Streams that ran when it was lost."""
    broken: int
    """Streams that it had."""
    as_calm: int
    """Streams that ended with exactly the text of a calm run."""
    short: int
    """Short requests that arrived then and afterwards."""
    lost: Sequence[str]
    """The errors of requests that got no answer."""
    failed_attempts: Mapping[str, int]
    longest_gap_s: float
    """In which a stream brought nothing."""
    replaced_s: float
    """From the loss until as many replicas answered as before."""

    @property
    def holds(self) -> bool:
        return not self.lost and self.broken > 0 and self.streams == self.had_begun == self.as_calm


@dataclass(frozen=True, slots=True)
class Leaving:
    """What became of streams while a replica left."""

    streams: int
    had_begun: int
    whole: int
    """Streams that ended at the first attempt."""

    @property
    def holds(self) -> bool:
        return self.streams == self.had_begun == self.whole


async def lose(replicas: Replicas, *, count: int, tokens: int, seed: int) -> Failover:
    """Lose the replica that has most of `count` streams, once all have begun; short requests go on coming."""
    url, api_key = replicas.url, replicas.api_key
    calm, streamed = (streams(count, tokens, api_key, seed) for _ in range(2))
    short = streams(2 * count, SHORT_TOKENS, api_key, seed + 1)
    async with AsyncClient(url, api_key, timeout=SILENCE_S) as client:
        await asyncio.gather(*(each.read(client) for each in calm))
    witness = Witness()
    async with AsyncClient(url, api_key, timeout=SILENCE_S, transport=witness) as client:
        readers = [asyncio.create_task(each.read(client)) for each in streamed]
        begun = await all_begun(streamed)
        (lost, broken), *_ = Counter(witness.answered_by(each.affinity) or "" for each in streamed).most_common()
        await asyncio.to_thread(replicas.kill, lost)
        replaced = asyncio.create_task(asyncio.to_thread(replicas.wait_until_replaced, lost))
        late = (each.read(client, after_s=BETWEEN_SHORT_S * number) for number, each in enumerate(short))
        await asyncio.gather(*readers, *late)
    return Failover(
        streams=count,
        had_begun=begun,
        broken=broken,
        as_calm=sum(mine.is_whole and mine.text == each.text for mine, each in zip(streamed, calm, strict=True)),
        short=len(short),
        lost=_errors([*calm, *streamed, *short]),
        failed_attempts=dict(Counter(str(each) for each in witness.failed)),
        longest_gap_s=max(each.longest_gap_s for each in streamed),
        replaced_s=await replaced,
    )


async def leave(url: str, api_key: str, shrink: Callable[[], None], *, count: int, tokens: int, seed: int) -> Leaving:
    """Take a replica away once all streams have begun. Their readers try once."""
    streamed = streams(count, tokens, api_key, seed)
    async with AsyncClient(url, api_key, timeout=SILENCE_S, attempts=1) as client:
        readers = [asyncio.create_task(each.read(client)) for each in streamed]
        begun = await all_begun(streamed)
        await asyncio.to_thread(shrink)
        await asyncio.gather(*readers)
    return Leaving(count, begun, sum(each.is_whole for each in streamed))


def _errors(every: Sequence[Stream]) -> list[str]:
    return [each.error or "no answer" for each in every if not each.is_whole]


def is_heard_to_go(url: str, api_key: str) -> bool:
    """Whether the engine of a stream learns that its reader has gone."""
    headers = {**Caller(api_key).headers, HEADER: "goes"}
    body = {"prompt": "The seed", "max_new_tokens": 4000, "ignore_eos": True, "stream": True}
    with httpx.Client(base_url=url, headers=headers, timeout=SILENCE_S) as client:
        before = _cancelled(client)
        with client.stream("POST", "/generate", json=body) as answer:
            next(answer.iter_bytes())
        for _ in range(100):
            if _cancelled(client) == before + 1:
                return True
            time.sleep(0.05)
    return False


def _cancelled(client: httpx.Client) -> float:
    lines = client.get("/metrics").text.splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith("tane_requests_total{") and CANCELLED in line
    )
