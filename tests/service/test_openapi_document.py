"""The document names who may call and every status that an operation answers with, as it answers."""

from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest

from service.errors import RateLimited, ServiceError
from service.guard import HEALTH_PATHS, OPEN_PATHS
from service.keys import Keys
from service.request import SessionProblem
from service.settings import Settings
from tests.fake_runtime import FakeRuntime, failing, make_service
from tests.service.door import JSON, Answer, Client

KEY = {"authorization": "Bearer alice"}
PROMPT = b'{"prompt": "abc"}'
COMPLETION = b'{"model": "tiny", "prompt": "abc"}'
CHAT = b'{"model": "tiny", "messages": [{"role": "user", "content": "abc"}]}'


def client_of(runtime: FakeRuntime | None = None) -> Client:
    settings = Settings(max_body_bytes=1024, allowed_host=("tane.example",))
    return Client(service=make_service(runtime, settings=settings, keys=Keys([b"alice"])))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = client_of().app.openapi()
    return found


def operations(document: Mapping[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def resolved(document: Mapping[str, Any], value: Any) -> Any:
    """The value with every reference in it followed; one to what is missing raises KeyError."""
    if isinstance(value, list):
        return [resolved(document, each) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        target: Any = document
        for part in value["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return resolved(document, target)
    return {name: resolved(document, each) for name, each in value.items()}


def test_every_operation_but_the_open_ones_asks_for_a_key(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        assert ([] if path in OPEN_PATHS else [{"bearer": []}]) == operation["security"]


def test_what_asks_for_a_key_says_how_it_is_refused(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        assert (path not in OPEN_PATHS) == ("401" in operation["responses"])


def test_all_but_health_says_how_a_wrong_name_of_the_server_is_refused(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        assert (path not in HEALTH_PATHS) == ("421" in operation["responses"])


def test_the_scheme_says_that_a_server_without_keys_ignores_it(document: dict[str, Any]) -> None:
    scheme = document["components"]["securitySchemes"]["bearer"]

    assert ("http", "bearer") == (scheme["type"], scheme["scheme"])
    assert "without keys" in scheme["description"]


def test_every_answer_has_the_requests_name(document: dict[str, Any]) -> None:
    for _, _, operation in operations(document):
        for response in resolved(document, operation["responses"]).values():
            assert "x-request-id" in response["headers"]


def test_nothing_is_declared_that_the_framework_would_have_answered(document: dict[str, Any]) -> None:
    assert ["Error"] == list(document["components"]["schemas"])


@pytest.mark.parametrize("streamed", ["data: {}\n\ndata: [DONE]\n\n", {"event": "message", "data": "{}"}], ids=range(2))
@pytest.mark.parametrize("path", ["/generate", "/v1/completions", "/v1/chat/completions"])
def test_a_stream_conforms_whether_it_is_taken_whole_or_by_its_events(
    path: str, streamed: Any, document: dict[str, Any]
) -> None:
    answer = operation_of(document, "post", path)["responses"]["200"]

    jsonschema.validate(streamed, answer["content"]["text/event-stream"]["schema"])


def refusing(error: ServiceError) -> FakeRuntime:
    runtime = FakeRuntime()
    runtime.refusal = error
    return runtime


def with_problem(problem: SessionProblem) -> FakeRuntime:
    runtime = FakeRuntime()
    runtime.problem = problem
    return runtime


def unready() -> FakeRuntime:
    runtime = FakeRuntime()
    runtime.is_ready = False
    return runtime


CASES: dict[str, tuple[str, str, bytes, dict[str, str], FakeRuntime | None]] = {
    "400": ("POST", "/generate", b"{", JSON, None),
    "400 /v1": ("POST", "/v1/completions", b'{"model": "tiny", "prompt": "a", "max_tokens": -1}', JSON, None),
    "401": ("GET", "/sessions", b"", {"authorization": "Bearer bob"}, None),
    "404 session": ("GET", "/sessions/unknown", b"", {}, with_problem("session_not_found")),
    "404 model": ("POST", "/tokenize", b'{"text": "a", "model": "b"}', JSON, None),
    "404 /v1": ("GET", "/v1/models/unknown", b"", {}, None),
    "409": ("DELETE", "/sessions/busy", b"", {}, with_problem("session_busy")),
    "409 fork": ("POST", "/sessions/a/fork", b'{"session_id": "b"}', JSON, with_problem("session_exists")),
    "413": ("POST", "/generate", b" " * 2000, JSON, None),
    "415": ("POST", "/generate", PROMPT, {"content-type": "text/plain"}, None),
    "421": ("POST", "/generate", PROMPT, JSON | {"host": "evil.example"}, None),
    "422": ("POST", "/estimate", b'{"prompt": 3}', JSON, None),
    "422 query": ("GET", "/sessions?x=1", b"", {}, None),
    "429": ("POST", "/v1/chat/completions", CHAT, JSON, refusing(RateLimited("too much", retry_after_s=7))),
    "500": ("POST", "/generate", PROMPT, JSON, FakeRuntime(failing("engine_failed"))),
    "503": ("GET", "/readyz", b"", {}, unready()),
    "503 stopped": ("POST", "/generate", PROMPT, JSON, FakeRuntime(failing("engine_stopped"))),
    "504": ("POST", "/v1/completions", COMPLETION, JSON, FakeRuntime(failing("deadline_exceeded"))),
}
"""Requests that are refused, by what they are refused with."""


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_is_declared_as_it_is_answered(document: dict[str, Any], name: str) -> None:
    method, path, body, headers, runtime = CASES[name]
    answer = client_of(runtime).request(method, path, body, KEY | headers)

    assert name.split(maxsplit=1)[0] == str(answer.status)
    check(document, answer, method, path)


def check(document: dict[str, Any], answer: Answer, method: str, path: str) -> None:
    """The answer's status, headers and body are those that its operation declares."""
    operation = operation_of(document, method, path)
    declared = resolved(document, operation["responses"][str(answer.status)])
    required = {name for name, header in declared["headers"].items() if header["required"]}
    assert required <= answer.headers.keys()
    for name in required:
        as_typed = int(answer.headers[name]) if declared["headers"][name]["schema"]["type"] == "integer" else None
        jsonschema.validate(answer.headers[name] if as_typed is None else as_typed, declared["headers"][name]["schema"])
    jsonschema.validate(answer.json, declared["content"]["application/json"]["schema"])


def operation_of(document: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    parts = path.partition("?")[0].split("/")
    (found,) = [
        operation
        for template, named, operation in operations(document)
        if named == method.lower() and fits(template.split("/"), parts)
    ]
    return found


def fits(template: list[str], parts: list[str]) -> bool:
    return len(template) == len(parts) and all(
        a == b or a.startswith("{") for a, b in zip(template, parts, strict=True)
    )
