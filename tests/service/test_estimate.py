"""What a request would cost, told without making it."""

import pytest

from model.kv_cache import PAGE_SIZE
from service.admission import Ledger
from service.errors import Overloaded, SessionBusy
from service.key_limits import KeyLedger, KeyLimits
from service.keys import Keys
from service.request import Usage
from tests.engine_fakes import HandClock, make_request
from tests.fake_runtime import FakeRuntime, make_service
from tests.service.door import JSON, Client

BODY = {"prompt": "abc", "max_new_tokens": 8, "num_return": 2, "seed": 1}


def test_a_request_that_would_be_accepted_is_priced() -> None:
    answer = Client().post("/estimate", BODY)

    assert 200 == answer.status
    assert {
        "model": "tiny",
        "prompt_tokens": 3,
        "max_generated_tokens": 16,
        "cache_positions": 64,
        "cache_bytes": 4096,
        "expected_wait_s": 1.5,
        "status": 200,
        "retry_after_s": None,
        "error": None,
    } == answer.json


def test_tokens_that_are_resumed_after_are_not_generated() -> None:
    body = {"prompt": "abc", "max_new_tokens": 8, "seed": 1, "resume": {"token_ids": [3, 4, 5]}}

    assert 5 == Client().post("/estimate", body).json["max_generated_tokens"]


def test_a_request_that_would_be_refused_is_told_how() -> None:
    runtime = FakeRuntime()
    runtime.refusal = Overloaded("the queue is full", retry_after_s=7)

    answer = Client(runtime).post("/estimate", BODY)

    told = answer.json
    assert (200, 503, 7) == (answer.status, told["status"], told["retry_after_s"])
    assert ("overloaded", answer.headers["x-request-id"]) == (told["error"]["code"], told["error"]["request_id"])


def test_nothing_is_asked_of_the_engine() -> None:
    runtime = FakeRuntime()

    Client(runtime).post("/estimate", BODY)

    assert [] == runtime.requests


@pytest.mark.parametrize(("body", "status"), [(b"{", 400), ({"prompt": "abc", "seed": -1}, 422), ({"x": 1}, 422)])
def test_what_generate_does_not_understand_is_refused_alike(body: object, status: int) -> None:
    client = Client()

    errors = [client.post(path, body).error for path in ("/estimate", "/generate")]

    assert status == client.post("/estimate", body).status
    assert {**errors[0], "request_id": None} == {**errors[1], "request_id": None}


def test_the_limits_of_the_key_that_asks_are_looked_at() -> None:
    runtime, keys = FakeRuntime(), Keys([b"one"])

    Client(service=make_service(runtime, keys=keys)).post("/estimate", BODY, JSON | {"authorization": "Bearer one"})

    assert [keys.id_of(b"one")] == [request.key_id for request in runtime.quoted]


def make_ledger(clock: HandClock, **limits: int) -> Ledger:
    keys = KeyLedger(KeyLimits(**limits), clock=clock)
    return Ledger(page_count=4, max_queue_tokens=16 * PAGE_SIZE, max_sessions=2, clock=clock, keys=keys)


def test_a_quote_enters_nothing() -> None:
    ledger = make_ledger(HandClock(), max_requests=1)

    quotes = [ledger.quote(make_request([2], session_id="s")) for _ in range(3)]

    assert [None] * 3 == [quote.refusal for quote in quotes]
    assert 0 == ledger.outstanding_tokens


def test_an_empty_cache_means_no_wait() -> None:
    assert 0.0 == make_ledger(HandClock()).quote(make_request([2])).expected_wait_s


def test_the_wait_is_judged_by_what_ended_lately() -> None:
    clock = HandClock()
    ledger = make_ledger(clock)
    ledger.admit(make_request([2], request_id="a"))
    assert ledger.quote(make_request(range(40), request_id="q")).expected_wait_s is None
    ledger.settle("a", Usage())
    ledger.admit(make_request([2], request_id="b"))

    # 3 pages ended in 30 seconds; 3 are held, and 4 needed of 4.
    assert 30.0 == ledger.quote(make_request(range(40), request_id="q")).expected_wait_s


def test_a_busy_session_would_be_refused() -> None:
    ledger = make_ledger(HandClock())
    ledger.admit(make_request([2], request_id="a", session_id="s"))

    assert isinstance(ledger.quote(make_request([2], request_id="b", session_id="s")).refusal, SessionBusy)
