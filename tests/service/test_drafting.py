"""When tokens are guessed ahead and how many; answers stay what they are."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from model.decoding.params import Speculation
from service.drafting import FEW_TEXTS, MOST_TEXTS
from service.request import Finished
from tests.drafting_room import PERIOD, PROMPT, Room, free, repeating, request
from tests.engine_fakes import (
    EOS,
    Context,
    expected_ids,
    ids_of,
)


def test_a_text_that_repeats_takes_few_steps() -> None:
    room = Room()

    finished = room.ask(request())

    assert ids_of(finished) == [PROMPT[number % PERIOD] for number in range(60)]
    assert len(room.model.batches) < 20
    assert finished.speculation.accepted_tokens > 40
    assert finished.usage.generated_tokens == 60


def test_off_guesses_nothing() -> None:
    room = Room()

    finished = room.ask(request("off"))

    assert (60, 0) == (len(room.model.batches), finished.speculation.drafted_tokens)


def test_a_text_that_never_repeats_is_hardly_guessed_for() -> None:
    room = Room(free)
    asked = request(prompt=tuple(range(2, 38)) * 3, max_new_tokens=200)

    finished = room.ask(asked)

    assert ids_of(finished) == expected_ids(asked)
    assert finished.speculation.drafted_tokens <= 10


def wavering(context: Context, seed: int, sample_index: int) -> int:
    """Repeats itself two times in three."""
    other = free(context, seed, sample_index)
    return other if other % 3 == 0 else repeating(context, seed, sample_index)


@pytest.mark.parametrize(("row_s", "most"), [(0.0001, 0.7), (1.0, 1.1)])
def test_guesses_that_often_fail_are_made_only_where_rows_are_cheap(row_s: float, most: float) -> None:
    """The share of the time that the text takes without guesses."""
    times = {}
    modes: tuple[Speculation, ...] = ("off", "auto")
    for mode in modes:
        room = Room(wavering, row_s=row_s)
        room.ask(request(mode, max_new_tokens=500))
        times[mode] = room.clock.now - 1000.0

    assert times["auto"] <= most * times["off"]


def test_the_number_of_guesses_grows_while_they_hold() -> None:
    """The prompt's first tokens come again once; the more of it follows, the surer is what comes next."""
    room = Room()

    room.ask(request(prompt=PROMPT[: PERIOD + 2], max_new_tokens=100))

    rows = [count for count in room.drafted_rows() if count]
    assert rows[0] < max(rows)


def test_no_guess_passes_the_limit_of_tokens() -> None:
    for limit in range(1, 40):
        room = Room()
        finished = room.ask(request("prompt_lookup", max_new_tokens=limit))
        assert limit == finished.usage.generated_tokens
        assert len(PROMPT) + limit - 1 == max(
            segment.start + len(segment.token_ids) for batch in room.model.batches for segment in batch.segments
        )


@pytest.mark.parametrize("ignores_eos", [True, False])
def test_no_guess_ends_a_text(ignores_eos: bool) -> None:
    prompt = (*range(2, 1 + PERIOD), EOS) * 2
    asked = request("prompt_lookup", prompt)
    asked = replace(asked, parameters=replace(asked.parameters, ignore_eos=ignores_eos))
    room = Room()

    finished = room.ask(asked)

    guessed = {token for batch in room.model.batches[1:] for s in batch.segments for token in s.token_ids[1:]}
    assert ignores_eos == (EOS in guessed)
    assert ("length" if ignores_eos else "eos") == finished.completions[0].finish_reason


def test_what_follows_a_stop_in_an_accepted_run_is_dropped() -> None:
    """The stop string is complete in the middle of guesses that all hold."""
    stop = "".join(chr(ord("0") + token) for token in PROMPT[3:5])

    answers = {mode: Room().ask(request(mode, stop=(stop,))) for mode in ("off", "prompt_lookup", "auto")}

    assert ["stop"] * 3 == [answer.completions[0].finish_reason for answer in answers.values()]
    assert {5} == {answer.usage.generated_tokens for answer in answers.values()}
    assert 1 == len({(tuple(ids_of(answer)), answer.completions[0].text) for answer in answers.values()})


