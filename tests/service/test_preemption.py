"""A running request gives its pages back for the sake of another key, and goes on later as if nothing had been."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from model.decoding.params import LogprobOptions
from model.kv_cache import reservation
from service.engine import Engine
from service.preemption import LEAST_GAIN, PATIENCE_S
from service.request import Delta, DescribeSession, Failed, Finished, GenerationRequest, ListSessions, RequestEvent
from service.step_report import StepReport
from tests.engine_fakes import HandClock, PagedModel, expected_ids, ids_of, make_engine, make_request

STEP_S = 0.05
PROMPT = tuple(range(2, 38))
LONG = 300


def long(request_id: str = "long", **given: Any) -> GenerationRequest:
    """A request of the key `a`; two of them need more pages than there are."""
    return make_request(PROMPT, **{"request_id": request_id, "key_id": "a", "max_new_tokens": LONG, **given})


def short(request_id: str = "short", new: int = 100, **given: Any) -> GenerationRequest:
    """A request of the key `b`."""
    return make_request(PROMPT[::-1], **{"request_id": request_id, "key_id": "b", "max_new_tokens": new, **given})


PAGES = reservation(len(PROMPT), LONG, 1) + 2
"""Room for a long request, and for no other beside it."""


class Room:
    """An engine whose clock moves with every step."""

    def __init__(self, page_count: int = PAGES) -> None:
        self.clock = HandClock()
        self.engine: Engine
        self.model: PagedModel
        self.engine, self.model = make_engine(page_count=page_count, clock=self.clock)
        self.events: list[RequestEvent] = []
        self.reports: list[StepReport] = []

    def submit(self, *requests: GenerationRequest) -> None:
        for request in requests:
            self.engine.submit(request, self.clock.now)

    def step(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.clock.now += STEP_S
            events, report = self.engine.step()
            self.events += events
            self.reports.append(report)
            self.engine.check_books()

    def run(self, most_steps: int = 5000) -> None:
        for _ in range(most_steps):
            if self.engine.is_idle:
                return
            self.step()
        raise AssertionError("the engine does not come to rest")

    @property
    def preemptions(self) -> int:
        return sum(report.preemptions for report in self.reports)

    @property
    def ended(self) -> dict[str, Finished | Failed]:
        return {event.request_id: event for event in self.events if not isinstance(event, Delta)}

    def finished(self, request_id: str) -> Finished:
        event = self.ended[request_id]
        assert isinstance(event, Finished), event
        return event


def with_one_pause(
    request: GenerationRequest, before: int = LEAST_GAIN, other: GenerationRequest | None = None
) -> Room:
    """The request runs until it has gained some tokens more than `before`, then another key wants its pages."""
    room = Room()
    room.submit(request)
    room.step(before - int(PATIENCE_S / STEP_S))
    room.submit(other or short())
    room.run()
    return room


def calm(request: GenerationRequest) -> Finished:
    room = Room()
    room.submit(request)
    room.run()
    return room.finished(request.id)


def told(room: Room, request_id: str) -> tuple[str, list[int], list[int]]:
    """What a stream was told: text, ids, and its counts of tokens."""
    deltas = [each for each in room.events if isinstance(each, Delta) and each.request_id == request_id]
    ids = [record.token_id for delta in deltas for record in delta.tokens]
    return "".join(delta.text for delta in deltas), ids, [delta.sent for delta in deltas]


def without_times(finished: Finished) -> Finished:
    return replace(finished, timings=calm_times(finished))


def calm_times(finished: Finished) -> Any:
    return replace(finished.timings, queue_s=0.0, prefill_s=0.0, decode_s=0.0, tokens_per_second=None, paused_s=0.0)


def test_a_request_of_another_key_does_not_wait_for_the_end() -> None:
    room = with_one_pause(long())

    assert (1, ["short", "long"]) == (room.preemptions, list(room.ended))


@pytest.mark.parametrize("before", [LEAST_GAIN + extra for extra in (0, 1, 27, 28, 29, 60, 100, 170)])
def test_the_answer_is_that_of_a_calm_run_wherever_it_paused(before: int) -> None:
    room = with_one_pause(long(), before)

    assert 1 == room.preemptions
    assert without_times(calm(long())) == without_times(room.finished("long"))


KINDS = {
    "in a session": {"session_id": "s"},
    "without a cache": {"use_cache": False},
    "with stops": {"stop": ("ab", "0"), "stop_token_ids": (3,)},
    "with log-probabilities": {"logprobs": LogprobOptions(top=1)},
    "with those of the prompt": {"logprobs": LogprobOptions(prompt=True)},
}


@pytest.mark.parametrize("given", KINDS.values(), ids=KINDS)
def test_every_kind_of_request_goes_on_as_it_was(given: dict[str, Any]) -> None:
    seed = next(seed for seed in range(100) if _long_enough(long(seed=seed, **given)))
    request = long(seed=seed, **given)

    room = with_one_pause(request)

    assert 1 == room.preemptions
    assert without_times(calm(request)) == without_times(room.finished("long"))


def _long_enough(request: GenerationRequest) -> bool:
    return len(calm(request).completions[0].tokens) > 2 * LEAST_GAIN


def test_a_resumed_answer_goes_on_as_it_was() -> None:
    request = replace(long(), resumed_ids=tuple(expected_ids(long())[:20]))

    room = with_one_pause(request)

    assert 1 == room.preemptions
    assert without_times(calm(request)) == without_times(room.finished("long"))


def test_a_stream_is_told_each_token_once_and_in_order() -> None:
    room, undisturbed = with_one_pause(long(streams=True)), Room()
    undisturbed.submit(long(streams=True))
    undisturbed.run()

    assert told(undisturbed, "long") == told(room, "long")


def test_nothing_is_computed_again_where_the_pages_are_still_there() -> None:
    """The short request needs two pages that were free, and takes none of those that were kept."""
    room = with_one_pause(long(), other=short(new=20))

    rows = sum(len(segment.token_ids) for batch in room.model.batches for segment in batch.segments)
    needed = len(PROMPT) + LONG - 1 + len(PROMPT) + 19
    assert (1, needed) == (room.preemptions, rows)


def test_what_was_lost_is_computed_again() -> None:
    room = with_one_pause(long(use_cache=False))

    rows = sum(len(segment.token_ids) for batch in room.model.batches for segment in batch.segments)
    assert rows > len(PROMPT) + LONG - 1 + len(PROMPT) + 99 + LEAST_GAIN
    assert expected_ids(long()) == ids_of(room.finished("long"))


def test_its_session_stands_where_it_would() -> None:
    sessions = []
    for pauses in (True, False):
        room = with_one_pause(long(session_id="s")) if pauses else Room()
        if not pauses:
            room.submit(long(session_id="s"))
            room.run()
        sessions.append([replace(each, idle_s=0.0) for each in room.engine.command(ListSessions("c", "a")).sessions])

    assert sessions[0] == sessions[1]


def paused(**given: Any) -> Room:
    """A room in which the long request waits and the short one runs."""
    room = Room()
    room.submit(long(**given))
    room.step(LEAST_GAIN)
    room.submit(short())
    while not room.preemptions:
        room.step()
    return room


def test_a_paused_request_that_is_cancelled_gives_everything_back() -> None:
    room = paused(session_id="s")
    room.events += room.engine.cancel("long")
    room.run()

    assert isinstance(room.ended["long"], Failed)
    assert room.ended["long"].usage.generated_tokens >= LEAST_GAIN


def test_a_paused_turn_that_is_cancelled_keeps_what_was_computed() -> None:
    room = paused(session_id="s")
    room.events += room.engine.cancel("long")

    (session,) = room.engine.command(DescribeSession("c", "s", "a")).sessions

    assert session.tokens >= len(PROMPT) + LEAST_GAIN
    assert not session.busy


def test_a_deadline_ends_a_paused_request_with_what_it_has() -> None:
    room = paused(deadline_s=(LEAST_GAIN + 25) * STEP_S)
    room.run()

    (completion,) = room.finished("long").completions
    assert "deadline" == completion.finish_reason
    assert expected_ids(long())[: len(completion.tokens)] == [record.token_id for record in completion.tokens]


def test_the_time_in_which_it_waited_is_told() -> None:
    room = with_one_pause(long())

    timings = room.finished("long").timings
    assert 99 * STEP_S < timings.paused_s < timings.decode_s
    assert 0.0 == room.finished("short").timings.paused_s


def test_a_step_that_fails_while_it_waits_does_not_fail_it() -> None:
    room = paused()
    room.model.fault = RuntimeError("injected")
    room.run()

    assert isinstance(room.ended["short"], Failed)
    assert expected_ids(long()) == ids_of(room.finished("long"))


def none_give_way(running: Iterable[GenerationRequest], waiting: GenerationRequest, before: int = LEAST_GAIN) -> Room:
    room = Room()
    room.submit(*running)
    room.step(before)
    room.submit(waiting)
    room.run()
    assert 0 == room.preemptions
    return room


def test_no_one_gives_way_to_a_request_of_the_same_key() -> None:
    none_give_way([long()], long("more"))


def test_without_keys_no_one_gives_way() -> None:
    none_give_way([long(key_id=None)], short(key_id=None))


@pytest.mark.parametrize("given", [{"sample_count": 2, "max_new_tokens": 120}, {"max_new_tokens": 2 * LEAST_GAIN}])
def test_several_texts_do_not_give_way_and_neither_does_one_that_ends_soon(given: dict[str, Any]) -> None:
    none_give_way([long(**given)], short(new=250))


def test_a_key_that_was_given_more_waits() -> None:
    """The short request's key has had four times what the long one's has."""
    room = Room()
    for number in range(4):
        room.submit(short(f"b{number}", new=LONG))
        room.run()
    room.submit(long())
    room.step(LEAST_GAIN)
    room.submit(short("again"))
    room.run()

    assert (0, "again") == (room.preemptions, list(room.ended)[-1])


def test_no_one_gives_way_in_vain() -> None:
    """A request that needs the whole cache waits where one of those that run may not be paused."""
    room = Room()
    room.submit(make_request(PROMPT, request_id="two", key_id="a", max_new_tokens=64, sample_count=2))
    room.submit(long(max_new_tokens=130))
    room.step(LEAST_GAIN - 2)
    room.submit(short(new=LONG))
    room.step(int(PATIENCE_S / STEP_S) + 5)

    assert 0 == room.preemptions


def test_the_one_that_was_admitted_last_gives_way_and_no_more_than_are_needed() -> None:
    room = Room(page_count=3 * PAGES)
    room.submit(long("first"), long("second"), long("third"))
    room.step(LEAST_GAIN + 4)
    room.submit(short(new=LONG))
    room.run()

    assert 1 == room.preemptions
    order = list(room.ended)
    assert order.index("first") < order.index("third")
    assert ["first", "second"] == [each for each in order if not room.finished(each).timings.paused_s][:2]


def test_two_keys_take_turns_and_do_not_chase_one_another() -> None:
    """Two requests that fill the cache each: every pause is paid for with the tokens of a turn."""
    room = Room()
    room.submit(long(), short(new=LONG))
    room.run()

    assert 1 <= room.preemptions <= 2 * LONG // LEAST_GAIN
    assert [expected_ids(long()), expected_ids(short(new=LONG))] == [
        ids_of(room.finished(name)) for name in ("long", "short")
    ]


def test_neither_of_two_keys_gets_far_ahead() -> None:
    """One key asks for one answer after another, the other one for a single one that is as long."""
    room = Room()
    room.submit(*(long(f"a{number}") for number in range(6)))
    room.step(LEAST_GAIN)
    room.submit(short(new=LONG))
    room.run()

    assert list(room.ended).index("short") <= 2
