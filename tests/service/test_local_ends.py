"""How a model in process ends: closed, forgotten, with its process, and in one that was forked off."""

import gc
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from service.local import Tane, TaneError
from service.runtime import Runtime
from tests.source_files import ROOT
from tests.tiny_model import TinyShape, write_tiny_gguf

LONG: dict[str, Any] = {"max_new_tokens": 4000, "num_return": 4, "ignore_eos": True, "seed": 3}
"""Longer than any test waits."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = TinyShape(context=8192)
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=shape, format="Q8_0")


def test_closing_ends_what_runs_and_every_later_call(model: Path) -> None:
    tane = Tane(model, kv_cache_bytes=16 << 20, threads=1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(tane.generate, "The seed", **LONG)
        events = tane.stream("The seed", **LONG)
        next(events)
        tane.close()
        ended = running.exception()

    assert isinstance(ended, TaneError)
    assert ended.code in ("engine_stopped", "closed")
    with pytest.raises(TaneError, match="closed"):
        next(events)
    with pytest.raises(TaneError, match="closed"):
        tane.generate("The seed")
    events.close()
    tane.close()


def test_one_that_is_forgotten_leaves_no_thread(model: Path) -> None:
    before = set(threading.enumerate())
    tane = Tane(model, kv_cache_bytes=1 << 20, threads=1)
    threads = set(threading.enumerate()) - before
    assert {"tane", "engine"} <= {thread.name for thread in threads}

    del tane
    gc.collect()

    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


def test_one_that_is_closed_lets_go_of_its_engine(model: Path) -> None:
    tane = Tane(model, kv_cache_bytes=1 << 20, threads=1)
    (served,) = tane._service.models.values()
    assert isinstance(served.runtime, Runtime)
    engine = weakref.ref(served.runtime._engine)
    del served

    tane.close()
    gc.collect()

    assert engine() is None
    with pytest.raises(TaneError, match="closed"):
        tane.tokenize("The seed")


FORGETFUL = """
import sys
from service.local import Tane
tane = Tane(sys.argv[1], kv_cache_bytes=16 << 20, threads=1)
events = tane.stream("The seed", max_new_tokens=4000, num_return=4, ignore_eos=True)
next(events)
print("leaves")
"""


def test_a_process_that_closes_nothing_ends_quietly(model: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-c", FORGETFUL, str(model)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (0, "leaves\n", "") == (ended.returncode, ended.stdout, ended.stderr)


FORKING = """
import os, signal, sys
from service.local import Tane, TaneError
with Tane(sys.argv[1], kv_cache_bytes=16 << 20, threads=1) as tane:
    child = os.fork()
    if not child:
        signal.alarm(30)
        try:
            tane.generate("The seed", max_new_tokens=1)
        except TaneError as error:
            print(error.message, flush=True)
        sys.exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(tane.generate("The seed", max_new_tokens=1, ignore_eos=True)["usage"]["generated_tokens"])
"""


def test_a_process_that_is_forked_off_is_refused_and_ends(model: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKING, str(model)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )

    refused = "a Tane answers in the process that made it, not in one forked off later"
    assert [refused, "3", "1"] == ended.stdout.splitlines()
