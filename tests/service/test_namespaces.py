"""What is kept for one key is out of sight and out of reach of every other."""

import random
from typing import NoReturn

import pytest

from model.kv_cache import PAGE_SIZE
from service.engine import Engine
from service.namespaces import SWEEP_S, Namespace
from service.request import (
    CommandAnswer,
    DeleteSession,
    DescribeSession,
    Finished,
    ForkSession,
    ListSessions,
    SessionCommand,
)
from tests.engine_fakes import HandClock, expected_ids, ids_of, make_engine, make_request, run, run_until_idle

PROMPT = tuple(2 + index % 36 for index in range(200))


def reused(engine: Engine, key_id: str | None, prompt: tuple[int, ...] = PROMPT) -> int:
    return run(engine, make_request(prompt, key_id=key_id)).cache.reused_tokens


def test_a_prefix_is_reused_by_the_key_that_it_was_computed_for_alone() -> None:
    engine, _ = make_engine()

    assert [0, 0, 0] == [reused(engine, key) for key in ("a", "b", None)]
    assert [199, 199, 199] == [reused(engine, key) for key in ("a", "b", None)]


def test_another_keys_answer_is_the_same_with_and_without_the_first_ones_cache() -> None:
    """Every field that tells of the cache, and every row that runs."""

    def asked(first: str) -> tuple[Finished, int]:
        engine, model = make_engine()
        run(engine, make_request(PROMPT, key_id=first))
        model.batches.clear()
        finished = run(engine, make_request(PROMPT, key_id="b"))
        return finished, sum(batch.row_count for batch in model.batches)

    alone, beside = asked("nobody asks for this prompt"), asked("a")

    assert alone == beside
    assert 0 == beside[0].cache.reused_tokens


def pages_by_key(engine: Engine) -> dict[str | None, set[int]]:
    """The pages that each key leases or keeps."""
    pages: dict[str | None, set[int]] = {}
    for active in engine._scheduler._running:
        held = pages.setdefault(active.request.key_id, set())
        held.update(page for sequence in active.sequences for page in sequence.lease.pages)
    for key_id, each in engine._namespaces._by_key.items():
        pages.setdefault(key_id, set()).update(each.tree._nodes)
    return pages


def test_two_keys_never_share_a_page() -> None:
    """Random requests of three keys with common prefixes, in a cache that is too small for all."""
    engine, model = make_engine(page_count=24)
    draw = random.Random(11)
    requests = {
        request.id: request
        for number in range(60)
        for request in [
            make_request(
                PROMPT[: draw.randint(1, 150)], request_id=str(number), key_id=draw.choice("abc"), max_new_tokens=5
            )
        ]
    }
    for request in requests.values():
        engine.submit(request, 0.0)

    while not engine.is_idle:
        for event in engine.step()[0]:
            assert isinstance(event, Finished)
            assert expected_ids(requests[event.request_id]) == ids_of(event)
        held = pages_by_key(engine).values()
        assert sum(map(len, held)) == len(set().union(*held))

    assert 0 == model.misread


def test_a_key_that_needs_room_gives_up_its_own_pages_first() -> None:
    engine, _ = make_engine(page_count=20)
    run(engine, make_request(PROMPT[:160], key_id="quiet"))
    for start in range(10):
        run(engine, make_request(PROMPT[start : start + 160], key_id="greedy"))

    assert 159 == reused(engine, "quiet", PROMPT[:160])


def test_a_key_without_pages_takes_what_was_longest_unused_of_all() -> None:
    engine, _ = make_engine(page_count=10)
    old, new = PROMPT[:95], PROMPT[1:96]
    run(engine, make_request(old, key_id="old", max_new_tokens=1))
    run(engine, make_request(new, key_id="new", max_new_tokens=1))

    run(engine, make_request(PROMPT[:60], key_id="late", max_new_tokens=80))

    assert 94 == reused(engine, "new", new)
    assert 94 > reused(engine, "old", old)


def named(command: type[DescribeSession] | type[DeleteSession], key_id: str | None) -> SessionCommand:
    return command("c", "s", key_id)


@pytest.mark.parametrize(
    "command",
    [
        named(DescribeSession, "b"),
        named(DeleteSession, "b"),
        ForkSession("c", "s", "t", "b"),
        named(DescribeSession, None),
    ],
    ids=repr,
)
def test_a_session_of_another_key_is_not_there(command: SessionCommand) -> None:
    engine, _ = make_engine()
    run(engine, make_request(PROMPT, session_id="s", key_id="a"))

    assert CommandAnswer("c", problem="session_not_found") == engine.command(command)
    assert ["s"] == [each.id for each in engine.command(ListSessions("l", "a")).sessions]
    assert () == engine.command(ListSessions("l", "b")).sessions


def test_keys_may_use_the_same_names_for_their_sessions() -> None:
    engine, _ = make_engine()
    for key_id, length in (("a", 40), ("b", 70)):
        run(engine, make_request(PROMPT[:length], session_id="s", key_id=key_id, max_new_tokens=1))
    engine.command(DeleteSession("d", "s", "a"))

    assert [[], [70]] == [[each.tokens for each in engine.command(ListSessions("l", key)).sessions] for key in "ab"]


