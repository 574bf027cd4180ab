"""Who may come in, and what those hear who may not."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from fastapi.routing import APIRoute

from service.keys import Keys
from service.logs import fields_of
from service.settings import Settings
from tests.fake_runtime import FakeRuntime, make_service
from tests.service.door import JSON, Answer, Client

ALICE, BOB = "alice-key", "bob-key"
KEYS = Keys([ALICE.encode(), BOB.encode()])
ALICE_ID, BOB_ID = KEYS.id_of(ALICE.encode()), KEYS.id_of(BOB.encode())
METRICS_PORT = 9100


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def guarded(runtime: FakeRuntime | None = None, settings: Settings | None = None) -> Client:
    return Client(service=make_service(runtime, settings=settings, keys=KEYS))


@pytest.fixture(scope="module")
def client() -> Client:
    return guarded()


def every_route() -> list[tuple[str, str]]:
    """Method and path of everything that the application answers, its own documentation too."""
    routes = [(method, path) for path, methods in guarded().app.state.methods.items() for method in methods]
    framework = [("GET", path) for path in ("/openapi.json", "/docs", "/redoc")]
    return [*routes, *framework]


@pytest.mark.parametrize(("method", "path"), every_route(), ids=" ".join)
def test_only_health_and_the_page_answer_without_a_key(client: Client, method: str, path: str) -> None:
    expected = 200 if path in ("/livez", "/readyz", "/") else 401

    assert expected == client.request(method, path).status


def test_nothing_is_served_that_loads_what_another_server_has() -> None:
    """Viewers of the document, which the framework would offer, come from elsewhere."""
    client = Client()

    assert [200, 404, 404] == [client.get(path).status for path in ("/openapi.json", "/docs", "/redoc")]


@pytest.mark.parametrize("method", ["HEAD", "PUT", "PATCH", "TRACE", "BREW"])
@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/generate", "/metrics", "/sessions/{session_id}"])
def test_no_other_method_opens_a_route(client: Client, method: str, path: str) -> None:
    assert 401 == client.request(method, path).status


def test_every_route_of_the_application_is_looked_at() -> None:
    paths = {route.path for route in guarded().app.routes if isinstance(route, APIRoute)}

    assert paths <= {path for _, path in every_route()}


@pytest.mark.parametrize(
    "path",
    [
        "/ui",
        "/ui/",
        "/ui/nothing.js",
        "/ui/../info",
        "//",
        "/nowhere",
        "/livez/",
        "/livez/x",
        "//livez",
        "/LIVEZ",
        "/v1/nowhere",
        "/sessions/",
    ],
)
def test_what_is_no_route_is_closed_too(client: Client, path: str) -> None:
    assert 401 == client.get(path).status


@pytest.mark.parametrize("path", ["/info", "/metrics", "/sessions", "/v1/models", "/openapi.json"])
def test_a_key_opens(client: Client, path: str) -> None:
    assert 200 == client.request("GET", path, headers=bearer(ALICE)).status


def test_the_scheme_is_read_in_any_case(client: Client) -> None:
    assert 200 == client.request("GET", "/info", headers={"authorization": f"bEARER  {BOB} "}).status


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ALICE},
        {"authorization": f"Basic {ALICE}"},
        {"x-api-key": ALICE},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {ALICE},{ALICE}"},
    ],
    ids=range(7),
)
def test_whatever_is_wrong_with_a_key_has_one_answer(client: Client, headers: Mapping[str, str]) -> None:
    answer = client.request("GET", "/info", headers=headers)

    assert (401, 'Bearer realm="tane"') == (answer.status, answer.headers["www-authenticate"])
    assert {
        "type": "authentication_error",
        "code": "invalid_api_key",
        "message": "a key that this server knows is needed, in one header: Authorization: Bearer KEY",
        "param": None,
        "allowed": None,
        "request_id": answer.headers["x-request-id"],
    } == answer.error


def test_the_key_that_was_refused_is_not_repeated(client: Client) -> None:
    answer = client.request("GET", "/info", headers=bearer("canary-77"))

    assert "canary-77" not in f"{answer.body!r} {answer.headers}"


def test_a_refused_request_reaches_no_engine() -> None:
    runtime = FakeRuntime()

    guarded(runtime).post("/generate", {"prompt": "abc"})

    assert [] == runtime.requests


def test_requests_and_commands_carry_the_id_of_their_key() -> None:
    runtime = FakeRuntime()
    client = guarded(runtime)
    for path in ("/generate", "/v1/completions"):
        assert 200 == client.post(path, {"prompt": "abc"}, JSON | bearer(ALICE)).status
    for method, path in (("GET", "/sessions"), ("GET", "/sessions/known"), ("DELETE", "/sessions/known")):
        client.request(method, path, headers=bearer(BOB))
    client.post("/sessions/known/fork", {"session_id": "b"}, JSON | bearer(BOB))

    assert [ALICE_ID] * 2 == [each.key_id for each in runtime.requests]
    assert [BOB_ID] * 4 == [each.key_id for each in runtime.commands]


def test_the_log_has_the_keys_id_and_never_the_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client = guarded()
    client.request("GET", "/info", headers=bearer(ALICE))
    client.request("GET", "/info", headers=bearer("canary-77"))

    told = [fields_of(record) for record in caplog.records if record.name == "service.request_log"]
    assert [(ALICE_ID, 200, None), (None, 401, "invalid_api_key")] == [
        (each["key_id"], each["status"], each["error_code"]) for each in told
    ]
    text = " ".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert ALICE not in text
    assert "canary-77" not in text


def test_a_page_of_another_origin_can_read_why_it_was_refused() -> None:
    client = guarded(settings=Settings(cors_origin=("http://page",)))

    answer = client.request("GET", "/info", headers={"origin": "http://page"})

    assert (401, "http://page") == (answer.status, answer.headers["access-control-allow-origin"])


def test_a_preflight_needs_no_key() -> None:
    client = guarded(settings=Settings(cors_origin=("http://page",)))
    asks = {
        "origin": "http://page",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }

    answer = client.request("OPTIONS", "/generate", headers=asks)

    assert (200, "authorization") == (answer.status, answer.headers["access-control-allow-headers"])


def test_without_keys_anyone_may_call() -> None:
    assert 200 == Client().get("/info").status


def through_metrics_port(client: Client, path: str, headers: Mapping[str, str] = {}) -> Answer:
    """The answer to a request that came by the port for metrics."""
    answer = Answer()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "server": ("127.0.0.1", METRICS_PORT),
    }
    asyncio.run(client.app(scope, receive, send))
    return answer


@pytest.mark.parametrize("keys", [KEYS, None])
def test_the_port_for_metrics_serves_them_and_health_without_a_key_and_nothing_else(keys: Keys | None) -> None:
    client = Client(service=make_service(settings=Settings(metrics_port=METRICS_PORT), keys=keys))
    paths = ("/metrics", "/livez", "/readyz", "/info", "/sessions", "/metrics/", "/generate")

    assert [200] * 3 + [404] * 4 == [through_metrics_port(client, path).status for path in paths]


def test_a_header_cannot_claim_the_port_for_metrics() -> None:
    client = guarded(settings=Settings(metrics_port=METRICS_PORT))

    assert 401 == client.request("GET", "/metrics", headers={"host": f"localhost:{METRICS_PORT}"}).status
