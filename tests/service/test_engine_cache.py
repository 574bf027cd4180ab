"""What the engine keeps between requests: reuse, edits, forks, and whose text is whose."""

import pytest

from service.request import (
    CommandAnswer,
    DeleteSession,
    DescribeSession,
    Finished,
    ForkSession,
    ListSessions,
)
from tests.engine_fakes import (
    expected_ids,
    ids_of,
    make_engine,
    make_request,
    run,
    run_until_idle,
)

PROMPT = tuple(2 + index % 36 for index in range(600))
BOUNDARIES = (31, 32, 33, 63, 64, 65)


def test_a_session_edited_at_token_400_of_600_computes_the_last_200() -> None:
    engine, model = make_engine()
    run(engine, make_request(PROMPT, session_id="s"))
    edited = make_request((*PROMPT[:400], 5, *PROMPT[401:]), session_id="s")
    model.batches.clear()

    finished = run(engine, edited)

    rows = sum(len(s.token_ids) for batch in model.batches for s in batch.segments if len(s.token_ids) > 1)
    assert (finished.cache.reused_tokens, finished.cache.computed_tokens, rows) == (400, 200, 200)
    assert (finished.cache.first_changed_token, finished.cache.reason) == (400, "edit")
    assert ids_of(finished) == expected_ids(edited)


def test_an_edit_drops_at_once_what_nobody_else_holds() -> None:
    engine, _ = make_engine()
    first = run(engine, make_request(PROMPT[:200], session_id="s", max_new_tokens=8))

    finished = run(engine, make_request((*PROMPT[:100], 38, 38), session_id="s"))

    computed_before = len(PROMPT[:200]) + len(ids_of(first)) - 1
    assert finished.cache.evicted_tokens == computed_before - 100


def test_an_edit_leaves_what_another_session_holds() -> None:
    engine, _ = make_engine()
    run(engine, make_request(PROMPT[:200], session_id="s"))
    engine.command(ForkSession("c", "s", "t"))

    finished = run(engine, make_request((*PROMPT[:100], 38, 38), session_id="s"))
    again = run(engine, make_request(PROMPT[:200], session_id="t"))

    assert finished.cache.evicted_tokens == 0
    assert again.cache.reused_tokens == 199


@pytest.mark.parametrize("appended", [1, 2, 31, 32, 33])
def test_appending_k_ids_to_prompt_and_answer_computes_k_plus_1(appended: int) -> None:
    engine, _ = make_engine()
    first = run(engine, make_request(PROMPT[:50], session_id="s", max_new_tokens=20))
    history = (*PROMPT[:50], *ids_of(first))

    finished = run(engine, make_request((*history, *PROMPT[:appended]), session_id="s"))

    assert finished.cache.computed_tokens == appended + 1
    assert finished.cache.reason == "append"


@pytest.mark.parametrize("length", BOUNDARIES)
def test_an_identical_prompt_reuses_all_but_its_last_token(length: int) -> None:
    engine, _ = make_engine()
    request = make_request(PROMPT[:length], session_id="s")
    first = run(engine, request)

    again = run(engine, request)

    assert again.cache.reused_tokens == length - 1
    assert again.cache.reason == "identical"
    assert ids_of(again) == ids_of(first)


@pytest.mark.parametrize("length", BOUNDARIES)
def test_no_session_sees_anothers_text(length: int) -> None:
    """Prompts that share a prefix and then hold canaries answer as they do in an engine of their own."""
    engine, _ = make_engine()
    requests = [
        make_request((*PROMPT[:length], canary, *PROMPT[: canary % 7]), request_id=str(canary), session_id=f"s{canary}")
        for canary in range(2, 10)
    ]
    for request in requests:
        engine.submit(request, 0.0)

    finished = {event.request_id: event for event in run_until_idle(engine) if isinstance(event, Finished)}

    assert {key: ids_of(event) for key, event in finished.items()} == {r.id: expected_ids(r) for r in requests}


def test_sessions_that_take_turns_each_stay_warm() -> None:
    """Not only the one that spoke last: each turn computes what it adds, and the token before that."""
    engine, _ = make_engine()
    histories = {f"s{number}": (2 + number, *PROMPT[: 90 + 20 * number]) for number in range(3)}

    for turn in range(3):
        for session, history in histories.items():
            finished = run(engine, make_request(history, session_id=session, seed=turn))
            if turn:
                assert (4, "append") == (finished.cache.computed_tokens, finished.cache.reason)
            histories[session] = (*history, *ids_of(finished), 2, 3, 4)


