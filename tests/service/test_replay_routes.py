"""`POST /replay` as a client meets it: what is run, what is said, and what is no record."""

import asyncio
import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from service import __version__
from service.errors import Overloaded
from service.json_body import MAX_DEPTH
from tests.fake_runtime import ENGINE_INFO, FakeRuntime, failing, make_service, plain
from tests.service.door import Client


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def client(runtime: FakeRuntime) -> Client:
    return Client(runtime)


def recorded(client: Client, **fields: Any) -> dict[str, Any]:
    """A record of what the fake answers to these fields."""
    request = {"prompt": "abc", "seed": 1, **fields}
    answer = client.post("/generate", {**request, "stream": False})
    assert 200 == answer.status, answer.body
    return {"request": request, "answer": answer.json}


def replayed(client: Client, record: Any) -> dict[str, Any]:
    answer = client.post("/replay", record)
    assert 200 == answer.status, answer.body
    result: dict[str, Any] = answer.json
    return result


def test_a_record_that_holds_is_equal(client: Client) -> None:
    result = replayed(client, recorded(client, logprobs={"top": 2, "prompt": True}))

    assert (True, None, []) == (result["equal"], result["first_difference"], result["reasons"])


def test_the_verdict_has_exactly_the_promised_fields(client: Client) -> None:
    assert {"equal", "first_difference", "reasons", "notes", "dropped", "refusal", "answer"} == set(
        replayed(client, recorded(client))
    )


def test_the_new_answer_comes_along(client: Client) -> None:
    record = recorded(client)

    answer = replayed(client, record)["answer"]

    assert record["answer"].keys() == answer.keys()
    assert ("sunrise", record["answer"]["token_ids"]) == (answer["text"], answer["token_ids"])
    assert record["answer"]["id"] != answer["id"]


def test_the_first_token_that_differs_is_named(client: Client, runtime: FakeRuntime) -> None:
    record = recorded(client)
    expected = record["answer"]["token_ids"]
    runtime.script = plain("sunset!")

    result = replayed(client, record)

    assert not result["equal"]
    assert {
        "field": "token_ids",
        "index": 0,
        "position": 3,
        "expected": expected[3],
        "found": result["answer"]["token_ids"][3],
    } == result["first_difference"]


def test_what_made_the_answers_is_compared(client: Client, runtime: FakeRuntime) -> None:
    record = recorded(client)
    record["answer"]["model"] = "other"
    record["answer"]["reproducibility"] = {"level": "bitwise", "fingerprint": "x", "version": "0.0.1"}
    runtime.script = plain("moon")

    reasons = replayed(client, record)["reasons"]

    assert ["other_model", "other_fingerprint", "other_version", "best_effort"] == reasons


def test_a_request_is_replayed_as_it_was_sent(client: Client, runtime: FakeRuntime) -> None:
    record = recorded(client, temperature=0.5, num_return=2, stop=["x"], banned_token_ids=[3])
    sent = runtime.requests[0]

    replayed(client, record)

    assert sent == replace(runtime.requests[1], id=sent.id)


@pytest.mark.parametrize(
    ("name", "value", "of_request"),
    [
        ("session_id", "s", {"session_id": None}),
        ("deadline_ms", 5, {"deadline_s": None}),
        ("stream", True, {}),
        ("resume", {"token_ids": [5]}, {"resumed_ids": ()}),
    ],
)
def test_what_must_not_change_the_text_is_not_replayed(
    client: Client, runtime: FakeRuntime, name: str, value: Any, of_request: dict[str, Any]
) -> None:
    """What it was sent with is in the record alone."""
    record = recorded(client, **{name: value})

    result = replayed(client, record)

    sent, again = runtime.requests
    assert again == replace(sent, id=again.id, streams=False, **of_request)
    assert [name] == result["dropped"]


def test_the_name_of_a_model_that_is_not_served_is_not_replayed(client: Client) -> None:
    """So that a record of another model is run, and not refused by its name."""
    record = recorded(client, model="tiny")
    record["request"]["model"] = record["answer"]["model"] = "other"

    result = replayed(client, record)

    assert (True, ["model"]) == (result["equal"], result["dropped"])


def test_a_way_to_guess_is_not_replayed(client: Client, runtime: FakeRuntime) -> None:
    """So that a record made with a draft model can be run where there is none."""
    record = recorded(client)
    record["request"]["speculation"] = "draft"

    result = replayed(client, record)

    assert (True, ["speculation"]) == (result["equal"], result["dropped"])
    assert "auto" == runtime.requests[-1].parameters.speculation


