"""Beam searches in the engine: whole answers, streams, pages, sessions, deadlines and the books."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from model.batch import PageCopy
from model.decoding.params import LogprobOptions
from model.kv_cache import PAGE_SIZE, PagePool, reservation
from service.admission import Ledger
from service.engine import Engine
from service.lease import Lease
from service.prefix_tree import PrefixTree
from service.request import Delta, Failed, Finished, GenerationRequest
from tests.engine_fakes import NAN, VOCABULARY, HandClock, make_request, run, run_until_idle
from tests.scripted_beams import answers_of, expected, make_beam_engine

PROMPT = tuple(range(2, 30)) * 3
"""Without the id 31, which marks an end in one test."""


def beam_request(
    prompt: Iterable[int] = PROMPT, *, width: int = 4, alpha: float = 0.0, ignore_eos: bool = False, **given: Any
) -> GenerationRequest:
    request = make_request(prompt, **given)
    parameters = replace(
        request.parameters, beam_width=width, length_penalty=alpha, ignore_eos=ignore_eos, speculation="off"
    )
    return replace(request, parameters=parameters)


def slowly(request: GenerationRequest) -> list[tuple[tuple[int, ...], str]]:
    return [(each.tokens, each.reason) for each in expected(request)[0]]


@pytest.mark.parametrize("width", range(2, 9))
def test_an_answer_is_the_best_that_the_slow_search_finds(width: int) -> None:
    request = beam_request(width=width, max_new_tokens=40, sample_count=2, ignore_eos=width % 2 == 0)
    engine, model = make_beam_engine()

    finished = run(engine, request)

    assert slowly(request) == answers_of(finished)
    assert expected(request)[1] == finished.stopped
    assert model.misread == 0


def test_each_answer_says_its_log_probability_and_score() -> None:
    request = beam_request(width=3, alpha=0.5, max_new_tokens=6, sample_count=3)

    finished = run(make_beam_engine()[0], request)

    truth = expected(request)[0]
    assert [each.logprob for each in truth] == pytest.approx([each.logprob for each in finished.completions])
    assert [each.score for each in truth] == pytest.approx([each.score for each in finished.completions])
    assert [0, 1, 2] == [each.index for each in finished.completions]


@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.5, 2.0])
def test_a_long_prompt_changes_no_ranking_and_no_score(alpha: float) -> None:
    """Where the model itself says the same after a short and a long one: the length is that of what was generated."""
    mark = 31
    found = []
    for prompt in ((mark,), (*PROMPT, *PROMPT, *PROMPT, mark)):
        engine, _ = make_beam_engine(sees=lambda context: context[context.index(mark) :], page_count=200)
        request = beam_request(prompt, width=4, alpha=alpha, max_new_tokens=12, sample_count=4)
        found.append([(each.tokens, each.logprob, each.score) for each in run(engine, request).completions])

    assert found[0] == found[1]


def test_requests_of_different_widths_share_every_step() -> None:
    """Eight at once: about as many forward passes as each needs alone, and the answers of each alone."""
    requests = [
        beam_request(
            (*PROMPT[: 5 * width], width), width=width, request_id=f"r{width}", max_new_tokens=12, ignore_eos=True
        )
        for width in range(2, 10)
    ]
    engine, model = make_beam_engine(page_count=400)
    for request in requests:
        engine.submit(request, 0.0)

    events = {event.request_id: event for event in run_until_idle(engine)}

    for request in requests:
        finished = events[request.id]
        assert isinstance(finished, Finished)
        assert slowly(request) == answers_of(finished)
    assert 12 <= len(model.batches) <= 14
    assert max(batch.row_count for batch in model.batches[3:]) == sum(range(2, 10))


def test_a_search_beside_samples_changes_neither() -> None:
    searched, sampled = beam_request(width=3, request_id="b"), make_request(PROMPT, request_id="s", sample_count=2)
    engine, _ = make_beam_engine()
    engine.submit(searched, 0.0)
    engine.submit(sampled, 0.0)

    together = {event.request_id: event for event in run_until_idle(engine)}

    assert slowly(searched) == answers_of(finished_of(together["b"]))
    assert answers_of(run(make_beam_engine()[0], sampled)) == answers_of(finished_of(together["s"]))


def finished_of(event: object) -> Finished:
    assert isinstance(event, Finished), event
    return event


def test_usage_counts_what_is_returned() -> None:
    request = beam_request(width=5, max_new_tokens=9, sample_count=2)
    engine, _ = make_beam_engine()
    engine.submit(request, 0.0)

    reports, events = [], []
    while not engine.is_idle:
        stepped, report = engine.step()
        events += stepped
        reports.append(report)

    finished = finished_of(events[-1])
    returned = sum(len(each.tokens) for each in finished.completions)
    assert returned == finished.usage.generated_tokens == sum(report.generated_tokens for report in reports)


@pytest.mark.parametrize("sample_count", [1, 3])
def test_deltas_joined_are_the_texts(sample_count: int) -> None:
    request = beam_request(width=3, max_new_tokens=30, sample_count=sample_count, ignore_eos=True, streams=True)
    engine, _ = make_beam_engine()
    engine.submit(request, 0.0)

    *deltas, finished = run_until_idle(engine)

    for completion in finished_of(finished).completions:
        own = [each for each in deltas if isinstance(each, Delta) and each.index == completion.index]
        assert completion.text == "".join(each.text for each in own)
        assert completion.tokens == tuple(token for each in own for token in each.tokens)
        assert len(own) > 1, "some of it was sure before the end"


def test_a_stream_answers_what_a_whole_answer_does() -> None:
    request = beam_request(width=4, max_new_tokens=25, sample_count=2, ignore_eos=True)

    whole = run(make_beam_engine()[0], request)
    streamed = run(make_beam_engine()[0], replace(request, streams=True))

    assert whole.completions == streamed.completions
    assert whole.usage == streamed.usage


def test_answers_that_cannot_exist_are_told_nothing() -> None:
    """Four texts are wanted and fewer are possible, which all begin with what the stream has sent."""
    request = beam_request(width=4, max_new_tokens=5, sample_count=4, streams=True)
    banned = tuple(sorted(set(range(VOCABULARY)) - {5}))
    parameters = replace(request.parameters, banned_token_ids=banned, min_new_tokens=0)
    engine, _ = make_beam_engine()
    engine.submit(replace(request, parameters=parameters), 0.0)

    events = run_until_idle(engine)

    finished = events[-1]
    assert isinstance(finished, Finished)
    told = {event.index for event in events if isinstance(event, Delta)}
    assert told == {completion.index for completion in finished.completions} == {0}
    assert 5 == finished.usage.generated_tokens


def test_beams_share_whole_pages() -> None:
    """Eight beams of a prompt of many pages take the prompt's pages once, and few of their own."""
    engine, model = make_beam_engine(page_count=200)
    engine.submit(beam_request(range(2, 38), width=8, max_new_tokens=20, ignore_eos=True), 0.0)
    for _ in range(10):
        engine.step()

    first_pages = {segment.pages[0] for segment in model.batches[-1].segments}

    assert 1 == len(first_pages)
    assert 8 == len({segment.pages[-1] for segment in model.batches[-1].segments})


