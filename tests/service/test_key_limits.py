"""What a key may have under way and use in a minute, and when it may come again."""

import pytest

from service.errors import RateLimited
from service.key_limits import KeyLedger, KeyLimits
from service.request import Usage
from service.retrying import SPREAD
from tests.engine_fakes import HandClock, make_request


class Keys:
    """A ledger, with requests that are made as they are asked for."""

    def __init__(self, **limits: int) -> None:
        self.clock = HandClock()
        self.ledger = KeyLedger(KeyLimits(**limits), clock=self.clock)
        self._count = 0

    def ask(self, key_id: str | None = "a", tokens: int = 10) -> str:
        """Enter a request that may use so many tokens; answers its id."""
        self._count += 1
        request = make_request([2, 3], request_id=str(self._count), max_new_tokens=tokens - 2, key_id=key_id)
        self.ledger.check(request)
        self.ledger.enter(request)
        return request.id

    def refused(self, key_id: str | None = "a", tokens: int = 10) -> RateLimited:
        with pytest.raises(RateLimited) as refused:
            self.ask(key_id, tokens)
        return refused.value


def test_nothing_is_limited_unless_told() -> None:
    keys = Keys()

    assert 100 == len({keys.ask(tokens=10**6) for _ in range(100)})


def test_requests_under_way_are_bounded() -> None:
    keys = Keys(max_requests=2)
    keys.ask()
    keys.ask()

    refused = keys.refused()

    assert (429, "too_many_requests", {"max_requests": 2}) == (refused.status, refused.code, refused.allowed)


def test_a_request_that_ended_makes_room() -> None:
    keys = Keys(max_requests=1)
    keys.ledger.settle(keys.ask(), Usage())

    assert keys.ask()


def test_what_one_key_does_limits_no_other() -> None:
    keys = Keys(max_requests=1, tokens_per_minute=10)
    keys.ask("a")

    assert keys.ask("b")


def test_callers_without_a_key_are_one() -> None:
    keys = Keys(max_requests=1)
    keys.ask(None)

    assert keys.refused(None)


def test_the_wait_for_a_free_place_is_learnt_from_requests_that_ended() -> None:
    keys = Keys(max_requests=1)
    for _ in range(40):
        request_id = keys.ask()
        keys.clock.now += 20
        keys.ledger.settle(request_id, Usage())
    keys.ask()

    waits = {keys.refused().retry_after_s or 0 for _ in range(100)}

    assert 20 <= min(waits) < max(waits) <= 20 * (1 + SPREAD) + 1


def test_a_minutes_tokens_can_be_used_at_once_and_come_back_evenly() -> None:
    keys = Keys(tokens_per_minute=60)
    keys.ask(tokens=60)
    keys.refused(tokens=10)
    keys.clock.now += 9.9
    keys.refused(tokens=10)
    keys.clock.now += 0.2

    assert keys.ask(tokens=10)


def test_the_refusal_says_when_there_will_be_tokens() -> None:
    keys = Keys(tokens_per_minute=60)
    keys.ask(tokens=60)

    refused = keys.refused(tokens=30)

    assert ("tokens_per_minute_exceeded", {"tokens_per_minute": 60}) == (refused.code, refused.allowed)
    assert refused.retry_after_s is not None
    assert 30 <= refused.retry_after_s <= 30 * (1 + SPREAD) + 1
    keys.clock.now += refused.retry_after_s
    assert keys.ask(tokens=30)


def test_not_all_are_told_to_return_at_once() -> None:
    keys = Keys(tokens_per_minute=60)
    keys.ask(tokens=60)

    assert 1 < len({keys.refused(tokens=60).retry_after_s for _ in range(100)})


def test_tokens_that_were_not_used_are_given_back() -> None:
    keys = Keys(tokens_per_minute=60)
    keys.ledger.settle(keys.ask(tokens=60), Usage(prompt_tokens=2, generated_tokens=8))
    keys.refused(tokens=51)

    assert keys.ask(tokens=50)


def test_more_than_a_minutes_worth_is_paid_for_afterwards() -> None:
    """Otherwise it could never be asked for."""
    keys = Keys(tokens_per_minute=60)
    keys.ledger.settle(keys.ask(tokens=180), Usage(2, 178))
    keys.clock.now += 119
    keys.refused(tokens=10)
    keys.clock.now += 12

    assert keys.ask(tokens=10)


def test_tokens_are_not_saved_up() -> None:
    keys = Keys(tokens_per_minute=60)
    keys.ask(tokens=10)
    keys.clock.now += 3600
    keys.ask(tokens=60)

    assert keys.refused(tokens=2)