def test_tokens_that_were_dropped_after_a_stop_are_not_accepted() -> None:
    stop = chr(ord("0") + PROMPT[30 % PERIOD])
    finished = Room().ask(request("prompt_lookup", stop=(stop,), max_new_tokens=100))

    assert finished.speculation.accepted_tokens < finished.usage.generated_tokens
    assert finished.speculation.accepted_tokens <= finished.speculation.drafted_tokens


@pytest.mark.parametrize("length", range(26, 40))
def test_positions_of_dropped_tokens_are_not_kept(length: int) -> None:
    """A text ends by a stop string, within guesses that all hold and reach over the end of a page."""
    rising = tuple(range(2, 38))
    room = Room(lambda context, *_: rising[len(context) % 36])
    prompt = (*rising, *rising[:22])
    first = request("prompt_lookup", prompt, session_id="s", stop=(chr(ord("0") + rising[(length + 21) % 36]),))
    history = (*prompt, *ids_of(room.ask(first)))

    finished = room.ask(request("off", (*history, 5), session_id="s", request_id="q"))

    assert len(prompt) < len(history) < len(prompt) + 40
    assert len(history) - 1 == finished.cache.reused_tokens
    assert 0 == room.model.misread


def test_a_request_that_insists_gets_guesses_that_do_not_pay() -> None:
    finished = Room(row_s=1.0).ask(request("prompt_lookup"))

    assert finished.speculation.drafted_tokens >= 25


@pytest.mark.parametrize(("texts", "guessed"), [(FEW_TEXTS, True), (FEW_TEXTS + 1, False), (MOST_TEXTS + 1, False)])
def test_under_load_even_a_request_that_insists_gets_none(texts: int, guessed: bool) -> None:
    room = Room(row_s=1.0)
    for number in range(texts):
        room.engine.submit(request("prompt_lookup", request_id=f"r{number}", max_new_tokens=200, use_cache=False), 0.0)
    while room.engine.step()[1].prefill_rows:
        pass
    for _ in range(3):
        room.engine.step()

    reports = [room.engine.step()[1] for _ in range(3)]

    assert guessed == any(report.drafted_tokens for report in reports)


def test_guesses_are_reported_step_by_step() -> None:
    room = Room()
    room.engine.submit(request(), 0.0)
    reports = []
    terminal = None
    while not room.engine.is_idle:
        events, report = room.engine.step()
        reports.append(report)
        terminal = events[-1] if events else terminal

    assert isinstance(terminal, Finished)
    assert terminal.speculation.drafted_tokens == sum(report.drafted_tokens for report in reports)
    assert terminal.speculation.accepted_tokens == sum(report.accepted_tokens for report in reports)


def test_rejected_positions_are_not_kept() -> None:
    """A second turn reads what the first one left; a position of a rejected guess would change it."""
    room = Room(free)
    prompt = tuple(range(2, 8)) * 8
    first = request("prompt_lookup", prompt, session_id="s", max_new_tokens=80)
    history = (*prompt, *ids_of(room.ask(first)))
    second = request("prompt_lookup", (*history, 5), session_id="s", request_id="q", max_new_tokens=40)

    finished = room.ask(second)

    assert expected_ids(second) == ids_of(finished)
    assert len(history) - 1 == finished.cache.reused_tokens
    assert 0 == room.model.misread


class EvenOnly:
    """A constraint that takes even tokens."""

    failed = False

    def accepts(self, drafts: Sequence[int]) -> int:
        return next((number for number, token in enumerate(drafts) if token % 2), len(drafts))


def test_guesses_stop_where_a_constraint_would_not_take_them() -> None:
    room = Room()
    room.engine.submit(request("prompt_lookup"), 0.0)
    for _ in range(4):
        room.engine.step()
    (active,) = room.engine._scheduler._running
    active.sequences[0].constraint = EvenOnly()  # type: ignore[assignment]

    plan = room.engine._scheduler.plan(0.0)

    assert plan is not None
    assert all(draft % 2 == 0 for draft in plan.rows[0].drafts)