def test_only_the_tail_is_copied() -> None:
    engine, model = make_beam_engine(page_count=200)
    engine.submit(beam_request(range(2, 38), width=8, max_new_tokens=60, ignore_eos=True), 0.0)
    run_until_idle(engine)

    for batch in model.batches[1:]:
        assert len(batch.copies) < 8
        assert all(copy.positions == (batch.segments[0].start % 32) for copy in batch.copies)


def test_nothing_is_copied_at_the_end_of_a_page() -> None:
    engine, model = make_beam_engine(page_count=200)
    engine.submit(beam_request(tuple(range(2, 34)), width=8, max_new_tokens=8, ignore_eos=True), 0.0)
    engine.step()
    engine.step()

    assert () == model.batches[1].copies
    assert 8 == len(model.batches[1].segments)


def test_generated_pages_enter_the_tree_only_at_the_end() -> None:
    engine, _ = make_beam_engine(page_count=200)
    engine.submit(beam_request(PROMPT, width=4, max_new_tokens=70, ignore_eos=True), 0.0)
    for _ in range(60):
        engine.step()
    nodes = len(engine._namespaces.of(None).tree._nodes)

    assert len(PROMPT) // 32 == nodes


def test_the_best_answer_stays_warm_in_its_session() -> None:
    engine, _ = make_beam_engine(page_count=200)
    first = run(engine, beam_request(PROMPT, width=4, max_new_tokens=40, ignore_eos=True, session_id="s"))
    ids = tuple(token.token_id for token in first.completions[0].tokens)

    turn = run(engine, make_request((*PROMPT, *ids, 5, 6), session_id="s"))

    assert "append" == turn.cache.reason
    assert len(PROMPT) + len(ids) - 1 == turn.cache.reused_tokens


