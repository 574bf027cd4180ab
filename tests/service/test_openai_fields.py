"""Each field of OpenAI's routes: the field of `/generate` it becomes, or how it is refused."""

from collections.abc import Mapping
from typing import Any

import pytest

from service.errors import InvalidField
from service.openai_domain import SameRequest, in_words_of, read_chat, read_completion, same_as_chat, same_as_completion
from service.openai_schemas import ChatRequest, CompletionRequest, OpenAIBody
from service.request import GenerationRequest
from service.schemas import Constraint, DecodingFields, Logprobs, read
from service.supported import CHAT_VALUES, COMPLETION_VALUES
from tests.fake_runtime import CONTEXT_LENGTH, MODEL, TOKENIZER
from tests.service.door import Client
from tests.service.test_generate_fields import EFFECTS as OURS

PROMPT: Mapping[str, Any] = {"prompt": "abc", "seed": 1}
MESSAGES: Mapping[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "seed": 1}
ROUTES: Mapping[str, Mapping[str, Any]] = {"/v1/completions": PROMPT, "/v1/chat/completions": MESSAGES}
NOT_ALONE = {"model", "length_penalty"}
"""One name is served; and a length penalty needs beams."""
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}

# Fields of each route that are not simply those of `/generate`: a value, and the field of `/generate` it becomes.
Becomes = dict[str, tuple[Any, str, Any]]
BOTH: Becomes = {
    "max_tokens": (9, "max_new_tokens", 9),
    "max_new_tokens": (9, "max_new_tokens", 9),
    "n": (2, "num_return", 2),
    "stop": ("a", "stop", ("a",)),
    "stream": (True, "stream", True),
}
COMPLETION: Becomes = BOTH | {
    "prompt": ("abd", "prompt", "abd"),
    "logprobs": (3, "logprobs", read(Logprobs, {"top": 3})),
}
CHAT: Becomes = BOTH | {
    "max_completion_tokens": (9, "max_new_tokens", 9),
    "logprobs": (True, "logprobs", read(Logprobs, {})),
    "response_format": (JSON_SCHEMA, "constraint", read(Constraint, {"json_schema": SCHEMA})),
}
SHARED = {name: OURS[name][0] for name in DecodingFields.model_fields if name not in NOT_ALONE}
"""Fields under our names, each with a value that is not its default."""
CHANGE_NOTHING: dict[str, Any] = {
    "user": "u1",
    "store": True,
    "metadata": {"a": "b"},
    "service_tier": "auto",
    "safety_identifier": "x",
    "prompt_cache_key": "x",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {},
    "model": "tiny",
}
CHAT_CHANGE_NOTHING: dict[str, Any] = CHANGE_NOTHING | {"parallel_tool_calls": False}
REFUSED: Mapping[str, Any] = {"best_of": 2, "echo": True, "suffix": "x"}
CHAT_REFUSED: Mapping[str, Any] = {
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "tool_choice": "auto",
    "functions": [{"name": "f"}],
    "function_call": "auto",
    "modalities": ["text", "audio"],
    "audio": {"voice": "alloy", "format": "wav"},
    "prediction": {"type": "content", "content": "a"},
    "web_search_options": {},
    "reasoning_effort": "high",
    "verbosity": "low",
    "moderation": {"model": "m"},
}


def completion(fields: Mapping[str, Any]) -> SameRequest:
    return same_as_completion(read(CompletionRequest, dict(fields)))


def chat(fields: Mapping[str, Any]) -> SameRequest:
    return same_as_chat(read(ChatRequest, dict(fields)))


def same(route: str, fields: Mapping[str, Any]) -> SameRequest:
    return (chat if route.endswith("/chat/completions") else completion)({**ROUTES[route], **fields})


def chat_request(fields: Mapping[str, Any]) -> GenerationRequest:
    return read_chat(read(ChatRequest, {**MESSAGES, **fields}), MODEL, CONTEXT_LENGTH, "r").asked.request


def completion_request(fields: Mapping[str, Any]) -> GenerationRequest:
    return read_completion(read(CompletionRequest, {**PROMPT, **fields}), MODEL, CONTEXT_LENGTH, "r").asked.request


def refusal(route: str, fields: Mapping[str, Any]) -> tuple[int | None, str, str | None]:
    answer = Client().post(route, {**ROUTES[route], **fields})
    return answer.status, answer.error["code"], answer.error["param"]


