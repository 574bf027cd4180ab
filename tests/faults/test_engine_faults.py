"""Faults inside the engine fail the requests that they meet; everyone else has the same bits, and so has the next."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from model.runner import ModelRunner
from service.engine import Engine
from service.settings import Settings
from tests.hostile.canary import ask
from tests.live import Live, live_server
from tests.tiny_model import TinyShape, write_tiny_gguf

BODY = {"prompt": "The seed", "max_new_tokens": 200, "ignore_eos": True, "use_cache": False, "speculation": "off"}


class Panic(BaseException):
    """As errors of extensions may be: no Exception."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=512))
    with live_server(Settings.load({}, {"model": str(path), "kv_cache_bytes": 4 << 20})) as server:
        yield server


@contextmanager
def failing_once(kind: type, method: str, fault: BaseException, at_call: int) -> Iterator[None]:
    """One call of this method fails; steps of an engine that has nothing to do do not count."""
    whole, calls, lock = getattr(kind, method), 0, threading.Lock()

    def broken(*arguments: Any) -> Any:
        nonlocal calls
        with lock:
            calls += not getattr(arguments[0], "is_idle", False)
            fails = calls == at_call
        if fails:
            raise fault
        return whole(*arguments)

    logging.disable(logging.CRITICAL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, method, broken)
        yield
    logging.disable(logging.NOTSET)


def calm(live: Live) -> str:
    with live.client() as client:
        return ask(client, use_cache=True)


@pytest.mark.parametrize("at_call", [1, 11])
@pytest.mark.parametrize("fault", [RuntimeError(), MemoryError(), Panic(), SystemExit(), KeyboardInterrupt()])
@pytest.mark.parametrize(("kind", "method"), [(ModelRunner, "forward"), (Engine, "step")])
def test_a_fault_fails_what_it_meets_and_changes_no_later_bit(
    kind: type, method: str, fault: BaseException, at_call: int, live: Live
) -> None:
    before = calm(live)
    with failing_once(kind, method, fault, at_call):
        answer = httpx.post(f"{live.url}/generate", json=BODY, timeout=30)
    live.wait_until_idle()

    after = calm(live)

    assert (500, "engine_failed") == (answer.status_code, answer.json()["error"]["code"])
    assert before == after
    assert 0 == live.samples()["tane_kv_cache_bytes leased"]


def test_a_server_that_failed_again_and_again_still_answers_with_the_same_bits(live: Live) -> None:
    before = calm(live)
    for _ in range(4):
        with failing_once(Engine, "step", Panic(), 1):
            httpx.post(f"{live.url}/generate", json=BODY, timeout=30)

    assert before == calm(live)