def test_a_search_that_found_its_best_early_keeps_what_the_beams_still_hold_of_it() -> None:
    engine, _ = make_beam_engine(page_count=200)
    request = beam_request(PROMPT, width=3, max_new_tokens=50, session_id="s")
    first = run(engine, request)
    assert "eos" == first.completions[0].finish_reason
    ids = tuple(token.token_id for token in first.completions[0].tokens)

    turn = run(engine, make_request((*PROMPT, *ids, 5), session_id="s"))

    assert len(PROMPT) <= turn.cache.reused_tokens < len(PROMPT) + len(ids)


def test_without_the_cache_no_page_is_kept() -> None:
    engine, _ = make_beam_engine()

    finished = run(engine, beam_request(width=4, max_new_tokens=40, use_cache=False))

    assert "disabled" == finished.cache.reason
    assert (64, 0, 0) == pages_of(engine)


def pages_of(engine: Engine) -> tuple[int, int, int]:
    report = engine.step()[1]
    return report.free_pages, report.idle_pages, report.leased_pages


def test_a_deadline_returns_the_best_so_far() -> None:
    clock = HandClock()
    engine, _ = make_beam_engine(clock=clock)
    request = beam_request((5, 6), width=3, max_new_tokens=50, sample_count=2, ignore_eos=True, deadline_s=5.0)
    engine.submit(request, clock.now)
    for _ in range(4):
        engine.step()
    clock.now += 6.0

    finished = finished_of(run_until_idle(engine)[-1])

    assert "deadline" == finished.stopped
    assert ["deadline", "deadline"] == [each.finish_reason for each in finished.completions]
    cut = replace(request, parameters=replace(request.parameters, max_new_tokens=4))
    assert [tokens for tokens, _ in slowly(cut)] == [tokens for tokens, _ in answers_of(finished)]


@pytest.mark.parametrize("steps", range(12))
def test_a_cancelled_search_frees_everything_at_once(steps: int) -> None:
    engine, _ = make_beam_engine()
    engine.submit(beam_request(width=4, max_new_tokens=40, ignore_eos=True, streams=steps % 2 == 0), 0.0)
    for _ in range(steps):
        engine.step()

    (event,) = engine.cancel("r")

    assert isinstance(event, Failed)
    engine.check_books()
    assert 0 == pages_of(engine)[2]


def test_a_cancelled_stream_counts_the_tokens_that_it_sent() -> None:
    engine, _ = make_beam_engine()
    engine.submit(beam_request(width=2, max_new_tokens=40, ignore_eos=True, streams=True), 0.0)
    sent = 0
    for _ in range(30):
        sent += sum(len(event.tokens) for event in engine.step()[0] if isinstance(event, Delta))

    (failed,) = engine.cancel("r")

    assert isinstance(failed, Failed)
    assert sent <= failed.usage.generated_tokens
    assert sent > 0