@pytest.mark.parametrize(
    ("kind", "accounted"),
    [
        (CompletionRequest, {*COMPLETION, *SHARED, *CHANGE_NOTHING, *REFUSED, "stream_options", "length_penalty"}),
        (
            ChatRequest,
            {
                *CHAT,
                *SHARED,
                *CHAT_CHANGE_NOTHING,
                *CHAT_REFUSED,
                "messages",
                "top_logprobs",
                "stream_options",
                "length_penalty",
            },
        ),
    ],
)
def test_every_field_of_the_schema_is_accounted_for(kind: type[OpenAIBody], accounted: set[str]) -> None:
    assert set(kind.model_fields) == accounted


@pytest.mark.parametrize("name", COMPLETION)
def test_a_field_of_completions_becomes_ours(name: str) -> None:
    value, ours, expected = COMPLETION[name]

    assert expected == getattr(completion({**PROMPT, name: value}).body, ours)


@pytest.mark.parametrize("name", CHAT)
def test_a_field_of_chats_becomes_ours(name: str) -> None:
    value, ours, expected = CHAT[name]

    assert expected == getattr(chat({**MESSAGES, name: value}).body, ours)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", SHARED)
def test_a_field_of_ours_stays_what_it_is(route: str, name: str) -> None:
    plain, given = same(route, {}).body, same(route, {name: SHARED[name]}).body

    assert {name} == {field for field in type(plain).model_fields if getattr(plain, field) != getattr(given, field)}


@pytest.mark.parametrize("name", REFUSED)
def test_what_completions_do_not_serve_is_refused_by_name(name: str) -> None:
    assert (400, "unsupported_value", name) == refusal("/v1/completions", {name: REFUSED[name]})


@pytest.mark.parametrize("name", CHAT_REFUSED)
def test_what_chats_do_not_serve_is_refused_by_name(name: str) -> None:
    assert (400, "unsupported_value", name) == refusal("/v1/chat/completions", {name: CHAT_REFUSED[name]})


@pytest.mark.parametrize("name", CHANGE_NOTHING)
def test_a_field_that_cannot_change_a_completion_is_accepted(name: str) -> None:
    assert completion_request({}) == completion_request({name: CHANGE_NOTHING[name]})


@pytest.mark.parametrize("name", CHAT_CHANGE_NOTHING)
def test_a_field_that_cannot_change_a_chat_is_accepted(name: str) -> None:
    assert chat_request({}) == chat_request({name: CHAT_CHANGE_NOTHING[name]})


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in COMPLETION_VALUES.items() for value in values if "." not in name],
)
def test_the_values_that_completions_serve_change_nothing(name: str, value: Any) -> None:
    assert completion_request({}) == completion_request({name: value})


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in CHAT_VALUES.items() for value in values if "." not in name]
)
def test_the_values_that_chats_serve_change_nothing(name: str, value: Any) -> None:
    assert chat_request({}) == chat_request({name: value})


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", sorted({*BOTH, *SHARED, *CHANGE_NOTHING, "stream_options"}))
def test_null_is_the_same_as_nothing(route: str, name: str) -> None:
    assert same(route, {}) == same(route, {name: None} if name != "seed" else {})


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("field", ["temprature", "num_return", "prompt_tokens", "explain", "resume", "chat_template"])
def test_an_unknown_field_is_refused_even_when_it_is_null(route: str, field: str) -> None:
    assert (400, "unknown_field", field) == refusal(route, {field: None})


@pytest.mark.parametrize("route", ROUTES)
def test_random_padding_of_streams_is_refused_by_name(route: str) -> None:
    fields = {"stream": True, "stream_options": {"include_obfuscation": True}}

    assert (400, "unsupported_value", "stream_options.include_obfuscation") == refusal(route, fields)


@pytest.mark.parametrize("route", ROUTES)
def test_stream_options_without_a_stream_are_refused(route: str) -> None:
    fields = {"stream_options": {"include_usage": True}}

    assert (400, "invalid_combination", "stream_options") == refusal(route, fields)


@pytest.mark.parametrize("route", ROUTES)
def test_two_limits_are_refused(route: str) -> None:
    fields = {"max_tokens": 4, "max_new_tokens": 4}

    assert (400, "invalid_combination", "max_new_tokens") == refusal(route, fields)


def test_sixteen_tokens_are_the_default_of_a_completion() -> None:
    assert 16 == completion_request({}).parameters.max_new_tokens


def test_the_default_of_a_completion_is_at_most_what_the_context_leaves() -> None:
    assert 4 == completion_request({"prompt": "x" * 60}).parameters.max_new_tokens


def test_a_chat_may_fill_the_context() -> None:
    request = chat_request({})

    assert CONTEXT_LENGTH == len(request.prompt_ids) + request.parameters.max_new_tokens


@pytest.mark.parametrize("stop", ["ab", ["ab", "c"]])
def test_stops_are_a_text_or_a_list(stop: Any) -> None:
    assert (("ab",) if stop == "ab" else ("ab", "c")) == completion_request({"stop": stop}).parameters.stop