def test_nothing_is_said_to_be_left_out_where_nothing_is(client: Client) -> None:
    assert [] == replayed(client, recorded(client))["dropped"]


def test_a_seed_that_was_drawn_is_taken_from_the_answer(client: Client, runtime: FakeRuntime) -> None:
    record = recorded(client)
    record["answer"]["seed"] = 77
    del record["request"]["seed"]

    replayed(client, record)

    assert 77 == runtime.requests[-1].parameters.seed


def test_the_replay_is_admitted_as_any_request(client: Client, runtime: FakeRuntime) -> None:
    record = recorded(client)
    runtime.refusal = Overloaded("the queue is full", retry_after_s=4)

    answer = client.post("/replay", record)

    assert (503, "overloaded", "4") == (answer.status, answer.error["code"], answer.headers["retry-after"])


def test_a_replay_that_fails_is_answered_as_any_request(client: Client, runtime: FakeRuntime) -> None:
    record = recorded(client)
    runtime.script = failing("numerical_error")

    answer = client.post("/replay", record)

    assert (500, "numerical_error") == (answer.status, answer.error["code"])


def test_a_long_record_is_read_beside_the_event_loop_with_the_same_result(client: Client) -> None:
    record = recorded(client, logprobs={"top": 20})
    record["answer"]["note"] = "x" * 10_000

    assert replayed(client, record)["equal"]


def test_a_record_may_hold_a_request_of_the_greatest_depth(client: Client) -> None:
    record = recorded(client)
    record["answer"]["deep"] = json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)

    assert replayed(client, record)["equal"]


def another_model_of(record: dict[str, Any]) -> dict[str, Any]:
    other = copy.deepcopy(record)
    other["answer"]["reproducibility"]["fingerprint"] = "x"
    return other


def test_a_request_that_another_model_took_and_this_one_does_not_is_a_verdict(client: Client) -> None:
    record = another_model_of(recorded(client))
    record["request"]["max_new_tokens"] = record["answer"]["parameters"]["max_new_tokens"] = 100

    result = replayed(client, record)

    assert (False, None, None) == (result["equal"], result["first_difference"], result["answer"])
    assert ["other_fingerprint", "parameters_not_accepted"] == result["reasons"]
    assert ("out_of_range", "request.max_new_tokens") == (result["refusal"]["code"], result["refusal"]["param"])


def test_a_request_that_the_recorded_model_itself_would_not_take_is_no_record(client: Client) -> None:
    record = recorded(client)
    record["request"]["max_new_tokens"] = 100

    answer = client.post("/replay", record)

    assert (422, "request.max_new_tokens") == (answer.status, answer.error["param"])


def test_a_constraint_is_part_of_what_made_an_answer(client: Client) -> None:
    """Its masks too are made by something that has a version."""
    record = recorded(client, constraint={"choice": ["ab"]})
    record["request"]["max_new_tokens"] = 100

    answer = client.post("/replay", record)

    assert (422, "request.max_new_tokens") == (answer.status, answer.error["param"])


def test_an_explanation_too_few_is_refused(client: Client) -> None:
    record = recorded(client, explain=True)
    record["answer"]["explain"].pop()

    answer = client.post("/replay", record)

    assert (422, "answer.explain") == (answer.status, answer.error["param"])


def without(record: Any, *path: Any) -> Any:
    *parents, last = path
    changed = copy.deepcopy(record)
    part = changed
    for step in parents:
        part = part[step]
    del part[last]
    return changed


def with_(record: Any, value: Any, *path: Any) -> Any:
    *parents, last = path
    changed = copy.deepcopy(record)
    part = changed
    for step in parents:
        part = part[step]
    part[last] = value
    return changed


