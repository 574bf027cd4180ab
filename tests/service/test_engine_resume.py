"""Resumed answers in the engine: what runs, what is kept and counted, whatever else is asked at the same time."""

from dataclasses import dataclass, field, replace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from model.decoding.params import LogprobOptions
from service.request import Delta, Failed, Finished, GenerationRequest, ListSessions
from tests.engine_fakes import HandClock, expected_ids, ids_of, make_engine, make_request, run, run_until_idle


def after(request: GenerationRequest, count: int) -> GenerationRequest:
    """The request after so many tokens of its answer."""
    ids = expected_ids(request)
    return replace(request, resumed_ids=tuple(ids[:count]), resumed_ends=count == len(ids))


cuts = st.tuples(st.integers(1, 70), st.integers(1, 40), st.integers(0, 40), st.booleans(), st.booleans())


@given(st.lists(cuts, min_size=1, max_size=5))
def test_answers_go_on_beside_others_as_alone(asked: list[tuple[int, int, int, bool, bool]]) -> None:
    engine, model = make_engine()
    requests = [
        after(
            make_request(
                range(2, 2 + prompt % 30 + 1),
                request_id=f"r{number}",
                max_new_tokens=new,
                seed=number,
                use_cache=use_cache,
                session_id=f"s{number}" if in_session else None,
            ),
            min(cut, new),
        )
        for number, (prompt, new, cut, use_cache, in_session) in enumerate(asked)
    ]
    for request in requests:
        engine.submit(request, 0.0)
    ended = {event.request_id: event for event in run_until_idle(engine) if isinstance(event, Finished | Failed)}

    assert [expected_ids(request) for request in requests] == [ids_of(ended[request.id]) for request in requests]
    assert 0 == model.misread
    engine.check_books()


def test_only_what_is_not_cached_runs() -> None:
    engine, _ = make_engine()
    request = make_request(range(2, 30), max_new_tokens=40)
    run(engine, request)

    terminal = run(engine, after(request, 20))

    assert (47, 1) == (terminal.cache.reused_tokens, terminal.cache.computed_tokens)


def test_cached_tokens_are_counted_among_the_prompt_s() -> None:
    engine, _ = make_engine()
    request = make_request(range(2, 30), max_new_tokens=40)
    run(engine, request)

    assert 28 == run(engine, after(request, 20)).usage.cached_tokens


def test_a_whole_answer_waits_for_nothing() -> None:
    """It is answered before the first step, though all pages are taken."""
    engine, model = make_engine(page_count=4)
    engine.submit(make_request(range(2, 30), request_id="first", max_new_tokens=60), 0.0)
    engine.submit(after(make_request(range(2, 20), request_id="whole", max_new_tokens=9), 9), 0.0)

    events, _ = engine.step()

    assert ["whole"] == [event.request_id for event in events if isinstance(event, Finished)]
    assert 1 == len(model.batches)


def test_a_whole_answer_leaves_its_session_as_it_was() -> None:
    engine, _ = make_engine()
    request = make_request(range(2, 30), max_new_tokens=8, session_id="s")
    run(engine, request)
    before = engine.command(ListSessions("c")).sessions

    run(engine, after(request, 8))

    assert before == engine.command(ListSessions("c")).sessions


def test_a_resumed_turn_leaves_its_session_as_a_whole_one() -> None:
    request = make_request(range(2, 30), max_new_tokens=20, session_id="s")
    sessions = []
    for cut in (0, 7):
        engine, _ = make_engine()
        run(engine, after(request, cut))
        sessions.append(engine.command(ListSessions("c")).sessions)

    assert sessions[0] == sessions[1]


def test_the_stream_sends_new_tokens_and_goes_on_counting() -> None:
    engine, _ = make_engine()
    engine.submit(after(make_request(range(2, 9), max_new_tokens=6, streams=True), 4), 0.0)

    deltas = [event for event in run_until_idle(engine) if isinstance(event, Delta)]

    assert [(5, 1), (6, 1)] == [(delta.sent, len(delta.tokens)) for delta in deltas]


def test_a_deadline_before_the_first_new_token_fails() -> None:
    clock = HandClock()
    engine, _ = make_engine(clock=clock)
    request = after(make_request(range(2, 9), max_new_tokens=6, deadline_s=1.0), 4)
    engine.submit(request, clock.now)
    clock.now += 2.0

    (terminal,) = run_until_idle(engine)

    assert isinstance(terminal, Failed)
    assert "deadline_exceeded" == terminal.code


def test_a_cancelled_one_gives_everything_back() -> None:
    engine, _ = make_engine()
    request = replace(make_request(range(2, 9), max_new_tokens=60), use_cache=False)
    engine.submit(after(request, 40), 0.0)
    engine.step()

    engine.cancel(request.id)

    engine.check_books()


def test_log_probabilities_of_the_prompt_are_those_of_the_prompt_alone() -> None:
    options = LogprobOptions(prompt=True)
    request = make_request(range(2, 30), max_new_tokens=1, logprobs=options)
    engine, _ = make_engine()

    whole = run(engine, request)
    again = run(engine, replace(request, resumed_ids=tuple(ids_of(whole)), resumed_ends=True))

    assert whole.prompt == again.prompt


@dataclass(slots=True)
class Form:
    """Takes any token, and remembers which."""

    taken: list[int] = field(default_factory=list)
    failed: bool = False

    def advance(self, token_id: int) -> None:
        self.taken.append(token_id)


class Forms:
    """A constraint that is slow to follow, so that nobody should."""

    def begin(self, max_new_tokens: int) -> Form:
        raise AssertionError("the engine follows tokens that were followed at the door")


def test_a_form_that_was_followed_at_the_door_goes_on_from_there() -> None:
    request, form = make_request(range(2, 9), max_new_tokens=12), Form()
    ids = expected_ids(request)
    engine, _ = make_engine()

    finished = run(engine, replace(after(request, 8), constraint=cast(Any, Forms()), resumed_form=cast(Any, form)))

    assert (ids, ids[8:]) == (ids_of(finished), form.taken)
