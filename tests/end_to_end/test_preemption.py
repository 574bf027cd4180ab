"""An answer that was paused anywhere, as often as may be, is the same answer: text, ids, log-probabilities."""

from dataclasses import replace

import pytest

from model.decoding.constraint import ConstraintCompiler
from model.decoding.params import LogprobOptions, Speculation
from service.request import Delta, Finished, GenerationRequest
from tests.bits.laboratory import Laboratory
from tests.end_to_end.test_resume import FORMS, GREEDY, WAYS, asked, compiler, ended, ids_of, laboratory, seen

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

    deltas = [event for event in events if isinstance(event, Delta)]
    assert ids_of(whole) == tuple(token.token_id for delta in deltas for token in delta.tokens)
    assert whole.completions[0].text == "".join(delta.text for delta in deltas)
