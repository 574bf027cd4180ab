"""What an answer held is free as soon as it was sent, and waits for no collection of cycles: answers can be large."""

import gc
import time
from collections.abc import Iterator

import httpx
import pytest

from service.request import Finished
from tests.live import Live

BODY = {"prompt_tokens": [5, 6, 7], "max_new_tokens": 8, "ignore_eos": True, "seed": 1}


@pytest.fixture
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def answers_held() -> int:
    return sum(type(each) is Finished for each in gc.get_objects())


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_was_sent_is_held_by_nothing(live: Live, stream: bool) -> None:
    before = answers_held()

    httpx.post(f"{live.url}/generate", json=BODY | {"stream": stream}).raise_for_status()
    live.wait_until_idle()
    deadline = time.monotonic() + 30
    while answers_held() > before and time.monotonic() < deadline:
        time.sleep(0.05)

    assert before == answers_held()
