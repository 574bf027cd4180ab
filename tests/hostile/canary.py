"""A caller with a seed, who asks the same again and again, and whose bits must never change."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

REQUEST = {
    "prompt": "The seed lies in the ground and waits",
    "seed": 7,
    "temperature": 1,
    "top_p": 1,
    "max_new_tokens": 16,
    "ignore_eos": True,
    "logprobs": {"top": 3, "of": "sampled"},
}
BITS = ("text", "token_ids", "logprobs")
PAUSE_S = 0.01
TIMEOUT_S = 30.0


@dataclass(slots=True)
class Song:
    """What the canary heard: each different answer or failure with how often it came, and each time in seconds."""

    calm: str
    heard: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    @property
    def is_unchanged(self) -> bool:
        """Whether it was answered, and always with the bits of a calm server."""
        return [self.calm] == list(self.heard)

    @property
    def slowest_percent_s(self) -> float:
        """The time that one answer in a hundred took, or more."""
        return sorted(self.seconds)[len(self.seconds) * 99 // 100]


@contextmanager
def singing(url: str, *, api_key: str | None = None) -> Iterator[Song]:
    """Ask until the block ends, on one connection, with the cache and without it in turn."""
    over = threading.Event()
    headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S) as client:
        song = Song(ask(client, use_cache=False))
        singer = threading.Thread(target=_sing, args=(client, song, over), daemon=True)
        singer.start()
        try:
            yield song
        finally:
            over.set()
            singer.join(2 * TIMEOUT_S)
            assert not singer.is_alive(), "the canary is not answered"


def ask(client: httpx.Client, *, use_cache: bool) -> str:
    """The bits of an answer, or what came instead of one."""
    try:
        answer = client.post("/generate", json=REQUEST | {"use_cache": use_cache})
    except httpx.TransportError as error:
        return repr(error)
    if answer.is_error:
        return answer.text
    return json.dumps({name: answer.json()[name] for name in BITS})


def _sing(client: httpx.Client, song: Song, over: threading.Event) -> None:
    turns = 0
    while not over.is_set() or not turns:
        started = time.perf_counter()
        bits = ask(client, use_cache=turns % 2 == 0)
        song.seconds.append(time.perf_counter() - started)
        song.heard[bits] = song.heard.get(bits, 0) + 1
        turns += 1
        over.wait(PAUSE_S)
