"""Log-probabilities of prompts in the engine room: which rows run and are asked for, and what the cache makes of it."""

from typing import Any

import pytest

from model.decoding.params import LogprobOptions
from model.kv_cache import PAGE_SIZE
from service.engine import Engine
from service.prompt_rows import SCORED_ROWS
from service.request import CacheReason, Delta, DescribeSession, Failed, Finished, GenerationRequest
from tests.engine_fakes import (
    NAN,
    HandClock,
    PagedModel,
    expected_ids,
    ids_of,
    make_engine,
    make_request,
    run,
    run_until_idle,
    scored_logprob,
)

PROMPT = tuple(2 + index % 36 for index in range(300))
LENGTHS = (1, 2, 31, 32, 33, SCORED_ROWS - 1, SCORED_ROWS, SCORED_ROWS + 1, 2 * SCORED_ROWS + 1, 300)


def scored(length: int = 100, **given: Any) -> GenerationRequest:
    """A request whose prompt's log-probabilities are wanted."""
    return make_request(PROMPT[:length], logprobs=LogprobOptions(prompt=True), **given)


def expected_scores(prompt: tuple[int, ...]) -> list[tuple[int, float]]:
    return [(token_id, scored_logprob(prompt[:at], token_id)) for at, token_id in enumerate(prompt) if at]


def scores_of(finished: Finished) -> list[tuple[int, float | None]]:
    return [(record.token_id, record.logprob) for record in finished.prompt]


def rows_of(model: PagedModel) -> int:
    return sum(len(segment.token_ids) for batch in model.batches for segment in batch.segments)


@pytest.mark.parametrize("length", LENGTHS)
def test_each_token_of_the_prompt_is_scored_after_those_before_it(length: int) -> None:
    engine, _ = make_engine()

    finished = run(engine, scored(length))

    assert expected_scores(PROMPT[:length]) == scores_of(finished)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_answer_is_that_of_the_prompt_unscored(length: int) -> None:
    engine, _ = make_engine()

    assert expected_ids(scored(length)) == ids_of(run(engine, scored(length)))


def test_few_rows_are_asked_for_at_a_time() -> None:
    """Their logits are held together, each as long as the vocabulary."""
    engine, model = make_engine()

    run(engine, scored(300, max_new_tokens=1))

    asks = [sum(segment.asks for segment in batch.segments) for batch in model.batches]
    assert [SCORED_ROWS] * 4 + [300 - 4 * SCORED_ROWS] == asks


def test_few_rows_are_asked_for_at_a_time_by_all_requests_together() -> None:
    engine, model = make_engine()
    for number in range(4):
        engine.submit(scored(100, request_id=f"r{number}", max_new_tokens=1), 0.0)

    run_until_idle(engine)

    scores = [sum(each.asks for each in batch.segments if len(each.token_ids) > 1) for batch in model.batches]
    assert SCORED_ROWS == max(scores)
    assert 400 == sum(scores)


def test_a_prompt_that_is_not_scored_asks_for_its_last_row_alone() -> None:
    engine, model = make_engine()

    run(engine, make_request(PROMPT, max_new_tokens=1, logprobs=LogprobOptions()))

    assert 1 == sum(segment.asks for batch in model.batches for segment in batch.segments)


def test_the_prompt_of_several_samples_is_scored_once() -> None:
    engine, model = make_engine()

    finished = run(engine, scored(70, sample_count=3, max_new_tokens=1))

    assert (70, 3) == (rows_of(model), len(finished.completions))
    assert expected_scores(PROMPT[:70]) == scores_of(finished)


@pytest.mark.parametrize("index", range(3))
def test_every_sample_is_that_of_the_prompt_unscored(index: int) -> None:
    engine, _ = make_engine()

    finished = run(engine, scored(70, sample_count=3))

    assert expected_ids(scored(70), index) == ids_of(finished, index)


@pytest.mark.parametrize("kept", [1, PAGE_SIZE - 1, PAGE_SIZE, PAGE_SIZE + 1, 99])
def test_a_prefix_that_the_cache_holds_is_computed_again(kept: int) -> None:
    engine, model = make_engine()
    run(engine, make_request(PROMPT[:kept], max_new_tokens=1))
    model.batches.clear()

    finished = run(engine, scored(100, max_new_tokens=1))

    assert 100 == rows_of(model)
    assert (0, 100, "recomputed") == (
        finished.cache.reused_tokens,
        finished.cache.computed_tokens,
        finished.cache.reason,
    )
    assert 0 == finished.usage.cached_tokens
    assert expected_scores(PROMPT[:100]) == scores_of(finished)


@pytest.mark.parametrize(("given", "reason"), [({}, "cold"), ({"use_cache": False}, "disabled")])
def test_nothing_is_said_to_be_recomputed_where_nothing_was_known(given: dict[str, Any], reason: CacheReason) -> None:
    engine, _ = make_engine()

    assert reason == run(engine, scored(100, **given)).cache.reason


def test_without_the_cache_the_reason_is_that_it_is_off() -> None:
    engine, _ = make_engine()
    run(engine, make_request(PROMPT[:100]))

    finished = run(engine, scored(100, use_cache=False))

    assert "disabled" == finished.cache.reason
    assert expected_scores(PROMPT[:100]) == scores_of(finished)