def test_a_nan_fails_the_search_and_keeps_nothing_of_it() -> None:
    engine, _ = make_beam_engine()
    engine.submit(beam_request((*PROMPT, NAN), width=3), 0.0)

    (event,) = run_until_idle(engine)

    assert isinstance(event, Failed)
    assert "numerical_error" == event.code
    assert 0 == pages_of(engine)[1]


def test_a_fault_in_a_step_ends_the_search_and_its_pages() -> None:
    engine, model = make_beam_engine()
    engine.submit(beam_request(width=3, max_new_tokens=40, ignore_eos=True), 0.0)
    for _ in range(5):
        engine.step()
    model.fault = RuntimeError("injected")

    (event,) = run_until_idle(engine)

    assert isinstance(event, Failed)
    engine.check_books()


def test_tokens_carry_log_probabilities_when_they_are_wanted() -> None:
    request = beam_request(width=3, max_new_tokens=5)
    parameters = replace(request.parameters, logprobs=LogprobOptions())

    finished = run(make_beam_engine()[0], replace(request, parameters=parameters))

    (completion,) = finished.completions
    logprobs = [token.logprob for token in completion.tokens]
    assert completion.logprob == pytest.approx(sum(each for each in logprobs if each is not None))


def test_prompt_log_probabilities_work_with_beams() -> None:
    request = beam_request(width=3, max_new_tokens=5)
    parameters = replace(request.parameters, logprobs=LogprobOptions(prompt=True))

    finished = run(make_beam_engine()[0], replace(request, parameters=parameters))

    assert len(PROMPT) - 1 == len(finished.prompt)
    assert slowly(request) == answers_of(finished)


@pytest.mark.parametrize("prompt_tokens", [1, 31, 32, 33, 64])
@pytest.mark.parametrize("max_new_tokens", [1, 2, 32, 33])
def test_what_was_reserved_is_enough_and_all_that_there_is(prompt_tokens: int, max_new_tokens: int) -> None:
    """A cache of exactly the pages that the search was promised."""
    prompt = [2 + index % 36 for index in range(prompt_tokens)]
    pages = reservation(prompt_tokens, max_new_tokens, 6)
    engine, model = make_beam_engine(page_count=pages)
    request = beam_request(prompt, width=6, max_new_tokens=max_new_tokens, ignore_eos=True)

    finished = run(engine, request)

    assert slowly(request) == answers_of(finished)
    assert model.misread == 0


def test_a_search_reserves_a_row_for_each_beam() -> None:
    request = beam_request(width=6, sample_count=2)

    assert 6 == request.sequence_count
    assert 2 == make_request(PROMPT, sample_count=2).sequence_count


def test_the_door_prices_a_row_for_each_beam() -> None:
    ledger = Ledger(page_count=100, max_queue_tokens=3200, max_sessions=1, clock=HandClock())

    ledger.admit(beam_request(PROMPT, width=6, max_new_tokens=33))

    assert PAGE_SIZE * (3 + 6 * (2 + 1)) == ledger.outstanding_tokens


def make_lease(pages: int, promised: int) -> tuple[PagePool, Lease]:
    pool = PagePool(pages)
    copies: list[PageCopy] = []
    return pool, Lease(pool, PrefixTree(pool), pool.promise(promised), copies)


def test_a_pruned_lease_refunds_only_what_becomes_free() -> None:
    pool, lease = make_lease(8, 8)
    lease.extend(70)
    lease.length = 70
    child = lease.fork()
    assert 4 == lease._promise.remaining

    child.prune()

    assert 5 == lease._promise.remaining == pool.promised
    assert (5, 3) == (pool.free, pool.leased)
    pool.check()


def test_a_truncated_lease_gives_back_the_pages_beyond() -> None:
    pool, lease = make_lease(8, 8)
    lease.extend(100)
    lease.length = 100

    lease.truncate(33)

    assert (33, 2, 6, 6) == (lease.length, len(lease.pages), pool.free, lease._promise.remaining)