@pytest.mark.parametrize("prompt", ["abc", ["abc"], TOKENIZER.encode("abc"), [TOKENIZER.encode("abc")]])
def test_a_prompt_is_a_text_or_ids_or_a_list_of_one(prompt: Any) -> None:
    assert tuple(TOKENIZER.encode("abc")) == completion_request({"prompt": prompt}).prompt_ids


@pytest.mark.parametrize(
    ("prompt", "code", "param"),
    [
        (["a", "b"], "unsupported_value", "prompt"),
        ([[5], [6]], "unsupported_value", "prompt"),
        ([], "empty", "prompt"),
        ([[]], "empty", "prompt.0"),
        ("", "empty", "prompt"),
        (5, "invalid_type", "prompt"),
        ([5, 259], "out_of_range", "prompt.1"),
        ([[5, 259]], "out_of_range", "prompt.0.1"),
        ([5, "a"], "invalid_type", "prompt.1"),
        ([None], "invalid_type", "prompt"),
    ],
)
def test_a_bad_prompt_is_refused_where_the_caller_wrote_it(prompt: Any, code: str, param: str) -> None:
    assert (400, code, param) == refusal("/v1/completions", {"prompt": prompt})


def test_best_of_below_n_is_refused() -> None:
    assert (400, "invalid_combination", "best_of") == refusal("/v1/completions", {"n": 2, "best_of": 1})


def test_a_field_of_two_kinds_is_told_both() -> None:
    answer = Client().post("/v1/completions", {"prompt": "a", "stop": 5})

    assert "stop must be: non-empty string, or list of at most 16 non-empty strings" == answer.error["message"]


# An error under one of our names, the fields that the caller wrote, and the name that the caller is told.
RENAMED = [
    ({"max_tokens": 4}, "max_new_tokens", "max_tokens"),
    ({"max_completion_tokens": 4}, "max_new_tokens", "max_completion_tokens"),
    ({"max_new_tokens": 4}, "max_new_tokens", "max_new_tokens"),
    ({}, "max_new_tokens", "max_completion_tokens"),
    ({}, "num_return", "n"),
    ({"logprobs": True}, "logprobs.top", "top_logprobs"),
    ({"response_format": {"type": "json_object"}}, "constraint", "response_format"),
    ({"response_format": {"type": "json_object"}}, "constraint.json_schema", "response_format"),
    ({"response_format": JSON_SCHEMA}, "constraint", "response_format"),
    ({"response_format": JSON_SCHEMA}, "constraint.json_schema", "response_format.json_schema.schema"),
    ({"constraint": {"json_schema": {}}}, "constraint.json_schema", "constraint.json_schema"),
    ({}, "stop.0", "stop.0"),
]


@pytest.mark.parametrize(("fields", "ours", "theirs"), RENAMED)
def test_an_error_names_the_field_that_the_caller_wrote(fields: Mapping[str, Any], ours: str, theirs: str) -> None:
    names = chat({**MESSAGES, **fields}).names

    with pytest.raises(InvalidField) as caught, in_words_of(names):
        raise InvalidField(f"{ours} is wrong", param=ours)

    assert (theirs, f"{theirs} is wrong") == (caught.value.param, caught.value.message)


def test_what_is_allowed_is_told_in_the_callers_words() -> None:
    answer = Client().post("/v1/completions", {"prompt": "x" * 60, "max_tokens": 5})

    assert {"context_length": 64, "prompt_tokens": 60, "max_tokens": 4} == answer.error["allowed"]


@pytest.mark.parametrize("value", [65, 62])
def test_too_many_tokens_are_refused_in_openais_words(value: int) -> None:
    answer = Client().post("/v1/completions", {"prompt": "abc", "max_tokens": value})

    assert (400, "max_tokens") == (answer.status, answer.error["param"])
    assert "max_new_tokens" not in answer.error["message"]


@pytest.mark.parametrize("prompt", [5, True, {"text": "a"}, [None], [{"text": "a"}], [[[1]]]])
def test_a_prompt_of_no_known_form_is_told_the_forms(prompt: Any) -> None:
    answer = Client().post("/v1/completions", {"prompt": prompt})

    forms = "non-empty string, or list of at least 1 integers ≥ 0, or list of at most 1 non-empty strings"
    assert (400, "invalid_type", "prompt") == (answer.status, answer.error["code"], answer.error["param"])
    assert f"prompt must be: {forms}" == answer.error["message"]
    assert ["string", "array", "array"] == [form["type"] for form in answer.error["allowed"]["anyOf"]]
