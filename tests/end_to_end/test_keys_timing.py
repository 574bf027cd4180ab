"""What the clock tells of another key's cache: nothing; of one's own: much."""

import math
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from service.client import TaneClient
from service.settings import Settings
from tests.live import live_server

pytestmark = pytest.mark.slow

PAIRS = 16
PROMPT_TOKENS = 300
LARGEST_SCORE = 3.5
"""In standard deviations; chance alone exceeds it once in two thousand runs."""


@pytest.fixture(scope="module")
def url(default_model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("alice\nbob\n", encoding="utf-8")
    with live_server(Settings(model=str(default_model_path), keys_file=str(keys))) as live:
        yield live.url


def seconds_for(client: TaneClient, prompt: Sequence[int]) -> float:
    started = time.perf_counter()
    client.generate(prompt_tokens=list(prompt), max_new_tokens=1, seed=1)
    return time.perf_counter() - started


def rank_score(left: Sequence[float], right: Sequence[float]) -> float:
    """How far the ranks of two samples are from those of one population (Mann and Whitney 1947)."""
    wins = sum((a > b) + 0.5 * (a == b) for a in left for b in right)
    pairs = len(left) * len(right)
    return (wins - pairs / 2) / math.sqrt(pairs * (len(left) + len(right) + 1) / 12)


def test_the_clock_tells_a_key_of_its_own_cache_alone(url: str) -> None:
    draw = random.Random(4)
    prompts = [[draw.randint(100, 40_000) for _ in range(PROMPT_TOKENS)] for _ in range(2 * PAIRS + 2)]
    kept, new = prompts[2 : PAIRS + 2], prompts[PAIRS + 2 :]
    with TaneClient(url, api_key="alice") as alice, TaneClient(url, api_key="bob") as bob:
        for client, prompt in ((alice, prompts[0]), (bob, prompts[1])):
            seconds_for(client, prompt)
        for prompt in kept:
            seconds_for(alice, prompt)
        others = [(seconds_for(bob, one), seconds_for(bob, two)) for one, two in zip(kept, new, strict=True)]
        own = [seconds_for(alice, prompt) for prompt in kept]

    of_kept, of_new = zip(*others, strict=True)
    assert abs(rank_score(of_kept, of_new)) < LARGEST_SCORE
    assert rank_score(own, of_new) < -LARGEST_SCORE
