"""What a draft model guesses, what it reads, and that nothing of it reaches an answer."""

from typing import Any

import pytest

from model.batch import Batch
from model.decoding.params import Speculation
from service.drafting import TRIAL_S
from tests.drafting_room import PROMPT, Room, free, repeating, request
from tests.engine_fakes import (
    Context,
    expected_ids,
    ids_of,
    run_until_idle,
)


def test_a_draft_model_that_agrees_is_always_accepted() -> None:
    room = Room(free, draft_says=free)
    asked = request("draft", max_new_tokens=100, sample_count=2)

    finished = room.ask(asked)

    assert [expected_ids(asked, index) for index in (0, 1)] == [ids_of(finished, index) for index in (0, 1)]
    assert finished.speculation.drafted_tokens == finished.speculation.accepted_tokens > 100


def test_auto_uses_a_draft_model_that_pays() -> None:
    room = Room(free, draft_says=free)
    asked = request(max_new_tokens=100)

    finished = room.ask(asked)

    assert expected_ids(asked) == ids_of(finished)
    assert finished.speculation.accepted_tokens > 50
    assert len(room.model.batches) < 50


@pytest.mark.parametrize(
    "bad", [{"draft_says": free, "draft_step_s": 0.02}, {"draft_says": lambda *_: 3}], ids=["slow", "wrong"]
)
def test_auto_tries_a_draft_model_that_does_not_pay_for_little_time(bad: dict[str, Any]) -> None:
    """About a hundredth of the time, after what is needed to find out."""
    room = Room(free, **bad)

    room.ask(request(max_new_tokens=1500))

    taken = room.clock.now - 1000.0
    drafting_s = len(room.draft_model.batches) * (bad.get("draft_step_s") or 0.001)
    assert 0 < drafting_s < TRIAL_S + 0.03 * taken


def test_a_text_for_which_there_are_no_pages_goes_on_without_guesses() -> None:
    room = Room(free, draft_says=free, draft_pages=2)
    asked = request("draft", max_new_tokens=100)

    finished = room.ask(asked)

    assert expected_ids(asked) == ids_of(finished)
    assert (0, []) == (finished.speculation.drafted_tokens, room.draft_model.batches)


def test_beyond_the_draft_models_context_nothing_is_guessed() -> None:
    room = Room(free, draft_says=free, draft_context=64)
    asked = request("draft", max_new_tokens=100)

    finished = room.ask(asked)

    assert expected_ids(asked) == ids_of(finished)
    assert 0 < finished.speculation.drafted_tokens < 64


def test_a_draft_model_that_fails_takes_no_request_with_it(caplog: pytest.LogCaptureFixture) -> None:
    room = Room(free, draft_says=free)
    room.draft_model.fault = RuntimeError("injected")
    asked = request("draft", max_new_tokens=50)

    finished = room.ask(asked)

    assert expected_ids(asked) == ids_of(finished)
    assert 1 == len(room.draft_model.batches)
    assert ["the draft model failed and is not used any more"] == [record.message for record in caplog.records]


def test_the_draft_model_draws_as_the_model_will() -> None:
    """The same seed, sample and number of the token, and no log-probabilities, which nobody reads."""
    room = Room(free, draft_says=free)
    asked = request("draft", seed=7, sample_count=2, max_new_tokens=20)

    room.ask(asked)

    numbers = [ask.sequences[0].generated for ask in room.draft_sampler.asked]
    assert {(0,), (1,)} == {ask.sample_indices for ask in room.draft_sampler.asked}
    assert {7} == {ask.parameters.seed for ask in room.draft_sampler.asked}
    assert [len(PROMPT) + number for number in numbers] == room.draft_sampler.read


def test_the_draft_model_reads_what_came_true_and_nothing_else() -> None:
    """It is wrong one time in three, and the first guess of every step stands on the text as it is."""
    room = Room(free, draft_says=lambda *what: free(*what) if len(what[0]) % 3 else 3)
    asked = request("draft", max_new_tokens=60)
    truth = (*PROMPT, *expected_ids(asked))
    first: dict[int, Context] = {}
    forward = room.draft_model.forward

    def watched(batch: Batch) -> list[Context]:
        (context,) = forward(batch)
        first.setdefault(len(room.model.batches), context)
        return [context]

    room.draft_model.forward = watched  # type: ignore[method-assign]

    finished = room.ask(asked)

    assert 0 < finished.speculation.accepted_tokens < finished.speculation.drafted_tokens
    assert [truth[: len(context)] for context in first.values()] == list(first.values())


def test_a_long_prompt_is_read_by_the_draft_model_in_pieces() -> None:
    room = Room(free, draft_says=free)
    prompt = tuple(range(2, 38)) * 10
    asked = request("draft", prompt, max_new_tokens=100)

    finished = room.ask(asked)

    assert expected_ids(asked) == ids_of(finished)
    assert finished.speculation.accepted_tokens > 0
    assert max(batch.row_count for batch in room.draft_model.batches) < len(prompt)


@pytest.mark.parametrize("mode", ["prompt_lookup", "draft", "auto"])
def test_a_cancelled_request_leaves_no_page_leased(mode: Speculation) -> None:
    room = Room(draft_says=repeating)
    room.engine.submit(request(mode), 0.0)
    for _ in range(5):
        room.engine.step()

    room.engine.cancel("r")

    room.engine.check_books()


def test_after_a_fault_of_a_step_nothing_is_leased_anywhere() -> None:
    room = Room(free, draft_says=free)
    room.engine.submit(request("draft"), 0.0)
    for _ in range(5):
        room.engine.step()
    room.model.fault = RuntimeError("injected")

    run_until_idle(room.engine)

    room.engine.check_books()