def test_a_prompt_of_one_token_has_nothing_to_score() -> None:
    """And the cache cannot have held any of it."""
    engine, _ = make_engine()
    run(engine, make_request(PROMPT[:40]))

    finished = run(engine, scored(1))

    assert ((), "cold") == (finished.prompt, finished.cache.reason)


def test_what_was_scored_is_kept_for_others() -> None:
    engine, _ = make_engine()
    run(engine, scored(100, max_new_tokens=1))

    assert 99 == run(engine, make_request(PROMPT[:100])).cache.reused_tokens


def turns(engine: Engine, *requests: GenerationRequest) -> list[Finished]:
    return [run(engine, request) for request in requests]


def test_a_session_stays_warm_after_a_turn_that_was_scored() -> None:
    engine, _ = make_engine()
    first = run(engine, scored(100, session_id="s"))
    history = (*PROMPT[:100], *ids_of(first))

    finished = run(engine, make_request((*history, 5, 6), session_id="s"))

    assert (len(history) - 1, 3, "append") == (
        finished.cache.reused_tokens,
        finished.cache.computed_tokens,
        finished.cache.reason,
    )


def test_a_scored_turn_of_a_warm_session_is_computed_again_and_keeps_it_warm() -> None:
    engine, _ = make_engine()

    first, second, third = turns(
        engine, make_request(PROMPT[:100], session_id="s"), scored(100, session_id="s"), scored(100, session_id="s")
    )

    assert ["cold", "recomputed", "recomputed"] == [each.cache.reason for each in (first, second, third)]
    assert expected_scores(PROMPT[:100]) == scores_of(second) == scores_of(third)
    assert 99 == run(engine, make_request(PROMPT[:100], session_id="s")).cache.reused_tokens


@pytest.mark.parametrize("changed", [5, 40, 99])
def test_a_scored_turn_that_edits_its_session_says_where(changed: int) -> None:
    """Also where what was known ends inside the page that the edit drops."""
    engine, _ = make_engine()
    run(engine, make_request(PROMPT[:100], session_id="s"))
    edited = (*PROMPT[:changed], 38, *PROMPT[changed + 1 : 100])

    finished = run(engine, make_request(edited, session_id="s", logprobs=LogprobOptions(prompt=True)))

    assert (changed, "recomputed") == (finished.cache.first_changed_token, finished.cache.reason)
    assert expected_scores(edited) == scores_of(finished)


def test_a_session_holds_its_scored_turn_once() -> None:
    """The pages computed again are given up for those that were there."""
    engine, _ = make_engine()
    run(engine, make_request(PROMPT[:100], session_id="s", max_new_tokens=1))
    before = engine.command(DescribeSession("c", "s")).sessions[0].bytes

    run(engine, scored(100, session_id="s", max_new_tokens=1))

    assert before == engine.command(DescribeSession("c", "s")).sessions[0].bytes


def test_scores_come_with_the_end_of_a_stream_alone() -> None:
    engine, _ = make_engine()
    engine.submit(scored(100, streams=True), 0.0)

    *deltas, finished = run_until_idle(engine)

    assert isinstance(finished, Finished)
    assert expected_scores(PROMPT[:100]) == scores_of(finished)
    assert expected_ids(scored(100)) == [
        record.token_id for delta in deltas if isinstance(delta, Delta) for record in delta.tokens
    ]


def test_others_decode_while_a_prompt_is_scored() -> None:
    engine, _ = make_engine()
    other = make_request(PROMPT[:20], request_id="other", max_new_tokens=30)
    engine.submit(other, 0.0)
    engine.step()
    engine.submit(scored(300), 0.0)

    ended = {event.request_id: event for event in run_until_idle(engine) if isinstance(event, Finished)}

    assert expected_ids(other) == ids_of(ended["other"])
    assert expected_scores(PROMPT) == scores_of(ended["r"])


def test_two_prompts_are_scored_side_by_side() -> None:
    engine, _ = make_engine()
    one, two = scored(90, request_id="one"), scored(130, request_id="two", use_cache=False)
    engine.submit(one, 0.0)
    engine.submit(two, 0.0)

    ended = {event.request_id: event for event in run_until_idle(engine) if isinstance(event, Finished)}

    assert {"one": expected_scores(PROMPT[:90]), "two": expected_scores(PROMPT[:130])} == {
        name: scores_of(finished) for name, finished in ended.items()
    }


@pytest.mark.parametrize("at", [0, 70, 149])
def test_a_row_that_is_no_number_fails_the_request_wherever_it_stands(at: int) -> None:
    engine, _ = make_engine()
    prompt = (*PROMPT[:at], NAN, *PROMPT[at + 1 : 150])
    engine.submit(make_request(prompt, logprobs=LogprobOptions(prompt=True)), 0.0)

    (failed,) = run_until_idle(engine)

    assert isinstance(failed, Failed)
    assert "numerical_error" == failed.code


def test_a_deadline_during_the_scores_fails_the_request() -> None:
    clock = HandClock()
    engine, _ = make_engine(clock=clock)
    engine.submit(scored(300, deadline_s=1.0), clock.now)
    engine.step()
    clock.now += 2

    (failed,) = run_until_idle(engine)

    assert isinstance(failed, Failed)
    assert "deadline_exceeded" == failed.code
