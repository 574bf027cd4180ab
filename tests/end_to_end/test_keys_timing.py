"""What the clock tells of another key's cache: nothing; of one's own: much."""

import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from service.client import TaneClient
from service.settings import Settings
from tests.live import live_server

pytestmark = pytest.mark.slow

ROUNDS = 16
PROMPT_TOKENS = 300
LARGEST_SCORE = 3.5
"""In standard deviations; chance alone exceeds it once in two thousand runs."""


@pytest.fixture(scope="module")
def url(default_model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("alice\nbob\n", encoding="utf-8")
    with live_server(Settings(model=str(default_model_path), keys_file=str(keys))) as live:
        yield live.url


@dataclass(slots=True)
class Asked:
    """One kind of question: how long each took, and how many rows of its prompt ran."""

    seconds: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def ask(self, client: TaneClient, prompt: Sequence[int]) -> None:
        started = time.perf_counter()
        answer = client.generate(prompt_tokens=list(prompt), max_new_tokens=1, seed=1)
        self.seconds.append(time.perf_counter() - started)
        self.rows.append(answer.cache.computed_tokens)


def rank_score(left: Sequence[float], right: Sequence[float]) -> float:
    """How far the ranks of two samples are from those of one population (Mann and Whitney 1947)."""
    wins = sum((a > b) + 0.5 * (a == b) for a in left for b in right)
    pairs = len(left) * len(right)
    return (wins - pairs / 2) / math.sqrt(pairs * (len(left) + len(right) + 1) / 12)


def test_the_clock_tells_a_key_of_its_own_cache_alone(url: str) -> None:
    """Each round asks all three in an order of its own, so that whoever else uses the machine disturbs all alike."""
    draw = random.Random(4)
    prompts = [[draw.randint(100, 40_000) for _ in range(PROMPT_TOKENS)] for _ in range(2 * ROUNDS + 2)]
    kept, new = prompts[2 : ROUNDS + 2], prompts[ROUNDS + 2 :]
    own, others, unknown = Asked(), Asked(), Asked()
    with TaneClient(url, api_key="alice") as alice, TaneClient(url, api_key="bob") as bob:
        for client, prompt in ((alice, prompts[0]), (bob, prompts[1]), *((alice, each) for each in kept)):
            Asked().ask(client, prompt)
        for one, two in zip(kept, new, strict=True):
            round_of = [(own, alice, one), (others, bob, one), (unknown, bob, two)]
            for kind, client, prompt in draw.sample(round_of, len(round_of)):
                kind.ask(client, prompt)

    assert ([1] * ROUNDS, [PROMPT_TOKENS] * ROUNDS, [PROMPT_TOKENS] * ROUNDS) == (own.rows, others.rows, unknown.rows)
    assert abs(rank_score(others.seconds, unknown.seconds)) < LARGEST_SCORE
    assert rank_score(own.seconds, unknown.seconds) < -LARGEST_SCORE