@pytest.mark.parametrize("known_to_itself", [0, 40, 150])
def test_a_turn_begins_with_the_longest_prefix_whoever_computed_it(known_to_itself: int) -> None:
    """Its own session, another one, or a request without any; also where its session is new."""
    engine, _ = make_engine()
    if known_to_itself:
        run(engine, make_request(PROMPT[:known_to_itself], session_id="own"))
    run(engine, make_request(PROMPT[:96], session_id="other"))
    run(engine, make_request(PROMPT[:128]))
    request = make_request(PROMPT[:200], session_id="own")

    finished = run(engine, request)

    assert finished.cache.reused_tokens >= max(known_to_itself, 128)
    assert ids_of(finished) == expected_ids(request)


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_first_turn_of_one_token_reuses_nothing_and_answers(use_cache: bool) -> None:
    engine, _ = make_engine()
    request = make_request(PROMPT[:1], session_id="s", use_cache=use_cache)

    finished = run(engine, request)

    assert (0, 1) == (finished.cache.reused_tokens, finished.cache.computed_tokens)
    assert ids_of(finished) == expected_ids(request)


def test_a_sessions_tail_is_continued_without_a_copy_by_its_sole_owner() -> None:
    engine, model = make_engine()
    first = run(engine, make_request(PROMPT[:50], session_id="s"))
    model.batches.clear()

    run(engine, make_request((*PROMPT[:50], *ids_of(first), 3, 4), session_id="s"))

    assert [batch.copies for batch in model.batches if batch.copies] == []


def test_a_fork_shares_pages_and_copies_the_tail_only_when_it_goes_on() -> None:
    engine, model = make_engine()
    first = run(engine, make_request(PROMPT[:100], session_id="s"))
    leased_before = engine.step()[1].idle_pages
    answer = engine.command(ForkSession("c", "s", "t"))
    assert engine.step()[1].idle_pages == leased_before
    assert answer.sessions[0].parent == "s"
    history = (*PROMPT[:100], *ids_of(first))
    model.batches.clear()

    finished = run(engine, make_request((*history, 9), session_id="t"))

    assert finished.cache.computed_tokens == 2
    assert [len(batch.copies) for batch in model.batches if batch.copies] == [1]


def test_a_fork_at_the_limit_forgets_another_session_than_its_source() -> None:
    engine, _ = make_engine(max_sessions=2)
    for name in ("source", "other"):
        run(engine, make_request(PROMPT[:40], session_id=name))

    engine.command(ForkSession("c", "source", "child"))

    assert [info.id for info in engine.command(ListSessions("l")).sessions] == ["source", "child"]


def test_where_only_one_session_may_be_a_fork_takes_its_sources_place() -> None:
    engine, _ = make_engine(max_sessions=1)
    run(engine, make_request(PROMPT[:40], session_id="source"))
    engine.command(ForkSession("c", "source", "child"))

    finished = run(engine, make_request((*PROMPT[:40], 9), session_id="child"))

    assert [info.id for info in engine.command(ListSessions("l")).sessions] == ["child"]
    assert finished.cache.reused_tokens == 40


@pytest.mark.parametrize("kept", [20, 32])
def test_a_turn_may_reuse_more_than_its_session_computed(kept: int) -> None:
    """A session may end inside a longer page that others left behind; a turn drops nothing of what it matches."""
    engine, _ = make_engine()
    run(engine, make_request(PROMPT[:kept], max_new_tokens=1))
    run(engine, make_request(PROMPT[:10], max_new_tokens=1, session_id="s"))

    finished = run(engine, make_request(PROMPT[: kept + 5], session_id="s"))

    assert (finished.cache.reused_tokens, finished.cache.evicted_tokens) == (kept, 0)


def test_a_prompt_cut_short_is_an_edit() -> None:
    engine, _ = make_engine()
    run(engine, make_request(PROMPT[:100], session_id="s"))

    finished = run(engine, make_request(PROMPT[:50], session_id="s"))

    assert (finished.cache.reason, finished.cache.first_changed_token) == ("edit", 50)


def test_a_cold_request_with_a_cached_prefix_says_so() -> None:
    engine, _ = make_engine()
    run(engine, make_request(PROMPT[:80]))

    finished = run(engine, make_request((*PROMPT[:70], 38)))

    assert (finished.cache.reused_tokens, finished.cache.reason) == (70, "prefix")


