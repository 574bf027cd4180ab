"""Records whose request was changed after they were made: what is said of them, and of those that were not."""

from typing import Any

import pytest

from tests.fake_runtime import FakeRuntime, plain
from tests.service.door import Client
from tests.service.test_replay_routes import recorded, replayed


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def client(runtime: FakeRuntime) -> Client:
    return Client(runtime)


EDITS: dict[str, dict[str, Any]] = {
    "fewer tokens": {"max_new_tokens": 19},
    "more beams": {"beam_width": 5},
    "a temperature": {"temperature": 0.5},
    "a bias fewer": {"logit_bias": {"5": 1}},
    "a constraint": {"constraint": {"regex": "a+"}},
}


@pytest.mark.parametrize("name", EDITS)
def test_a_record_whose_request_was_edited_contradicts_itself(client: Client, runtime: FakeRuntime, name: str) -> None:
    record = recorded(client, max_new_tokens=20, logit_bias={"5": 1, "6": 1})
    record["request"].update(EDITS[name])
    runtime.script = plain("moon")

    reasons = replayed(client, record)["reasons"]

    assert "contradictory_record" == reasons[0]
    assert "other_parameters" not in reasons


FIELDS: dict[str, dict[str, Any]] = {
    "whole numbers for floats": {"temperature": 1, "repetition_penalty": 2, "logit_bias": {"5": 1}},
    "objects with defaults": {"logprobs": {"top": 2}, "constraint": {"regex": "a+"}},
    "lists": {"stop": ["x"], "banned_token_ids": [6, 5, 6]},
    "null": {"temperature": None, "max_new_tokens": None},
    "beams": {"beam_width": 2, "temperature": 0},
    "what is not replayed": {"session_id": "s", "deadline_ms": 5, "stream": True, "speculation": "auto"},
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_record_as_it_was_made_does_not_contradict_itself(client: Client, runtime: FakeRuntime, name: str) -> None:
    record = recorded(client, **FIELDS[name])
    runtime.script = plain("moon")

    assert ["best_effort"] == replayed(client, record)["reasons"]


def test_a_constraint_that_this_maker_would_not_have_taken_is_no_record(client: Client) -> None:
    """The fingerprint of a constrained answer names more, which tells no other maker from this one."""
    record = recorded(client)
    record["request"]["constraint"] = {"regex": "["}

    answer = client.post("/replay", record)

    assert (422, "request.constraint.regex") == (answer.status, answer.error["param"])
