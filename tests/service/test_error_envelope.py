"""Every error on every route: its status, its code and its one form; and the server answers afterwards."""

import asyncio
import json
import logging
from typing import Any

import pytest

from service.errors import Draining, InvalidField, Overloaded, RateLimited, ServiceError, SessionBusy
from service.openai_schemas import ChatRequest, CompletionRequest
from service.request import GenerationRequest
from service.schemas import Body, DetokenizeRequest, ForkRequest, GenerateRequest, TokenizeRequest
from service.settings import Settings
from tests.fake_runtime import FakeRuntime, failing, make_service
from tests.service.door import JSON, Client

BODIES: dict[str, dict[str, Any]] = {
    "/generate": {"prompt": "abc"},
    "/tokenize": {"text": "abc"},
    "/detokenize": {"token_ids": [5]},
    "/sessions/known/fork": {"session_id": "child"},
    "/v1/completions": {"prompt": "abc"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "abc"}]},
}
ROUTES = tuple(BODIES)
GENERATING = ("/generate", "/v1/completions", "/v1/chat/completions")
SCHEMAS: dict[str, type[Body]] = {
    "/generate": GenerateRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
    "/sessions/known/fork": ForkRequest,
    "/v1/completions": CompletionRequest,
    "/v1/chat/completions": ChatRequest,
}
WRONG_TYPES: dict[str, tuple[str, Any]] = {
    "/generate": ("temperature", "hot"),
    "/tokenize": ("text", 5),
    "/detokenize": ("token_ids", "abc"),
    "/sessions/known/fork": ("session_id", 5),
    "/v1/completions": ("max_tokens", True),
    "/v1/chat/completions": ("messages", "hello"),
}
OUT_OF_RANGE: dict[str, tuple[str, Any]] = {
    "/generate": ("top_p", 1.5),
    "/detokenize": ("token_ids", [259]),
    "/v1/completions": ("max_tokens", 0),
    "/v1/chat/completions": ("top_logprobs", 21),
}
UNREADABLE = [
    (b'{"temperature":NaN}', "invalid_json"),
    (b'{"temperature":-Infinity}', "invalid_json"),
    (b'{"seed":' + b"1" * 5000 + b"}", "invalid_json"),
    (b'{"prompt":"a"', "invalid_json"),
    (b"", "invalid_json"),
    (b'{"a":"\xff"}', "invalid_utf8"),
    (b"[" * 1000, "json_too_deep"),
    (b'{"a":1,"a":2}', "duplicate_key"),
]


def bad_value_status(route: str) -> int:
    return 400 if route.startswith("/v1/") else 422


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("raw", "code"), UNREADABLE)
def test_an_unreadable_body_is_400(client: Client, route: str, raw: bytes, code: str) -> None:
    answer = client.post(route, raw)

    assert (400, code) == (answer.status, answer.error["code"])


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("raw", [b"[]", b'"x"', b"null", b"3", b"1e400"])
def test_a_body_that_is_no_object_is_a_bad_value(client: Client, route: str, raw: bytes) -> None:
    answer = client.post(route, raw)

    assert (bad_value_status(route), "invalid_type") == (answer.status, answer.error["code"])


@pytest.mark.parametrize("route", ROUTES)
def test_an_unknown_field_is_a_bad_value(client: Client, route: str) -> None:
    answer = client.post(route, {**BODIES[route], "temprature": 1})

    assert (bad_value_status(route), "unknown_field", "temprature") == (
        answer.status,
        answer.error["code"],
        answer.error["param"],
    )


@pytest.mark.parametrize("route", ROUTES)
def test_half_a_surrogate_pair_is_a_bad_value(client: Client, route: str) -> None:
    answer = client.post(route, b'{"prompt":"\\ud800"}')

    assert (bad_value_status(route), "invalid_unicode") == (answer.status, answer.error["code"])


@pytest.mark.parametrize("route", ROUTES)
def test_a_missing_field_is_a_bad_value(client: Client, route: str) -> None:
    answer = client.post(route, {})

    assert (bad_value_status(route), "missing") == (answer.status, answer.error["code"])


