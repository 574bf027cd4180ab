"""Messages, log-probabilities and response formats of chats: what they become, and how they are refused."""

from typing import Any

import pytest

from service.schemas import Constraint, Logprobs, read
from service.supported import MESSAGE_VALUES
from tests.fake_runtime import TOKENIZER
from tests.service.door import Client
from tests.service.test_openai_fields import JSON_SCHEMA, MESSAGES, SCHEMA, chat, refusal


def roles_of(messages: list[Any]) -> list[tuple[str, str]]:
    return [(turn.role, turn.content) for turn in chat({"messages": messages}).body.messages or ()]


def test_a_developer_is_a_system() -> None:
    assert [("system", "be brief")] == roles_of([{"role": "developer", "content": "be brief"}])


def test_text_parts_are_joined_as_they_stand() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b\n"}, {"type": "text", "text": "c"}]

    assert [("user", "ab\nc")] == roles_of([{"role": "user", "content": parts}])


def test_an_answer_can_be_sent_back_as_it_came() -> None:
    answer: dict[str, Any] = {
        "role": "assistant",
        "content": "yes",
        "refusal": None,
        "annotations": [],
        "tool_calls": None,
    }

    assert [("assistant", "yes")] == roles_of([answer])


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ({"role": "tool", "content": "x", "tool_call_id": "1"}, "invalid_role", "messages.0.role"),
        ({"role": "function", "content": "x"}, "invalid_role", "messages.0.role"),
        ({"role": "user"}, "missing", "messages.0.content"),
        ({"role": "user", "content": 5}, "invalid_type", "messages.0.content"),
        ({"role": "user", "content": [5]}, "invalid_type", "messages.0.content.0"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
            "unsupported_value",
            "messages.0.content.0.type",
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},
            "unsupported_value",
            "messages.0.content.0.type",
        ),
        ({"role": "user", "content": [{"type": "text"}]}, "missing", "messages.0.content.0.text"),
        ({"role": "assistant", "tool_calls": [{}]}, "unsupported_value", "messages.0.tool_calls"),
        ({"role": "user", "content": "a", "image": "b"}, "unknown_field", "messages.0.image"),
    ],
)
def test_a_bad_message_is_refused_by_name(message: Any, code: str, param: str) -> None:
    assert (400, code, param) == refusal("/v1/chat/completions", {"messages": [message]})


@pytest.mark.parametrize("name", MESSAGE_VALUES)
def test_a_field_of_messages_that_is_not_served_is_refused_by_name(name: str) -> None:
    message = {"role": "user", "content": "a", name: "x"}

    assert (400, "unsupported_value", f"messages.0.{name}") == refusal("/v1/chat/completions", {"messages": [message]})


def test_a_part_that_is_not_served_is_told_what_is() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "data:,"}}]

    answer = Client().post("/v1/chat/completions", {"messages": [{"role": "user", "content": parts}]})

    assert "messages.0.content.0.type must be: text; images, audio and files are not served" == answer.error["message"]


def test_top_logprobs_become_ours() -> None:
    assert read(Logprobs, {"top": 5}) == chat({**MESSAGES, "logprobs": True, "top_logprobs": 5}).body.logprobs


def test_top_logprobs_without_logprobs_are_refused() -> None:
    assert (400, "invalid_combination", "top_logprobs") == refusal("/v1/chat/completions", {"top_logprobs": 1})


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, read(Constraint, {"json_schema": {"type": "object"}})),
        (JSON_SCHEMA, read(Constraint, {"json_schema": SCHEMA})),
    ],
)
def test_a_response_format_is_a_constraint(form: Any, expected: Constraint | None) -> None:
    assert expected == chat({**MESSAGES, "response_format": form}).body.constraint


@pytest.mark.parametrize(
    ("form", "code", "param"),
    [
        ({"type": "json_schema"}, "missing", "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"name": "a"}}, "missing", "response_format.json_schema.schema"),
        ({**JSON_SCHEMA, "type": "json_object"}, "invalid_combination", "response_format.json_schema"),
        ({"type": "grammar", "grammar": "x"}, "unsupported_value", "response_format.type"),
    ],
)
def test_a_bad_response_format_is_refused_by_name(form: Any, code: str, param: str) -> None:
    assert (400, code, param) == refusal("/v1/chat/completions", {"response_format": form})


def test_a_response_format_and_a_constraint_are_refused() -> None:
    fields = {"response_format": {"type": "json_object"}, "constraint": {"regex": "a"}}

    assert (400, "invalid_combination", "response_format") == refusal("/v1/chat/completions", fields)


def test_a_clash_of_any_object_names_the_response_format() -> None:
    fields = {"response_format": {"type": "json_object"}, "banned_token_ids": sorted(TOKENIZER.eos_token_ids)}

    answer = Client().post("/v1/chat/completions", {**MESSAGES, **fields})

    assert (400, "invalid_combination", "response_format") == (
        answer.status,
        answer.error["code"],
        answer.error["param"],
    )
    assert "response_format: the end of the text is banned; it clashes with banned_token_ids" == answer.error["message"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tools": [{}]}, "tools is not served"),
        ({"tool_choice": "auto"}, 'tool_choice is served only as "none"'),
        ({"modalities": ["audio"]}, 'modalities is served only as ["text"]'),
        ({"messages": [{"role": "user", "content": "a", "name": "b"}]}, "messages.0.name is not served"),
    ],
)
def test_what_is_not_served_is_called_so(fields: dict[str, Any], message: str) -> None:
    assert message == Client().post("/v1/chat/completions", {**MESSAGES, **fields}).error["message"]