def test_without_the_cache_nothing_is_read_and_nothing_is_kept() -> None:
    engine, _ = make_engine()
    run(engine, make_request(PROMPT[:80]))
    kept = engine.step()[1].idle_pages
    request = make_request(PROMPT[:80], use_cache=False)

    finished = run(engine, request)

    assert (finished.cache.reused_tokens, finished.cache.reason) == (0, "disabled")
    assert engine.step()[1].idle_pages == kept
    assert ids_of(finished) == expected_ids(request)


def test_a_lost_cache_costs_time_and_never_text() -> None:
    engine, _ = make_engine(page_count=8)
    request = make_request(PROMPT[:100], session_id="s")
    first = run(engine, request)
    run(engine, make_request(PROMPT[300:450], max_new_tokens=2))

    again = run(engine, request)

    assert again.cache.reason == "evicted"
    assert ids_of(again) == ids_of(first)


def test_samples_share_one_prefill() -> None:
    engine, model = make_engine()
    request = make_request(PROMPT[:70], sample_count=3)

    finished = run(engine, request)

    prefilled = sum(len(s.token_ids) for batch in model.batches for s in batch.segments if len(s.token_ids) > 1)
    assert prefilled == 70
    assert [ids_of(finished, index) for index in range(3)] == [expected_ids(request, index) for index in range(3)]
    assert finished.usage.generated_tokens == 24


def test_the_last_sample_takes_the_prompts_tail_and_the_others_copy_it() -> None:
    engine, model = make_engine()

    run(engine, make_request(PROMPT[:40], sample_count=3))

    assert sum(len(batch.copies) for batch in model.batches) == 2


def test_a_cancelled_turn_keeps_what_was_computed() -> None:
    engine, _ = make_engine()
    engine.submit(make_request(PROMPT[:100], session_id="s"), 0.0)
    engine.step()
    engine.cancel("r")

    finished = run(engine, make_request(PROMPT[:100], session_id="s"))

    assert finished.cache.reused_tokens == 64


def test_a_deleted_session_gives_its_pages_back() -> None:
    engine, _ = make_engine()
    run(engine, make_request(PROMPT[:100], session_id="s"))

    engine.command(DeleteSession("d", "s"))
    _, report = engine.step()

    assert (report.idle_pages, report.evicted_tokens) == (0, {"explicit": 107})
    assert engine.command(DescribeSession("x", "s")).problem == "session_not_found"


def test_a_session_shows_what_the_cache_holds_of_it() -> None:
    engine, _ = make_engine()
    run(engine, make_request(PROMPT[:100], session_id="s"))

    answer: CommandAnswer = engine.command(DescribeSession("x", "s"))

    assert (answer.sessions[0].tokens, answer.sessions[0].bytes, answer.sessions[0].busy) == (107, 4000, False)


def test_a_failing_step_takes_with_it_the_pages_whose_copies_it_should_have_made() -> None:
    """Samples that end at once leave a tail in the cache whose copy is only made by the next step."""
    engine, model = make_engine()
    run(engine, make_request(PROMPT[:40], sample_count=2, max_new_tokens=1))
    engine.submit(make_request(PROMPT[100:110], request_id="unlucky"), 0.0)
    model.fault = RuntimeError("injected")
    run_until_idle(engine)
    request = make_request(PROMPT[:45])

    finished = run(engine, request)

    assert model.misread == 0
    assert ids_of(finished) == expected_ids(request)


def test_a_prompt_without_a_session_does_not_take_a_sessions_tail() -> None:
    engine, _ = make_engine()
    first = run(engine, make_request(PROMPT[:50], session_id="s"))

    run(engine, make_request((*PROMPT[:50], *ids_of(first), 3)))

    assert engine.command(DescribeSession("x", "s")).sessions[0].tokens == 57


def test_what_runs_for_a_key_does_not_depend_on_what_another_has_cached() -> None:
    runs = []
    for cached in (PROMPT[:200], tuple(reversed(PROMPT[:200]))):
        engine, model = make_engine()
        run(engine, make_request(cached, key_id="alice", session_id="s"))
        model.batches.clear()
        finished = run(engine, make_request(PROMPT[:200], key_id="bob", session_id="s"))
        segments = [each for batch in model.batches for each in batch.segments]
        runs.append((finished.cache, [(each.token_ids, each.start, each.asks) for each in segments]))

    assert runs[0] == runs[1]