@pytest.mark.parametrize("route", ROUTES)
def test_a_wrong_type_is_a_bad_value(client: Client, route: str) -> None:
    name, value = WRONG_TYPES[route]

    answer = client.post(route, {**BODIES[route], name: value})

    assert (bad_value_status(route), "invalid_type", name) == (
        answer.status,
        answer.error["code"],
        answer.error["param"],
    )


@pytest.mark.parametrize("route", OUT_OF_RANGE)
def test_a_value_out_of_range_is_a_bad_value(client: Client, route: str) -> None:
    name, value = OUT_OF_RANGE[route]

    answer = client.post(route, {**BODIES[route], name: value})

    assert (bad_value_status(route), "out_of_range") == (answer.status, answer.error["code"])


@pytest.mark.parametrize("route", GENERATING)
def test_a_number_too_large_for_a_float_is_not_finite(client: Client, route: str) -> None:
    body = json.dumps(BODIES[route] | {"temperature": 1}).replace('"temperature": 1', '"temperature": 1e400')

    answer = client.post(route, body.encode())

    assert (bad_value_status(route), "not_finite") == (answer.status, answer.error["code"])


@pytest.mark.parametrize("route", ["/generate", "/v1/completions"])
def test_a_prompt_that_is_too_long_is_a_bad_value(client: Client, route: str) -> None:
    answer = client.post(route, {"prompt": "x" * 10_000})

    assert (bad_value_status(route), "context_length_exceeded") == (answer.status, answer.error["code"])


@pytest.mark.parametrize("route", GENERATING)
def test_an_unknown_model_is_404(client: Client, route: str) -> None:
    answer = client.post(route, {**BODIES[route], "model": "gpt-4"})

    assert (404, "model_not_found", "model") == (answer.status, answer.error["code"], answer.error["param"])


@pytest.mark.parametrize("route", ROUTES)
def test_another_media_type_is_415(client: Client, route: str) -> None:
    answer = client.post(route, BODIES[route], {"content-type": "text/plain"})

    assert (415, "unsupported_media_type") == (answer.status, answer.error["code"])


@pytest.mark.parametrize("route", ROUTES)
def test_a_compressed_body_is_415(client: Client, route: str) -> None:
    assert 415 == client.post(route, BODIES[route], {**JSON, "content-encoding": "gzip"}).status


@pytest.mark.parametrize("route", ROUTES)
def test_a_body_beyond_the_limit_is_413(route: str) -> None:
    client = Client(service=make_service(settings=Settings(max_body_bytes=1024)))

    answer = client.post(route, b" " * 1025)

    assert (413, "body_too_large", {"max_bytes": 1024}) == (
        answer.status,
        answer.error["code"],
        answer.error["allowed"],
    )


@pytest.mark.parametrize("route", ROUTES)
def test_a_body_of_two_lengths_is_400_and_ends_the_connection(client: Client, route: str) -> None:
    answer = client.post(route, BODIES[route], {**JSON, "content-length": "5", "transfer-encoding": "chunked"})

    assert (400, "ambiguous_length", "close") == (answer.status, answer.error["code"], answer.headers["connection"])


@pytest.mark.parametrize("route", ROUTES)
def test_a_body_that_does_not_arrive_is_408_and_ends_the_connection(
    client: Client, route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.beside.BODY_S", 0.01)

    answer = asyncio.run(client.call("POST", route, headers=JSON, complete_body=False))

    assert (408, "request_timeout", "close") == (answer.status, answer.error["code"], answer.headers["connection"])


@pytest.mark.parametrize("route", ROUTES)
def test_a_route_answers_after_a_bad_request(client: Client, route: str) -> None:
    client.post(route, b'{"prompt":"\\ud800","temperature":NaN}')

    answer = client.post(route, BODIES[route])

    assert answer.status in (200, 201)


@pytest.mark.parametrize("path", ["/nope", "/generate/", "//generate", "/generate\x00", "/v1", "/etc/passwd"])
def test_an_unknown_path_is_404(client: Client, path: str) -> None:
    answer = client.get(path)

    assert (404, "not_found") == (answer.status, answer.error["code"])


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/generate", "POST"),
        ("PUT", "/sessions/known", "DELETE, GET"),
        ("POST", "/metrics", "GET"),
        ("FOO", "/v1/completions", "POST"),
        ("GET", "/v1/chat/completions", "POST"),
    ],
)
def test_another_method_is_405_and_says_which(client: Client, method: str, path: str, allow: str) -> None:
    answer = client.request(method, path)

    assert (405, "method_not_allowed", allow) == (
        answer.status,
        answer.error["code"],
        answer.headers["allow"],
    )