def test_the_cap_of_sessions_is_each_keys_own() -> None:
    engine, _ = make_engine(max_sessions=1)
    for key_id, session_id in (("a", "s"), ("b", "s"), ("b", "t")):
        run(engine, make_request([2, 3], session_id=session_id, key_id=key_id))

    assert [["s"], ["t"]] == [[each.id for each in engine.command(ListSessions("l", key)).sessions] for key in "ab"]


def test_both_keys_may_generate_in_sessions_of_one_name_at_once() -> None:
    engine, _ = make_engine()
    for key_id in "ab":
        engine.submit(make_request(PROMPT, request_id=key_id, session_id="s", key_id=key_id), 0.0)

    events = run_until_idle(engine)

    assert {"a", "b"} == {event.request_id for event in events if isinstance(event, Finished)}


def test_whole_pages_are_what_keys_keep() -> None:
    engine, _ = make_engine()
    run(engine, make_request(PROMPT[: 2 * PAGE_SIZE], key_id="a", max_new_tokens=1))

    assert 2 == len(pages_by_key(engine)["a"])


def test_a_key_keeps_no_more_than_its_share_though_pages_are_free() -> None:
    engine, _ = make_engine(page_count=64, key_pages=8)
    held = []
    for start in range(12):
        engine.submit(make_request(PROMPT[start : start + 100], request_id=str(start), key_id="a"), 0.0)
        while not engine.is_idle:
            engine.step()
            held.append(len(pages_by_key(engine)["a"]))

    assert 8 == max(held)


def idle_pages(engine: Engine, key_id: str) -> int:
    return len(engine._namespaces.of(key_id).tree._nodes)


def test_nothing_is_kept_for_a_key_that_is_gone() -> None:
    engine, _ = make_engine(clock=(clock := HandClock()))
    for key_id in "ab":
        run(engine, make_request(PROMPT, key_id=key_id, session_id="s"))

    engine.let_keys_go(frozenset({"a"}))
    a_second_later(engine, clock)

    assert (0, 7) == (idle_pages(engine, "a"), idle_pages(engine, "b"))
    assert [0, 1] == [len(listed(engine, key_id)) for key_id in "ab"]


def a_second_later(engine: Engine, clock: HandClock) -> None:
    """When what is kept is looked at again."""
    clock.now += SWEEP_S
    engine.step()


def listed(engine: Engine, key_id: str) -> tuple[object, ...]:
    return engine.command(ListSessions("c", key_id)).sessions


def test_what_runs_for_a_key_that_goes_may_finish_and_leaves_nothing() -> None:
    engine, _ = make_engine(clock=(clock := HandClock()))
    request = make_request(PROMPT, key_id="a", session_id="s", max_new_tokens=20)
    engine.submit(request, 0.0)
    engine.step()

    engine.let_keys_go(frozenset({"a"}))
    (finished,) = run_until_idle(engine)
    a_second_later(engine, clock)

    assert isinstance(finished, Finished)
    assert expected_ids(request) == ids_of(finished)
    assert (0, 0) == (idle_pages(engine, "a"), len(listed(engine, "a")))


def test_a_key_that_is_gone_keeps_nothing_after_the_engine_began_again() -> None:
    engine, _ = make_engine(clock=(clock := HandClock()))
    engine.let_keys_go(frozenset({"a"}))
    engine.recover("engine_failed")
    run(engine, make_request(PROMPT, key_id="a"))
    a_second_later(engine, clock)

    assert 0 == idle_pages(engine, "a")


def test_a_key_that_comes_back_keeps_again() -> None:
    engine, _ = make_engine()
    engine.let_keys_go(frozenset({"a"}))
    engine.let_keys_go(frozenset())

    assert [0, 199] == [reused(engine, "a") for _ in range(2)]


def test_a_key_for_which_nothing_is_kept_is_forgotten() -> None:
    engine, _ = make_engine(clock=(clock := HandClock()))
    run(engine, make_request(PROMPT, key_id="kept"))
    for key_id in ("one", "two"):
        listed(engine, key_id)
        run(engine, make_request(PROMPT, key_id=key_id, use_cache=False))

    a_second_later(engine, clock)

    assert ["kept"] == list(engine._namespaces._by_key)


def test_a_key_that_waits_is_not_forgotten() -> None:
    """Or its request would keep its prompt where no later one finds it."""
    engine, _ = make_engine(clock=(clock := HandClock()))
    engine.submit(make_request(PROMPT, key_id="a"), clock.now)

    a_second_later(engine, clock)
    run_until_idle(engine)

    assert 199 == reused(engine, "a")


def test_a_step_looks_at_no_key_that_came_before() -> None:
    """Whatever it asks a namespace for, it asks once a second."""
    engine, _ = make_engine(page_count=256, clock=(clock := HandClock()))
    for number in range(20):
        run(engine, make_request(PROMPT[:40], key_id=str(number), session_id="s"))
    clock.now += SWEEP_S
    engine.submit(make_request(PROMPT, key_id="a", max_new_tokens=20), clock.now)
    engine.step()

    class Unasked(dict[str | None, Namespace]):
        def values(self) -> NoReturn:
            raise AssertionError("a step went through all keys")

        items = values

    engine._namespaces._by_key = Unasked(engine._namespaces._by_key)
    for _ in range(5):
        engine.step()
