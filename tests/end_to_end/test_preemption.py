"""An answer that was paused anywhere, as often as may be, is the same answer: text, ids, log-probabilities."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from model.decoding.constraint import ConstraintCompiler
from model.decoding.params import LogprobOptions, Speculation
from service import request as engine_events
from service.client import Delta, GenerateFields, Response, TaneClient
from service.request import Finished, GenerationRequest
from service.settings import Settings
from tests.bits.laboratory import Laboratory
from tests.end_to_end.test_random_schedules import SHAPE
from tests.end_to_end.test_resume import FORMS, GREEDY, WAYS, asked, compiler, ended, ids_of, laboratory, seen
from tests.live import Live, live_server
from tests.slow_steps import slow_steps
from tests.tiny_model import write_tiny_gguf

NARROW = replace(SHAPE, context=2048, head_width=64)
"""So that the smallest cache holds an answer of a thousand tokens."""

__all__ = ["compiler", "laboratory"]


def paused(laboratory: Laboratory, request: GenerationRequest, every: int = 1) -> tuple[Finished, int]:
    """The end of a request that pauses after every so many steps, and how often it did."""
    laboratory.engine.submit(replace(request, id=laboratory.new_id()), 0.0)
    events, steps, pauses = [], 0, 0
    while not laboratory.engine.is_idle:
        events += laboratory.engine.step()[0]
        steps += 1
        pauses += laboratory.pause() if steps % every == 0 else 0
    terminal = events[-1]
    assert isinstance(terminal, Finished), terminal
    return terminal, pauses


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("use_cache", [True, False], ids=["warm", "cold"])
def test_the_answer_is_the_same_wherever_it_paused(way: str, use_cache: bool, laboratory: Laboratory) -> None:
    request = replace(asked(laboratory, **WAYS[way]), use_cache=use_cache)
    whole = ended(laboratory, request)

    terminal, pauses = paused(laboratory, request)

    assert seen(whole) == seen(terminal)
    assert pauses == len(ids_of(whole)) - 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("logprobs", [None, LogprobOptions(2)], ids=str)
def test_so_is_one_that_keeps_a_form(
    form: str, logprobs: LogprobOptions | None, laboratory: Laboratory, compiler: ConstraintCompiler
) -> None:
    constraint = compiler.compile(FORMS[form])
    request = asked(laboratory, temperature=1.5, ignore_eos=False, max_new_tokens=24, logprobs=logprobs)
    whole = ended(laboratory, replace(request, constraint=constraint.renewed()))

    terminal, pauses = paused(laboratory, replace(request, constraint=constraint.renewed()))

    assert seen(whole) == seen(terminal)
    assert pauses > 0


@pytest.mark.parametrize("mode", ["prompt_lookup", "draft", "auto"])
@pytest.mark.parametrize("every", [1, 3])
def test_so_is_one_that_is_guessed_ahead(mode: Speculation, every: int, laboratory: Laboratory) -> None:
    request = asked(laboratory, **GREEDY, max_new_tokens=40)
    plain = ended(laboratory, request)
    guessed = replace(request, parameters=replace(request.parameters, speculation=mode))

    terminal, pauses = paused(laboratory, guessed, every)

    assert seen(plain) == seen(terminal)
    assert pauses > 0


@pytest.mark.parametrize("way", ["drawn", "scored", "penalised", "explained"])
@pytest.mark.parametrize("cut", [1, 7, 13])
def test_so_is_one_that_was_resumed_before(way: str, cut: int, laboratory: Laboratory) -> None:
    request = asked(laboratory, **WAYS[way])
    whole = ended(laboratory, request)

    terminal, _ = paused(laboratory, replace(request, resumed_ids=ids_of(whole)[:cut]))

    assert seen(whole) == seen(terminal)
    assert (len(ids_of(whole)) - cut, cut) == (terminal.usage.generated_tokens, terminal.usage.resumed_tokens)


def test_its_stream_is_told_each_token_once(laboratory: Laboratory) -> None:
    request = replace(asked(laboratory, **WAYS["with stops"]), streams=True, id=laboratory.new_id())
    whole = ended(laboratory, request)
    laboratory.engine.submit(replace(request, id="paused"), 0.0)
    events = []
    while not laboratory.engine.is_idle:
        events += laboratory.engine.step()[0]
        laboratory.pause()

    deltas = [event for event in events if isinstance(event, engine_events.Delta)]
    assert ids_of(whole) == tuple(token.token_id for delta in deltas for token in delta.tokens)
    assert whole.completions[0].text == "".join(delta.text for delta in deltas)


@pytest.fixture
def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """A server of two keys whose cache one long request fills, and where nobody waits for long."""
    monkeypatch.setattr("service.preemption.PATIENCE_S", 0.02)
    model = write_tiny_gguf(tmp_path / "tiny.gguf", shape=NARROW, format="Q8_0")
    keys = tmp_path / "keys"
    keys.write_text("alice\nbob\n", encoding="utf-8")
    settings = {"model": str(model), "keys_file": str(keys), "kv_cache_bytes": 1 << 20}
    with live_server(Settings.load({}, settings)) as live:
        yield live


@pytest.mark.slow
def test_a_caller_of_another_key_is_answered_before_a_long_answer_ends(crowded: Live) -> None:
    info = crowded.service.main.engine_info
    new_tokens = (info.page_count - 4) * info.page_size
    body: GenerateFields = {
        "prompt": "The seed",
        "seed": 3,
        "max_new_tokens": new_tokens,
        "ignore_eos": True,
        "speculation": "off",
    }
    with TaneClient(crowded.url, api_key="alice") as alice, TaneClient(crowded.url, api_key="bob") as bob:
        calm = alice.generate(**body)
        with slow_steps(0.002):
            stream = alice.stream(**body)
            first = next(stream)
            bob.generate(prompt="Rain", max_new_tokens=200, ignore_eos=True)
        *rest, answer = stream

    assert isinstance(answer, Response)
    assert calm.token_ids == answer.token_ids
    assert calm.text == "".join(each.text for each in (first, *rest) if isinstance(each, Delta))
    assert answer.timings.paused_s > 0
