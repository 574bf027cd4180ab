"""Who is let in."""

import pytest

from model.kv_cache import PAGE_SIZE
from service.admission import LONGEST_EXPECTED_S, Ledger
from service.errors import InvalidField, Overloaded, RateLimited, SessionBusy
from service.key_limits import KeyLedger, KeyLimits
from service.request import Usage
from service.retrying import SPREAD, SPREAD_S
from tests.engine_fakes import HandClock, make_request


def make_ledger(
    *,
    page_count: int = 100,
    max_queue_tokens: int = 320,
    max_sessions: int = 2,
    keys: KeyLedger | None = None,
    key_pages: int | None = None,
) -> Ledger:
    return Ledger(
        page_count=page_count,
        max_queue_tokens=max_queue_tokens,
        max_sessions=max_sessions,
        clock=HandClock(),
        keys=keys,
        key_pages=key_pages,
    )


def test_what_can_never_fit_is_refused_with_both_numbers() -> None:
    ledger = make_ledger(page_count=5)

    with pytest.raises(InvalidField, match=r"192 cache positions.*160") as refused:
        ledger.admit(make_request(range(100), max_new_tokens=10))

    assert (refused.value.code, refused.value.param) == ("exceeds_cache", "max_new_tokens")


def test_an_empty_server_takes_what_is_larger_than_its_queue() -> None:
    ledger = make_ledger(max_queue_tokens=32)

    ledger.admit(make_request(range(300)))

    assert ledger.outstanding_tokens == (10 + 2) * PAGE_SIZE


def test_a_full_queue_refuses_with_a_time_to_return() -> None:
    ledger = make_ledger()
    ledger.admit(make_request(range(100), request_id="a"))

    with pytest.raises(Overloaded) as refused:
        ledger.admit(make_request(range(200), request_id="b"))

    assert refused.value.retry_after_s is not None
    assert 1 <= refused.value.retry_after_s <= SPREAD_S


def test_the_time_to_return_is_that_until_there_is_room_at_the_rate_of_late_or_a_minute() -> None:
    ledger = make_ledger()
    ledger.admit(make_request([2], request_id="a"))
    ledger.settle("a", Usage())
    ledger.admit(make_request(range(100), request_id="b"))

    with pytest.raises(Overloaded) as refused:
        ledger.admit(make_request(range(400), request_id="c"))

    assert refused.value.retry_after_s is not None
    assert LONGEST_EXPECTED_S <= refused.value.retry_after_s <= LONGEST_EXPECTED_S * (1 + SPREAD)


def test_an_ended_request_makes_room() -> None:
    ledger = make_ledger()
    ledger.admit(make_request(range(200), request_id="a"))
    ledger.settle("a", Usage())

    ledger.admit(make_request(range(200), request_id="b"))

    assert ledger.outstanding_tokens == (7 + 2) * PAGE_SIZE


def test_a_session_has_one_turn_at_a_time() -> None:
    ledger = make_ledger()
    ledger.admit(make_request([2], request_id="a", session_id="s"))

    with pytest.raises(SessionBusy):
        ledger.admit(make_request([2], request_id="b", session_id="s"))

    ledger.settle("a", Usage())
    ledger.admit(make_request([2], request_id="b", session_id="s"))


def test_a_refused_request_leaves_no_trace() -> None:
    ledger = make_ledger(max_sessions=1)
    ledger.admit(make_request([2], request_id="a", session_id="s"))
    before = ledger.outstanding_tokens

    with pytest.raises(Overloaded):
        ledger.admit(make_request([2], request_id="b", session_id="t"))
    with pytest.raises(SessionBusy):
        ledger.admit(make_request([2], request_id="c", session_id="s"))

    assert ledger.outstanding_tokens == before


def test_keys_may_use_the_same_name_for_a_session_at_once() -> None:
    ledger = make_ledger(max_queue_tokens=3200)
    ledger.admit(make_request([2], request_id="a", session_id="s", key_id="a"))

    ledger.admit(make_request([2], request_id="b", session_id="s", key_id="b"))

    with pytest.raises(SessionBusy):
        ledger.admit(make_request([2], request_id="c", session_id="s", key_id="b"))


def test_the_bound_on_sessions_is_each_keys_own() -> None:
    ledger = make_ledger(max_queue_tokens=3200, max_sessions=1)
    ledger.admit(make_request([2], request_id="a", session_id="s", key_id="a"))
    ledger.admit(make_request([2], request_id="b", session_id="s", key_id="b"))

    with pytest.raises(Overloaded):
        ledger.admit(make_request([2], request_id="c", session_id="t", key_id="b"))


def test_limits_of_keys_hold_over_all_models() -> None:
    keys = KeyLedger(KeyLimits(max_requests=1), clock=HandClock())
    first, second = make_ledger(keys=keys), make_ledger(keys=keys)
    first.admit(make_request([2], request_id="a", key_id="a"))

    with pytest.raises(RateLimited):
        second.admit(make_request([2], request_id="b", key_id="a"))
    first.settle("a", Usage())
    second.admit(make_request([2], request_id="c", key_id="a"))


def test_what_is_refused_for_the_queue_does_not_count_for_its_key() -> None:
    ledger = make_ledger(keys=KeyLedger(KeyLimits(max_requests=2), clock=HandClock()))
    ledger.admit(make_request(range(100), request_id="a", key_id="a"))
    with pytest.raises(Overloaded):
        ledger.admit(make_request(range(200), request_id="b", key_id="a"))

    ledger.admit(make_request([2], request_id="c", key_id="a"))


def test_a_key_holds_no_more_than_its_share_of_the_cache() -> None:
    ledger = make_ledger(max_queue_tokens=3200, key_pages=5)
    ledger.admit(make_request([2], request_id="a", key_id="a"))
    ledger.admit(make_request([2], request_id="b", key_id="b"))

    with pytest.raises(RateLimited) as refused:
        ledger.admit(make_request([2], request_id="c", key_id="a"))

    assert ("cache_share_exceeded", {"max_cache_positions": 160}) == (refused.value.code, refused.value.allowed)
    assert 1 <= (refused.value.retry_after_s or 0) <= SPREAD_S
    ledger.settle("a", Usage())
    ledger.admit(make_request([2], request_id="d", key_id="a"))


def test_what_exceeds_the_share_of_a_key_can_never_fit() -> None:
    ledger = make_ledger(key_pages=5)

    with pytest.raises(InvalidField, match=r"192 cache positions.*a key may hold 160"):
        ledger.admit(make_request(range(100), max_new_tokens=10, key_id="a"))
