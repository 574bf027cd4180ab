"""More requests than there is room for, and a key that asks for everything."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.settings import Settings
from tests.faults import crowds
from tests.faults.crowds import PRICE, Crowd, steadily
from tests.hostile.canary import bearer
from tests.live import Live, live_server
from tests.slow_steps import slow_steps
from tests.tiny_model import TinyShape, write_tiny_gguf

PLACES, CALLERS = 2, 8
HOG, OTHER = "hog-key", "other-key"
PAGES = 60
TURN = {"prompt_tokens": list(range(70, 270)), "max_new_tokens": 4, "session_id": "s", "seed": 1}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=2048))


@pytest.fixture(scope="module")
def crowd(model: Path) -> Iterator[Crowd]:
    settings = {"model": str(model), "kv_cache_bytes": 4 << 20, "max_queue_tokens": PLACES * PRICE}
    with slow_steps(0.002), live_server(Settings.load({}, settings)) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(crowds, "TOKEN_IDS", range(70, 270))
        yield asyncio.run(steadily(server.url, CALLERS, 0.3))


def test_who_finds_no_room_is_told_when_to_return(crowd: Crowd) -> None:
    assert crowd.refused_s
    assert 0 == crowd.without_retry


def test_everyone_is_served_whole_or_refused(crowd: Crowd) -> None:
    assert crowd.first_s
    assert [] == crowd.strange


@pytest.fixture(scope="module")
def shared(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"{HOG}\n{OTHER}")
    settings = {"model": str(model), "keys_file": str(keys), "key_cache_share": 0.5, "kv_cache_bytes": 1 << 20}
    with live_server(Settings.load({}, settings)) as server:
        yield server


def test_a_key_that_fills_its_share_takes_nothing_from_another(shared: Live) -> None:
    held = shared.service.main.engine_info.page_count // 2 * 32
    long = {"max_new_tokens": 4, "use_cache": True}

    def turn() -> httpx.Response:
        return httpx.post(f"{shared.url}/generate", json=TURN, headers=bearer(OTHER), timeout=30)

    turn()
    for start in range(70, 76):
        body = long | {"prompt_tokens": [start, *range(70, 270)] * (held // 500)}
        assert 200 == httpx.post(f"{shared.url}/generate", json=body, headers=bearer(HOG), timeout=30).status_code

    assert len(TURN["prompt_tokens"]) - 1 == turn().json()["cache"]["reused_tokens"]  # type: ignore[arg-type]
