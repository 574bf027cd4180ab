"""What one engine promises its callers: failures, deadlines, order and ends."""

import pytest

from model.kv_cache import BooksError
from service.request import (
    Delta,
    Failed,
    Finished,
    ListSessions,
)
from tests.engine_fakes import (
    NAN,
    HandClock,
    expected_ids,
    ids_of,
    make_engine,
    make_request,
    run,
    run_until_idle,
)

PROMPT = tuple(2 + index % 36 for index in range(600))


def test_a_nan_fails_its_own_request_only() -> None:
    engine, _ = make_engine()
    good = make_request(PROMPT[:40], request_id="good")
    engine.submit(good, 0.0)
    engine.submit(make_request((*PROMPT[:40], NAN), request_id="bad"), 0.0)

    events = {event.request_id: event for event in run_until_idle(engine) if not isinstance(event, Delta)}

    assert isinstance(events["bad"], Failed)
    assert events["bad"].code == "numerical_error"
    assert ids_of(events["good"]) == expected_ids(good)


def test_what_a_nan_may_have_spoilt_is_not_kept() -> None:
    engine, _ = make_engine()
    engine.submit(make_request((NAN, *PROMPT[:70]), request_id="bad"), 0.0)
    run_until_idle(engine)

    assert engine.step()[1].idle_pages == 0


def test_a_failing_step_fails_its_requests_and_no_later_ones() -> None:
    engine, model = make_engine()
    engine.submit(make_request(PROMPT[:40], request_id="unlucky"), 0.0)
    model.fault = RuntimeError("injected")

    failed = run_until_idle(engine)
    later = make_request(PROMPT[:40])

    assert [(event.request_id, event.code) for event in failed if isinstance(event, Failed)] == [
        ("unlucky", "engine_failed")
    ]
    assert ids_of(run(engine, later)) == expected_ids(later)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_cancelled_request_ends_before_the_next_step(steps: int) -> None:
    """Queued, prefilling and decoding alike."""
    engine, model = make_engine()
    engine.submit(make_request(PROMPT[:100], session_id="s"), 0.0)
    for _ in range(steps):
        engine.step()
    ran = len(model.batches)

    events = engine.cancel("r")
    engine.step()

    assert [event.code for event in events if isinstance(event, Failed)] == ["cancelled"]
    assert engine.is_idle
    assert len(model.batches) == ran
    assert engine.step()[1].leased_pages == 0


def test_a_deadline_before_the_first_token_fails_the_request() -> None:
    clock = HandClock()
    engine, _ = make_engine(clock=clock)
    engine.submit(make_request(PROMPT[:10], deadline_s=1.0), clock())
    clock.now += 2

    (event,) = run_until_idle(engine)

    assert isinstance(event, Failed)
    assert event.code == "deadline_exceeded"


def test_a_deadline_after_the_first_token_returns_what_there_is() -> None:
    clock = HandClock()
    engine, _ = make_engine(clock=clock)
    request = make_request(PROMPT[:10], deadline_s=1.0, sample_count=2, max_new_tokens=50)
    engine.submit(request, clock())
    for _ in range(5):
        engine.step()
    clock.now += 2

    terminal = run_until_idle(engine)[-1]

    assert isinstance(terminal, Finished)
    assert [completion.finish_reason for completion in terminal.completions] == ["deadline"] * 2
    assert ids_of(terminal) == expected_ids(request)[:5]


def test_a_stop_token_ends_the_text_before_itself() -> None:
    engine, _ = make_engine()
    free = make_request(PROMPT[:10], max_new_tokens=20)
    truth = expected_ids(free)
    position = next(index for index in range(3, 20) if truth[index] not in truth[:index])

    finished = run(engine, make_request(PROMPT[:10], max_new_tokens=20, stop_token_ids=(truth[position],)))

    assert ids_of(finished) == truth[: position + 1]
    assert finished.completions[0].finish_reason == "stop"
    assert len(finished.completions[0].text) == position


def test_deltas_join_to_the_text_and_count_their_tokens() -> None:
    engine, _ = make_engine()
    engine.submit(make_request(PROMPT[:40], sample_count=2, streams=True, max_new_tokens=30), 0.0)

    events = run_until_idle(engine)

    terminal = events[-1]
    assert isinstance(terminal, Finished)
    for completion in terminal.completions:
        deltas = [event for event in events if isinstance(event, Delta) and event.index == completion.index]
        assert "".join(delta.text for delta in deltas) == completion.text
        assert tuple(token for delta in deltas for token in delta.tokens) == completion.tokens
        assert deltas[-1].sent == len(completion.tokens)


