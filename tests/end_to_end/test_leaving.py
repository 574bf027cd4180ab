"""Clients that go away while their prompt is read, or before it is: nothing is computed for them any longer.

Every step of the server takes some milliseconds and one row of a prompt, so that there is time to go away in between.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from service.settings import Settings
from service.step_budget import StepBudget
from tests.live import Live, live_server
from tests.slow_steps import slow_steps
from tests.tiny_model import TinyShape, write_tiny_gguf

LENGTH = 1000
STEP_S = 0.004
Ask = Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]
ASKS: dict[str, Ask] = {
    "generate": lambda more: ("/generate", {"prompt_tokens": [70] * LENGTH, **more}),
    "completions": lambda more: ("/v1/completions", {"prompt": [70] * LENGTH, **more}),
    "chat": lambda more: ("/v1/chat/completions", {"messages": [{"role": "user", "content": "F" * LENGTH}], **more}),
}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=2048))
    with slow_steps(STEP_S), pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepBudget, "prefill_rows", lambda budget, decode_rows: 1)
        with live_server(Settings.load({}, {"model": str(path), "kv_cache_bytes": 1 << 20})) as server:
            yield server


@contextmanager
def asking(live: Live, path: str, body: dict[str, Any]) -> Iterator[None]:
    """A request that is sent, and whose connection is closed when the block ends, whatever was answered."""
    address = urlsplit(live.url)
    connection = HTTPConnection(address.hostname or "", address.port or 0)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    try:
        yield
    finally:
        connection.close()


def wait_for(live: Live, state: str, count: int) -> None:
    deadline = time.monotonic() + 20
    while live.samples()[f"tane_active_requests {state}"] != count:
        assert time.monotonic() < deadline, f"there are never {count} requests {state}"
        time.sleep(0.005)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_a_client_that_goes_away_while_its_prompt_is_read_frees_its_pages(ask: Ask, stream: bool, live: Live) -> None:
    """Its thousand rows would take seconds: a few of them ran, and no token was made."""
    before = live.samples()

    with asking(live, *ask({"stream": stream, "use_cache": False})):
        wait_for(live, "running", 1)
    live.wait_until_idle()

    after = live.samples()
    assert after["tane_engine_rows_total prefill"] - before["tane_engine_rows_total prefill"] < LENGTH
    assert after["tane_generated_tokens_total"] == before["tane_generated_tokens_total"]
    assert after["tane_kv_cache_bytes leased"] == 0
    assert after["tane_requests_total cancelled"] == before["tane_requests_total cancelled"] + 1


def test_a_client_that_goes_away_while_it_waits_leaves_the_queue(live: Live) -> None:
    """There are pages for one of the two."""
    pages = live.service.main.engine_info.page_count
    large = {"use_cache": False, "max_new_tokens": 200, "num_return": (pages // 2 - LENGTH // 32) // 8 + 1}

    with asking(live, *ASKS["generate"](large)):
        wait_for(live, "running", 1)
        with asking(live, *ASKS["generate"](large)):
            wait_for(live, "queued", 1)
        wait_for(live, "queued", 0)
        still_running = live.samples()["tane_active_requests running"]
    live.wait_until_idle()

    assert 1 == still_running
    assert 0 == live.samples()["tane_kv_cache_bytes leased"]