@pytest.mark.parametrize("route", GENERATING)
@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (SessionBusy("busy", param="session_id"), (409, "session_busy")),
        (Overloaded("full", retry_after_s=7), (503, "overloaded")),
        (Draining("stopping", retry_after_s=7), (503, "draining")),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_has_its_own_status_before_any_stream(
    client: Client, route: str, refusal: ServiceError, expected: tuple[int, str], stream: bool
) -> None:
    runtime = client.service.main.runtime
    assert isinstance(runtime, FakeRuntime)
    runtime.refusal = refusal

    answer = client.post(route, {**BODIES[route], "stream": stream})

    assert expected == (answer.status, answer.error["code"])


@pytest.mark.parametrize("error", [Overloaded("full", retry_after_s=7), RateLimited("too much", retry_after_s=7)])
def test_a_refusal_says_when_to_come_back(client: Client, error: ServiceError) -> None:
    runtime = client.service.main.runtime
    assert isinstance(runtime, FakeRuntime)
    runtime.refusal = error

    assert "7" == client.post("/generate", {"prompt": "a"}).headers["retry-after"]


@pytest.mark.parametrize(
    ("route", "given", "name"),
    [
        ("/v1/completions", {}, "max_tokens"),
        ("/v1/completions", {"max_new_tokens": 9}, "max_new_tokens"),
        ("/v1/chat/completions", {}, "max_completion_tokens"),
        ("/v1/chat/completions", {"max_tokens": 9}, "max_tokens"),
    ],
)
def test_what_can_never_fit_is_named_in_the_words_of_the_caller(
    client: Client, route: str, given: dict[str, Any], name: str
) -> None:
    runtime = client.service.main.runtime
    assert isinstance(runtime, FakeRuntime)
    runtime.refusal = InvalidField("max_new_tokens is too large for the cache", param="max_new_tokens")

    answer = client.post(route, {**BODIES[route], **given})

    assert (400, name, f"{name} is too large for the cache") == (
        answer.status,
        answer.error["param"],
        answer.error["message"],
    )


@pytest.mark.parametrize("route", GENERATING)
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("deadline_exceeded", 504),
        ("engine_stopped", 503),
        ("engine_failed", 500),
        ("numerical_error", 500),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_before_the_first_token_has_its_own_status(route: str, code: Any, status: int, stream: bool) -> None:
    answer = Client(FakeRuntime(failing(code))).post(route, {**BODIES[route], "stream": stream})

    assert (status, code) == (answer.status, answer.error["code"])


def broken(request: GenerationRequest) -> Any:
    raise RuntimeError("canary-7f3a")


def test_an_unexpected_exception_is_a_500_of_the_same_form() -> None:
    logging.disable(logging.CRITICAL)
    try:
        answer = Client(FakeRuntime(broken)).post("/generate", {"prompt": "a"})
    finally:
        logging.disable(logging.NOTSET)

    assert (500, "internal_error") == (answer.status, answer.error["code"])
    assert b"7f3a" not in answer.body


@pytest.mark.parametrize("path", ["/livez", "/info", "/metrics", "/v1/models", "/nope"])
def test_every_answer_has_an_id_of_its_own(client: Client, path: str) -> None:
    assert client.get(path).headers["x-request-id"] != client.get(path).headers["x-request-id"]


def test_the_answer_to_a_generation_carries_the_request_id(client: Client) -> None:
    answer = client.post("/generate", {"prompt": "a"})

    assert answer.headers["x-request-id"] == answer.json["id"]


VALUES = [json.loads('"\\ud800"'), "NaN", [], {}, None, True, -1, 1e300, 2**70, ["x"] * 50, [{"a": [{}]}]]


@pytest.mark.parametrize("route", ROUTES)
def test_no_value_in_any_field_is_a_500(client: Client, route: str) -> None:
    statuses = {
        client.post(route, {**BODIES[route], name: value}).status
        for name in SCHEMAS[route].model_fields
        for value in VALUES
    }

    assert statuses <= {200, 201, bad_value_status(route), 404}
