"""Each field of `/generate`: what it does to the request, or how it is refused."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from model.chat import ChatTemplate
from model.decoding.constraint import ConstraintSpec
from model.decoding.params import LogprobOptions, Penalties
from model.loading.checkpoint import GenerationDefaults
from service.domain import PROMPTS, Asked, read_generate
from service.errors import ServiceError
from service.json_body import parse
from service.request import GenerationRequest
from service.schemas import GenerateRequest, read
from tests.fake_runtime import CONTEXT_LENGTH, MODEL, TOKENIZER

BASE: Mapping[str, Any] = {"prompt": "abc", "seed": 1}
PROMPT_IDS = tuple(TOKENIZER.encode("abc"))

# Fields that change the request: a value, and what the request then holds.
EFFECTS: Mapping[str, tuple[Any, str, Any]] = {
    "prompt": ("abd", "prompt_ids", tuple(TOKENIZER.encode("abd"))),
    "prompt_tokens": ([0, 5, 258], "prompt_ids", (0, 5, 258)),
    "messages": (
        [{"role": "user", "content": "hi"}],
        "prompt_ids",
        (1, *TOKENIZER.encode("user\nhi"), 0),
    ),
    "max_new_tokens": (9, "parameters.max_new_tokens", 9),
    "min_new_tokens": (3, "parameters.min_new_tokens", 3),
    "temperature": (0.5, "parameters.temperature", 0.5),
    "top_k": (4, "parameters.top_k", 4),
    "top_p": (0.5, "parameters.top_p", 0.5),
    "min_p": (0.1, "parameters.min_p", 0.1),
    "beam_width": (3, "parameters.beam_width", 3),
    "num_return": (2, "sample_count", 2),
    "seed": (2**63 - 1, "parameters.seed", 2**63 - 1),
    "stop": (["a", "é" * 64], "parameters.stop", ("a", "é" * 64)),
    "stop_token_ids": ([3, 258], "parameters.stop_token_ids", (3, 258)),
    "ignore_eos": (True, "parameters.ignore_eos", True),
    "logprobs": ({"top": 3, "of": "sampled"}, "parameters.logprobs", LogprobOptions(3, "sampled")),
    "repetition_penalty": (1.25, "parameters.penalties", Penalties(repetition=1.25)),
    "penalty_scope": ("all", "parameters.penalties", Penalties(scope="all")),
    "presence_penalty": (0.5, "parameters.penalties", Penalties(presence=0.5)),
    "frequency_penalty": (-0.5, "parameters.penalties", Penalties(frequency=-0.5)),
    "logit_bias": ({"258": -1.5, "0": 100}, "parameters.logit_bias", ((0, 100.0), (258, -1.5))),
    "banned_token_ids": ([258, 3, 258], "parameters.banned_token_ids", (3, 258)),
    "explain": (True, "parameters.explain", True),
    "constraint": (
        {"regex": "a+"},
        "constraint",
        MODEL.constraints.compiled(ConstraintSpec.regex("a+"), ()),
    ),
    "speculation": ("prompt_lookup", "parameters.speculation", "prompt_lookup"),
    "session_id": ("a-b.C_9", "session_id", "a-b.C_9"),
    "use_cache": (False, "use_cache", False),
    "deadline_ms": (1500, "deadline_s", 1.5),
    "stream": (True, "streams", True),
    "resume": ({"token_ids": [5, 258]}, "resumed_ids", (5, 258)),
}
LEFT_OUT: Mapping[str, Mapping[str, Any]] = {
    "logprobs": {"prompt": False},
    "constraint": {"json_schema": None, "choice": None, "grammar": None},
}
"""What is echoed beside the value that was given."""
SPECIAL = {"model", "length_penalty"}
"""The first changes nothing, as only the served name is accepted; the second needs beams (`test_beam_fields`)."""


def ask(fields: Mapping[str, Any], context_length: int = CONTEXT_LENGTH) -> Asked:
    body = read(GenerateRequest, parse(json.dumps(fields).encode()))
    return read_generate(body, MODEL, context_length, "r1")


def request_of(fields: Mapping[str, Any]) -> GenerationRequest:
    return ask(fields).request


def error_of(fields: Mapping[str, Any], context_length: int = CONTEXT_LENGTH) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        ask(fields, context_length)
    return caught.value


def with_field(name: str, value: Any) -> dict[str, Any]:
    base = {k: v for k, v in BASE.items() if k != "prompt"} if name in PROMPTS else BASE
    return {**base, name: value}


def at(request: GenerationRequest, path: str) -> Any:
    value: Any = request
    for name in path.split("."):
        value = getattr(value, name)
    return value


def test_every_field_of_the_schema_is_accounted_for() -> None:
    assert set(GenerateRequest.model_fields) == {*EFFECTS, *SPECIAL}


@pytest.mark.parametrize("name", EFFECTS)
def test_a_field_reaches_the_request(name: str) -> None:
    value, path, expected = EFFECTS[name]

    assert expected == at(request_of(with_field(name, value)), path)


@pytest.mark.parametrize("name", EFFECTS)
def test_a_field_changes_the_request(name: str) -> None:
    assert request_of(BASE) != request_of(with_field(name, EFFECTS[name][0]))


def test_log_probabilities_of_the_prompt_reach_the_request() -> None:
    asked = request_of({**BASE, "logprobs": {"prompt": True}})

    assert LogprobOptions(prompt=True) == asked.parameters.logprobs


def test_the_defaults_are_the_models_own() -> None:
    parameters = request_of(BASE).parameters

    assert (0.2, 0, 0.9, 0.0) == (
        parameters.temperature,
        parameters.top_k,
        parameters.top_p,
        parameters.min_p,
    )


def test_without_defaults_of_its_own_a_model_samples_plainly() -> None:
    body = read(GenerateRequest, dict(BASE))

    parameters = read_generate(body, replace(MODEL, defaults=GenerationDefaults()), 64, "r").request.parameters

    assert (1.0, 0, 1.0, 0.0) == (
        parameters.temperature,
        parameters.top_k,
        parameters.top_p,
        parameters.min_p,
    )


def test_a_seed_left_out_is_drawn_anew_and_exact_in_every_json_reader() -> None:
    seeds = {request_of({"prompt": "a"}).parameters.seed for _ in range(20)}

    assert 20 == len(seeds)
    assert all(0 <= seed < 2**53 for seed in seeds)


def test_the_default_length_is_256() -> None:
    assert 256 == ask(BASE, 1000).request.parameters.max_new_tokens


def test_the_default_length_is_what_the_context_leaves() -> None:
    assert 61 == request_of(BASE).parameters.max_new_tokens


def test_prompt_and_new_tokens_may_fill_the_context() -> None:
    assert 61 == request_of({**BASE, "max_new_tokens": 61}).parameters.max_new_tokens


def test_a_prompt_that_does_not_fit_with_its_answer_is_refused_with_both_numbers() -> None:
    error = error_of({**BASE, "max_new_tokens": 62})

    assert ("context_length_exceeded", "max_new_tokens") == (error.code, error.param)
    assert "3 tokens" in error.message
    assert "65" in error.message
    assert "64" in error.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt", "x" * 64),
        ("prompt_tokens", [5] * 64),
        ("messages", [{"role": "user", "content": "x" * 60}]),
    ],
)
def test_a_prompt_that_fills_the_context_is_refused_and_never_cut(name: str, value: Any) -> None:
    error = error_of(with_field(name, value))

    assert ("context_length_exceeded", name) == (error.code, error.param)


def test_a_prompt_may_leave_room_for_one_token() -> None:
    assert 1 == request_of({**BASE, "prompt": "x" * 63}).parameters.max_new_tokens


def test_two_prompts_are_refused() -> None:
    error = error_of({**BASE, "messages": [{"role": "user", "content": "hi"}]})

    assert ("invalid_combination", "messages") == (error.code, error.param)


@pytest.mark.parametrize("fields", [{}, {"prompt": None}, {"seed": 1, "prompt_tokens": None}])
def test_no_prompt_is_refused(fields: Mapping[str, Any]) -> None:
    assert ("missing", "prompt") == (error_of(fields).code, error_of(fields).param)


def test_messages_without_a_template_are_refused() -> None:
    body = read(GenerateRequest, {"messages": [{"role": "user", "content": "hi"}]})

    with pytest.raises(ServiceError) as caught:
        read_generate(body, replace(MODEL, chat_template=None), CONTEXT_LENGTH, "r")

    assert ("no_chat_template", "messages") == (caught.value.code, caught.value.param)


def test_messages_that_the_template_refuses_are_told_why() -> None:
    picky = ChatTemplate("{{ raise_exception('roles must alternate') }}", TOKENIZER)
    body = read(GenerateRequest, {"messages": [{"role": "user", "content": "hi"}]})

    with pytest.raises(ServiceError) as caught:
        read_generate(body, replace(MODEL, chat_template=picky), CONTEXT_LENGTH, "r")

    assert ("chat_template_refused", "messages") == (caught.value.code, caught.value.param)
    assert "roles must alternate" in caught.value.message


def test_the_served_name_is_accepted() -> None:
    assert request_of(BASE) == request_of({**BASE, "model": "tiny"})


def test_control_spellings_in_a_prompt_stay_text() -> None:
    assert not {0, 1, 2} & set(request_of({**BASE, "prompt": "<|end|><|start|>"}).prompt_ids)


def test_parameters_echo_every_field_but_the_prompt() -> None:
    assert set(GenerateRequest.model_fields) - set(PROMPTS) == set(ask(BASE).parameters)


@pytest.mark.parametrize("name", sorted(set(EFFECTS) - set(PROMPTS)))
def test_parameters_echo_what_was_given(name: str) -> None:
    value = EFFECTS[name][0]
    expected = {**value, **LEFT_OUT[name]} if name in LEFT_OUT else value

    assert expected == json.loads(json.dumps(ask({**BASE, name: value}).parameters[name]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model", "tiny"),
        ("max_new_tokens", 61),
        ("temperature", 0.2),
        ("top_k", 0),
        ("top_p", 0.9),
        ("min_p", 0.0),
        ("speculation", "auto"),
    ],
)
def test_parameters_echo_the_effective_default(name: str, expected: Any) -> None:
    assert expected == ask(BASE).parameters[name]


def test_a_drawn_seed_is_echoed() -> None:
    asked = ask({"prompt": "a"})

    assert asked.request.parameters.seed == asked.parameters["seed"]


@pytest.mark.parametrize(
    ("name", "value", "code", "param"),
    [
        ("temprature", 1, "unknown_field", "temprature"),
        ("a b", 1, "unknown_field", "?"),
        ("temperature", "1", "invalid_type", "temperature"),
        ("temperature", True, "invalid_type", "temperature"),
        ("temperature", -0.1, "out_of_range", "temperature"),
        ("temperature", 2.1, "out_of_range", "temperature"),
        ("top_k", -1, "out_of_range", "top_k"),
        ("top_k", 10**12, "out_of_range", "top_k"),
        ("top_k", 5.5, "invalid_type", "top_k"),
        ("top_k", True, "invalid_type", "top_k"),
        ("top_k", "5", "invalid_type", "top_k"),
        ("top_p", 0, "out_of_range", "top_p"),
        ("top_p", 1.01, "out_of_range", "top_p"),
        ("min_p", -0.1, "out_of_range", "min_p"),
        ("beam_width", 0, "out_of_range", "beam_width"),
        ("beam_width", 17, "out_of_range", "beam_width"),
        ("num_return", 17, "out_of_range", "num_return"),
        ("max_new_tokens", 0, "out_of_range", "max_new_tokens"),
        ("max_new_tokens", 2**31, "out_of_range", "max_new_tokens"),
        ("max_new_tokens", 2**63, "out_of_range", "max_new_tokens"),
        ("min_new_tokens", -1, "out_of_range", "min_new_tokens"),
        ("min_new_tokens", 62, "invalid_combination", "min_new_tokens"),
        ("seed", -1, "out_of_range", "seed"),
        ("seed", 2**63, "out_of_range", "seed"),
        ("seed", 1.5, "invalid_type", "seed"),
        ("repetition_penalty", 0, "out_of_range", "repetition_penalty"),
        ("repetition_penalty", 1e30, "out_of_range", "repetition_penalty"),
        ("stop", ["a"] * 100_000, "too_many", "stop"),
        ("stop", ["a" * 129], "too_long", "stop.0"),
        ("stop", ["a", "é" * 65], "too_long", "stop.1"),
        ("stop", [""], "empty", "stop.0"),
        ("stop", [None], "invalid_type", "stop.0"),
        ("stop", {}, "invalid_type", "stop"),
        ("stop", "a", "invalid_type", "stop"),
        ("stop_token_ids", [1] * 65, "too_many", "stop_token_ids"),
        ("stop_token_ids", [1, 259], "out_of_range", "stop_token_ids.1"),
        ("stop_token_ids", [-1], "out_of_range", "stop_token_ids.0"),
        ("logit_bias", {"1": 101}, "out_of_range", "logit_bias"),
        ("logit_bias", {"1": 1e308}, "out_of_range", "logit_bias"),
        ("logit_bias", {str(i): 0 for i in range(1025)}, "too_many", "logit_bias"),
        ("logprobs", {"top": 21}, "out_of_range", "logprobs.top"),
        ("logprobs", {"top": -1}, "out_of_range", "logprobs.top"),
        ("logprobs", {"of": "x"}, "invalid_value", "logprobs.of"),
        ("logprobs", 5, "invalid_type", "logprobs"),
        ("prompt", "", "empty", "prompt"),
        ("prompt", ["a"], "invalid_type", "prompt"),
        ("prompt_tokens", [], "empty", "prompt_tokens"),
        ("prompt_tokens", [5, 259], "out_of_range", "prompt_tokens.1"),
        ("prompt_tokens", [5, -1], "out_of_range", "prompt_tokens.1"),
        ("prompt_tokens", [5, True], "invalid_type", "prompt_tokens.1"),
        ("prompt_tokens", ["5"] * 100_000, "invalid_type", "prompt_tokens.0"),
        ("messages", [], "empty", "messages"),
        ("messages", [{"role": "user", "content": ""}] * 100_000, "too_many", "messages"),
        ("messages", [{"role": "user"}], "missing", "messages.0.content"),
        ("messages", [{"role": "system<|end|>", "content": ""}], "invalid_role", "messages.0.role"),
        ("messages", [{"role": "", "content": ""}], "invalid_role", "messages.0.role"),
        ("messages", [{"role": None, "content": ""}], "invalid_type", "messages.0.role"),
        ("messages", [{"role": "user", "content": None}], "invalid_type", "messages.0.content"),
        ("messages", [{"role": "user", "content": [{"type": "text"}]}], "invalid_type", "messages.0.content"),
        ("session_id", "../../x", "invalid_session_id", "session_id"),
        ("session_id", ".x", "invalid_session_id", "session_id"),
        ("session_id", "a\n", "invalid_session_id", "session_id"),
        ("session_id", "x" * 129, "invalid_session_id", "session_id"),
        ("session_id", "", "invalid_session_id", "session_id"),
        ("session_id", 5, "invalid_type", "session_id"),
        ("deadline_ms", 0, "out_of_range", "deadline_ms"),
        ("stream", 1, "invalid_type", "stream"),
        ("speculation", "fast", "invalid_value", "speculation"),
        ("chat_template", "x", "unknown_field", "chat_template"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, value: Any, code: str, param: str) -> None:
    error = error_of(with_field(name, value))

    assert (422, code, param) == (error.status, error.code, error.param)


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "length_penalty", "repetition_penalty"])
def test_a_number_too_large_for_a_float_is_not_finite(name: str) -> None:
    with pytest.raises(ServiceError) as caught:
        read(GenerateRequest, parse(b'{"prompt":"a","%s":1e400}' % name.encode()))

    assert (422, "not_finite", name) == (caught.value.status, caught.value.code, caught.value.param)


def test_an_error_says_what_is_allowed() -> None:
    assert {"type": "number", "minimum": 0, "maximum": 2} == error_of({**BASE, "temperature": 3}).allowed


def test_an_unknown_field_is_told_the_known_ones() -> None:
    assert sorted(GenerateRequest.model_fields) == error_of({**BASE, "temprature": 1}).allowed