def test_requests_start_in_the_order_they_came() -> None:
    engine, model = make_engine(page_count=12)
    for name in ("first", "second", "third"):
        engine.submit(make_request(PROMPT[:200], request_id=name, use_cache=False), 0.0)

    ended = [event.request_id for event in run_until_idle(engine)]

    assert ended == ["first", "second", "third"]
    assert all(len(batch.segments) == 1 for batch in model.batches)


def test_a_short_request_leaves_while_a_long_one_stays() -> None:
    engine, _ = make_engine()
    engine.submit(make_request(PROMPT[:5], request_id="long", max_new_tokens=30), 0.0)
    engine.submit(make_request(PROMPT[:5], request_id="short", max_new_tokens=3), 0.0)

    reports = [engine.step() for _ in range(4)]

    assert [event.request_id for events, _ in reports for event in events] == ["short"]
    assert reports[-1][1].decode_rows == 1


def test_sessions_outlive_their_time_only_while_they_are_busy() -> None:
    clock = HandClock()
    engine, _ = make_engine(clock=clock, session_ttl_s=10)
    run(engine, make_request(PROMPT[:40], session_id="idle"))
    engine.submit(make_request(PROMPT[:40], session_id="busy"), clock())
    clock.now += 20

    _, report = engine.step()

    assert [info.id for info in engine.command(ListSessions("l")).sessions] == ["busy"]
    assert report.evicted_tokens.keys() == {"ttl"}


def test_past_the_limit_the_session_longest_unused_is_forgotten() -> None:
    clock = HandClock()
    engine, _ = make_engine(clock=clock, max_sessions=2)
    for name in ("a", "b", "c"):
        clock.now += 1
        run(engine, make_request(PROMPT[:40], session_id=name))

    assert [info.id for info in engine.command(ListSessions("l")).sessions] == ["b", "c"]


def fail(*_: object, **__: object) -> None:
    raise BooksError("injected")


def test_after_its_own_fault_the_engine_begins_again_with_everyone_answered() -> None:
    engine, _ = make_engine()
    engine.submit(make_request(PROMPT[:100], session_id="s"), 0.0)
    engine.step()

    events, report = engine.recover("engine_failed")

    assert [event.code for event in events if isinstance(event, Failed)] == ["engine_failed"]
    assert (report.outcomes, report.running, report.queued) == (("engine_failed",), 0, 0)
    later = make_request(PROMPT[:100], session_id="s")
    assert ids_of(run(engine, later)) == expected_ids(later)


def test_what_had_ended_before_the_engines_own_fault_keeps_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = make_engine()
    engine.submit(make_request(PROMPT[:5], max_new_tokens=1), 0.0)
    monkeypatch.setattr(engine, "check_books", fail)
    with pytest.raises(BooksError):
        engine.step()

    events, report = engine.recover("engine_failed")

    assert [type(event) for event in events] == [Finished]
    assert report.outcomes == ("length",)


def test_a_request_that_fails_while_it_is_queued_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = make_engine()
    monkeypatch.setattr("service.sessions.Sessions.open", fail)
    with pytest.raises(BooksError):
        engine.submit(make_request(PROMPT[:5], session_id="s"), 0.0)

    (event,), _ = engine.recover("engine_failed")

    assert isinstance(event, Failed)


def test_a_request_that_fails_while_it_is_admitted_is_answered_for_what_was_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, _ = make_engine()
    engine.submit(make_request(PROMPT[:5]), 0.0)
    monkeypatch.setattr("service.lease.Lease.attach", fail)
    with pytest.raises(BooksError):
        engine.step()

    (event,), report = engine.recover("engine_failed")

    assert isinstance(event, Failed)
    assert event.usage.prompt_tokens == report.prompt_tokens


def test_stopping_ends_and_reports_everything() -> None:
    engine, _ = make_engine()
    engine.submit(make_request(PROMPT[:5]), 0.0)

    events, report = engine.stop()

    assert [event.code for event in events if isinstance(event, Failed)] == ["engine_stopped"]
    assert report.outcomes == ("engine_stopped",)