BAD: dict[str, tuple[Any, str, str]] = {
    "a temperature": ((9, "request", "temperature"), "request.temperature", "out_of_range"),
    "an unknown field": ((1, "request", "temprature"), "request.temprature", "unknown_field"),
    "two prompts": (([5], "request", "prompt_tokens"), "request.prompt_tokens", "invalid_combination"),
    "an id of no token": (([10**6], "request", "stop_token_ids"), "request.stop_token_ids.0", "out_of_range"),
    "another seed": ((2, "request", "seed"), "request.seed", "invalid_combination"),
    "a seed of text": (("1", "answer", "seed"), "answer.seed", "invalid_type"),
    "ids of text": ((["a"], "answer", "token_ids"), "answer.token_ids.0", "invalid_type"),
    "a reason for an end that does not exist": (
        ("no", "answer", "finish_reason"),
        "answer.finish_reason",
        "invalid_value",
    ),
    "a log-probability too few": (([], "answer", "logprobs"), "answer.logprobs", "invalid_combination"),
    "no choices": (([], "answer", "choices"), "answer.choices", "empty"),
    "a choice of nothing": (([{}], "answer", "choices"), "answer.choices.0.text", "missing"),
    "a third part": ((1, "note"), "note", "unknown_field"),
    "an answer that is none": (("a", "answer"), "answer", "invalid_type"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_record_is_refused_by_the_name_of_its_field(client: Client, name: str) -> None:
    (value, *path), param, code = BAD[name]

    answer = client.post("/replay", with_(recorded(client), value, *path))

    assert (422, param, code) == (answer.status, answer.error["param"], answer.error["code"])


@pytest.mark.parametrize(
    "path",
    [
        ("request",),
        ("answer",),
        ("answer", "text"),
        ("answer", "token_ids"),
        ("answer", "finish_reason"),
        ("answer", "usage"),
        ("answer", "usage", "generated_tokens"),
        ("answer", "seed"),
        ("answer", "model"),
        ("answer", "reproducibility"),
        ("answer", "reproducibility", "fingerprint"),
        ("answer", "reproducibility", "level"),
    ],
)
def test_a_part_of_a_record_that_is_missing_is_named(client: Client, path: tuple[str, ...]) -> None:
    answer = client.post("/replay", without(recorded(client), *path))

    assert (422, "missing", ".".join(path)) == (answer.status, answer.error["code"], answer.error["param"])


@pytest.mark.parametrize(
    "path",
    [
        ("answer", "id"),
        ("answer", "timings"),
        ("answer", "cache"),
        ("answer", "parameters"),
        ("answer", "logprobs"),
        ("answer", "prompt_logprobs"),
        ("answer", "reproducibility", "version"),
    ],
)
def test_a_part_that_is_not_compared_may_be_missing(client: Client, path: tuple[str, ...]) -> None:
    assert replayed(client, without(recorded(client), *path))["equal"]


@pytest.mark.parametrize("body", [b"[]", b"3", b"null"])
def test_a_body_that_is_no_object_is_no_record(client: Client, body: bytes) -> None:
    answer = client.post("/replay", body)

    assert (422, "invalid_type") == (answer.status, answer.error["code"])


def test_the_refused_value_is_never_repeated(client: Client) -> None:
    record = with_(recorded(client), "canary", "request", "temperature")

    assert b"canary" not in client.post("/replay", record).body


def test_a_client_that_goes_away_cancels_its_replay(runtime: FakeRuntime) -> None:
    client = Client(runtime)
    record = json.dumps(recorded(client)).encode()
    runtime.script = lambda request: []

    asyncio.run(
        client.call(
            "POST",
            "/replay",
            record,
            {"content-type": "application/json"},
            leaves_when=lambda answer: len(runtime.tickets) == 2,
        )
    )

    assert 1 == runtime.tickets[1].cancels


def test_an_answer_names_the_version_that_a_replay_compares(client: Client) -> None:
    assert __version__ == recorded(client)["answer"]["reproducibility"]["version"]


def test_openapi_shows_both_forms_of_a_record(client: Client) -> None:
    body = client.get("/openapi.json").json["paths"]["/replay"]["post"]["requestBody"]

    one, several = body["content"]["application/json"]["schema"]["anyOf"]
    assert "temperature" in one["properties"]["request"]["properties"]
    assert "text" in one["properties"]["answer"]["required"]
    assert "choices" in several["properties"]["answer"]["properties"]


def test_a_record_of_another_context_is_judged_by_this_one() -> None:
    small = Client(service=make_service(engine_info=replace(ENGINE_INFO, context_length=4, fingerprint="small")))
    record = recorded(Client(FakeRuntime()), prompt="abcdef")

    result = replayed(small, record)

    assert ("context_length_exceeded", "request.prompt") == (result["refusal"]["code"], result["refusal"]["param"])
