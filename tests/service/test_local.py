"""A model in process: its calls, its errors, and what ends them. Its bits and its end are tested apart."""

import asyncio
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.loading.checkpoint import ModelFileError
from service.local import OF_A_SERVER, InvalidValue, Tane, TaneError
from service.request import GenerationRequest
from service.runtime import Runtime
from service.settings import Settings
from service.ticket import Ticket
from tests.source_files import ROOT
from tests.tiny_model import TinyShape, write_tiny_gguf

PAGE = (ROOT / "docs/python.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## In process\n") :]
LONG: dict[str, Any] = {"max_new_tokens": 4000, "num_return": 4, "ignore_eos": True, "seed": 3}
"""Longer than any test waits."""
MESSAGES = [{"role": "user", "content": "The seed?"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = TinyShape(context=8192)
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=shape, format="Q8_0")


@pytest.fixture(scope="module")
def tane(model: Path) -> Iterator[Tane]:
    with Tane(model, kv_cache_bytes=16 << 20, threads=1) as tane:
        yield tane


def outcomes(tane: Tane, outcome: str) -> float:
    """How many requests ended so."""
    text = tane._service.metrics.render().decode()
    return float(re.findall(rf'tane_requests_total{{.*outcome="{outcome}".*}} (\S+)', text)[0])


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(3000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to hold")


def wait_for_cancelled(tane: Tane, count: float) -> None:
    wait_until(lambda: outcomes(tane, "cancelled") == count)


def test_five_lines_are_enough() -> None:
    code = re.findall(r"```python\n(.*?)```", SECTION, flags=re.DOTALL)[0]

    assert 5 == len([line for line in code.splitlines() if line])


def test_a_chat_is_a_request_with_messages(tane: Tane) -> None:
    fields: dict[str, Any] = {"seed": 1, "max_new_tokens": 4}

    assert tane.generate(messages=MESSAGES, **fields)["text"] == tane.chat(MESSAGES, **fields)["text"]


def test_a_stream_ends_with_the_whole_answer(tane: Tane) -> None:
    *deltas, whole = tane.stream("The seed", seed=1, max_new_tokens=20)

    assert whole["text"] == "".join(delta["text"] for delta in deltas)
    assert tane.generate("The seed", seed=1, max_new_tokens=20)["token_ids"] == whole["token_ids"]


def test_logits_are_of_the_last_position_unless_all_are_wanted(tane: Tane) -> None:
    ids = tane.tokenize("The seed lies in the ground")

    every = tane.logits(prompt_tokens=np.array(ids), all_positions=True)

    assert (len(ids), 320) == every.shape
    np.testing.assert_array_equal(every[-1], tane.logits("The seed lies in the ground"))


def test_the_likeliest_token_of_the_logits_is_the_greedy_one(tane: Tane) -> None:
    answer = tane.generate(messages=MESSAGES, temperature=0, max_new_tokens=1, ignore_eos=True)

    assert answer["token_ids"] == [int(tane.logits(messages=MESSAGES).argmax())]


def test_text_becomes_tokens_and_tokens_text(tane: Tane) -> None:
    assert "種 seed" == tane.detokenize(tane.tokenize("種 seed"))


def test_a_session_stays_warm(tane: Tane) -> None:
    tane.generate("The seed lies in the ground", session_id="warm", max_new_tokens=1)

    assert tane.generate("The seed lies in the ground", session_id="warm", max_new_tokens=1)["usage"]["cached_tokens"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temprature": 1}, "temprature"),
        ({"model": "other"}, "model"),
        ({"prompt": "twice"}, "prompt"),
        ({"prompt_tokens": [1]}, "prompt_tokens"),
        ({"stream": True}, "stream"),
        ({"logit_bias": {100000: 1.0}}, "logit_bias"),
        ({"stop": {"a"}}, "stop"),
        ({"max_new_tokens": 9000}, "max_new_tokens"),
    ],
)
@pytest.mark.parametrize("call", ["generate", "stream"])
def test_a_bad_value_is_a_value_error_that_names_it(call: str, fields: Any, param: str, tane: Tane) -> None:
    with pytest.raises(InvalidValue) as raised:
        getattr(tane, call)("The seed", **fields)

    assert isinstance(raised.value, ValueError)
    assert param == raised.value.param


def test_logits_of_too_long_a_prompt_are_refused(tane: Tane) -> None:
    with pytest.raises(InvalidValue) as raised:
        tane.logits(prompt_tokens=[5] * 8193)

    assert ("context_length_exceeded", "prompt_tokens", 8192) == (
        raised.value.code,
        raised.value.param,
        raised.value.allowed["context_length"],
    )


def test_logits_of_a_prompt_that_the_cache_cannot_hold_are_refused(model: Path) -> None:
    with Tane(model, kv_cache_bytes=1 << 20, threads=1) as small, pytest.raises(InvalidValue) as raised:
        small.logits(prompt_tokens=[5] * 8000)

    assert ("exceeds_cache", "prompt") == (raised.value.code, raised.value.param)


def test_a_busy_session_is_an_error_but_no_bad_value(tane: Tane) -> None:
    with tane.stream("The seed", session_id="busy", **LONG), pytest.raises(TaneError) as raised:
        tane.generate("The seed", session_id="busy")

    assert "session_busy" == raised.value.code
    assert not isinstance(raised.value, ValueError)


def test_closing_a_stream_cancels_its_request_and_frees_its_session(tane: Tane) -> None:
    before = outcomes(tane, "cancelled")
    events = tane.stream("The seed", session_id="closed", **LONG)
    next(events)

    events.close()

    assert before + 1 == outcomes(tane, "cancelled")
    assert [] == list(events)
    tane.generate("The seed", session_id="closed", max_new_tokens=1)


@pytest.mark.parametrize("read", [0, 1])
def test_a_stream_that_is_forgotten_is_cancelled(read: int, tane: Tane) -> None:
    before = outcomes(tane, "cancelled")
    events = tane.stream("The seed", **LONG)
    for _ in range(read):
        next(events)

    del events

    wait_for_cancelled(tane, before + 1)


def test_an_interrupt_cancels_what_was_waited_for(tane: Tane) -> None:
    wait_until(lambda: not runtime_of(tane).unfinished)
    before = outcomes(tane, "cancelled")
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        while not runtime_of(tane).unfinished:
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        tane.generate("The seed", **LONG)

    wait_for_cancelled(tane, before + 1)


def test_an_interrupt_while_a_request_is_handed_over_cancels_it(tane: Tane, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_until(lambda: not runtime_of(tane).unfinished)
    before = outcomes(tane, "cancelled")
    loop = tane._background._loop

    def interrupted(call: Callable[[], None]) -> None:
        monkeypatch.undo()
        loop.call_soon_threadsafe(call)
        wait_until(lambda: bool(runtime_of(tane).unfinished))
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tane.generate("The seed", **LONG)

    wait_for_cancelled(tane, before + 1)


def test_an_interrupt_while_a_stream_is_accepted_cancels_it(tane: Tane, monkeypatch: pytest.MonkeyPatch) -> None:
    before = outcomes(tane, "cancelled")
    main, submit = threading.main_thread().ident, runtime_of(tane).submit
    assert main is not None

    def interrupting(request: GenerationRequest) -> Ticket:
        ticket = submit(request)
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.1)
        return ticket

    monkeypatch.setattr(runtime_of(tane), "submit", interrupting)
    with pytest.raises(KeyboardInterrupt):
        tane.stream("The seed", **LONG)

    wait_for_cancelled(tane, before + 1)


def runtime_of(tane: Tane) -> Runtime:
    (served,) = tane._service.models.values()
    assert isinstance(served.runtime, Runtime)
    return served.runtime


def test_a_stream_that_another_thread_closes_ends_where_it_is_read(tane: Tane) -> None:
    for _ in range(20):
        events = tane.stream("The seed", **LONG)
        reader = threading.Thread(target=list, args=(events,), daemon=True)
        reader.start()
        time.sleep(0.01)

        events.close()

        reader.join(30)
        assert not reader.is_alive()


def test_threads_get_their_own_answers_and_share_steps(tane: Tane) -> None:
    prompts = [f"The seed {number}" for number in range(8)]
    fields: dict[str, Any] = {"temperature": 1, "max_new_tokens": 40, "ignore_eos": True}
    alone = [tane.generate(prompt, seed=seed, **fields)["token_ids"] for seed, prompt in enumerate(prompts)]
    steps = engine_steps(tane)

    with ThreadPoolExecutor(8) as pool:
        together = pool.map(lambda each: tane.generate(each[1], seed=each[0], **fields), enumerate(prompts))

    assert alone == [answer["token_ids"] for answer in together]
    assert engine_steps(tane) - steps < 8 * 40


def engine_steps(tane: Tane) -> float:
    text = tane._service.metrics.render().decode()
    return float(re.findall(r"tane_engine_steps_total{.*} (\S+)", text)[0])


def test_it_works_inside_a_running_loop(tane: Tane) -> None:
    async def asked() -> Any:
        return tane.generate("The seed", seed=1, max_new_tokens=4)["token_ids"]

    assert tane.generate("The seed", seed=1, max_new_tokens=4)["token_ids"] == asyncio.run(asked())


@pytest.mark.parametrize(
    ("settings", "param", "message"),
    [
        ({"port": 80}, "port", "port says how a server answers"),
        ({"log_format": "json"}, "log_format", "log_format says how a server answers"),
        ({"thread": 2}, "thread", "thread is no setting"),
        ({"threads": 0}, "threads", "threads must be a whole number of at least 1"),
        ({"engine": "gpu"}, "engine", "engine must be one of auto, native, torch"),
    ],
)
def test_settings_that_cannot_be_used_are_bad_values(settings: Any, param: str, message: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        Tane("model.gguf", **settings)

    assert (param, message) == (raised.value.param, raised.value.message)


def test_a_variable_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANE_THREADS", "none")

    with pytest.raises(InvalidValue, match="TANE_THREADS must be a whole number of at least 1"):
        Tane("model.gguf")


def test_every_setting_is_of_models_or_of_servers() -> None:
    with pytest.raises(InvalidValue) as raised:
        Tane("model.gguf", unknown=1)

    assert [*sorted(OF_A_SERVER), *raised.value.allowed] == [
        *sorted(Settings.options().keys() & OF_A_SERVER),
        *sorted(Settings.options().keys() - OF_A_SERVER),
    ]


def test_a_token_of_the_hub_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "two words")

    with pytest.raises(InvalidValue, match="HF_TOKEN must be a token of the hub") as raised:
        Tane("model.gguf")

    assert "two words" not in str(raised.value)


def test_whatever_has_a_path_is_a_path(tmp_path: Path) -> None:
    class Place:
        def __fspath__(self) -> str:
            return str(tmp_path / "absent.gguf")

    with pytest.raises(ModelFileError, match=r"absent\.gguf"):
        Tane(Place())


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF")

    with pytest.raises(ModelFileError, match=r"broken\.gguf"):
        Tane(path)
