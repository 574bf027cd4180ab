"""Who is next of those that wait."""

import random

from model.kv_cache import PagePool
from service.fair_queue import FairQueue
from service.namespaces import Namespaces
from service.sequence import Active
from tests.engine_fakes import make_engine, make_request, run_until_idle

NAMESPACE = Namespaces(PagePool(1), page_bytes=1, session_ttl_s=1, max_sessions=1).of(None)


def waiting(name: str, tokens: int = 10) -> Active:
    """A request of the key that its name begins with."""
    request = make_request([2], request_id=name, max_new_tokens=tokens - 1, key_id=name[0])
    return Active(request, 0.0, NAMESPACE)


def queue_of(*names: str) -> FairQueue:
    queue = FairQueue()
    for name in names:
        queue.append(waiting(name))
    return queue


def taken(queue: FairQueue, count: int | None = None) -> list[str]:
    return [queue.take().id for _ in range(len(queue) if count is None else count)]


def test_requests_of_one_key_are_taken_in_the_order_they_came() -> None:
    assert ["a1", "a2", "a3"] == taken(queue_of("a1", "a2", "a3"))


def test_keys_take_turns() -> None:
    assert ["a1", "b1", "c1", "a2", "b2", "a3", "a4"] == taken(queue_of("a1", "a2", "a3", "a4", "b1", "b2", "c1"))


def test_a_key_that_asks_for_much_waits_longer() -> None:
    queue = FairQueue()
    for each in (waiting("a1", 30), waiting("a2", 30), *(waiting(f"b{n}", 10) for n in range(5))):
        queue.append(each)

    assert ["a1", "b0", "b1", "b2", "a2", "b3", "b4"] == taken(queue)


def test_what_an_ended_request_did_not_use_was_not_given() -> None:
    queue = queue_of("b1", "b2", "b3")
    for each in (long := waiting("a1", 1000), waiting("a2", 10)):
        queue.append(each)
    assert ["b1", "a1"] == taken(queue, 2)

    long.generated_tokens = 4
    queue.ended(long)

    assert ["a2", "b2", "b3"] == taken(queue)


def test_whoever_comes_later_does_not_catch_up() -> None:
    """Else a key that slept would shut the others out."""
    queue = queue_of("a1", "a2", "a3", "a4")
    assert ["a1", "a2"] == taken(queue, 2)
    for name in ("b1", "b2", "b3"):
        queue.append(waiting(name))

    assert ["b1", "a3", "b2", "a4", "b3"] == taken(queue)


def test_whoever_leaves_the_line_was_given_nothing() -> None:
    queue = queue_of("a1", "b1", "b2")
    first = queue.head
    assert first is not None
    queue.remove(first)
    queue.append(waiting("a2"))

    assert {"b1", "a2"} == set(taken(queue, 2))


def test_the_line_holds_what_came_and_did_not_leave() -> None:
    draw = random.Random(3)
    queue = FairQueue()
    held: dict[str, Active] = {}
    for number in range(500):
        if held and draw.random() < 0.5:
            gone = queue.take() if draw.random() < 0.5 else draw.choice(list(held.values()))
            if gone in queue:
                queue.remove(gone)
            del held[gone.id]
        else:
            active = waiting(f"{draw.choice('abc')}{number}", draw.randint(2, 50))
            held[active.id] = active
            queue.append(active)
        assert set(held) == {each.id for each in queue}
        assert (len(held), not held) == (len(queue), queue.head is None)


def test_one_request_of_a_key_is_not_held_up_by_many_of_another() -> None:
    """Pages for one request at a time: the late comer is second to end, not last."""
    engine, _ = make_engine(page_count=3)
    for number in range(5):
        engine.submit(make_request([2, 3, 4], request_id=f"a{number}", key_id="a"), 0.0)
    engine.submit(make_request([2, 3, 4], request_id="b", key_id="b"), 0.0)

    events = run_until_idle(engine)

    assert ["a0", "b", "a1", "a2", "a3", "a4"] == [event.request_id for event in events]


def test_what_is_put_back_is_the_next_of_its_key() -> None:
    queue = queue_of("a1", "a2", "b1")
    first = queue.take()

    queue.put_back(first)

    assert {"a1", "b1"} == set(taken(queue, 2))


def test_what_was_not_used_is_given_back_and_counted_again() -> None:
    """Of 40 tokens the first request used 10: its key is level with one that was given 10."""
    queue = FairQueue()
    for each in (waiting("a1", 40), waiting("a2", 40), waiting("b1", 10), waiting("b2", 10)):
        queue.append(each)
    first = queue.take()
    first.generated_tokens, first.preemptions = 9, 1

    queue.put_back(first)

    assert ["b1", "a1", "b2", "a2"] == taken(queue)


def test_a_key_is_owed_something_while_another_was_given_more_whatever_that_gives_back() -> None:
    queue = FairQueue()
    for each in (waiting("a1", 40), waiting("b1", 10)):
        queue.append(each)
    queue.take()

    owed = [queue.is_owed("b", "a", 39), queue.is_owed("b", "a", 40), queue.is_owed("a", "b", 0)]

    assert [True, False, False] == owed
