"""Answers to clients that listen, and to clients that go away."""

import asyncio
import json
import math
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from service.logs import fields_of
from service.request import Completion, Delta, GenerationRequest, TokenRecord
from service.settings import Settings
from tests.fake_runtime import FakeRuntime, Script, Silence, deltas, failing, finished, make_service, plain, silent
from tests.service.door import JSON, Answer, Client
from tests.serving import serving

ROUTES = ("/generate", "/v1/completions", "/v1/chat/completions")
STREAM = b'{"prompt":"abc","stream":true}'
WHOLE = b'{"prompt":"abc"}'
CHAT = b'{"messages":[{"role":"user","content":"abc"}]'


def body_for(route: str, body: bytes) -> bytes:
    return body.replace(b'{"prompt":"abc"', CHAT) if route.endswith("/chat/completions") else body


def events_of(body: bytes) -> list[dict[str, str]]:
    """The fields of each event, comments left out; everything must be of the grammar of event streams."""
    text = body.decode()
    assert text.endswith("\n\n")
    events = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        fields: dict[str, str] = {}
        for line in block.split("\n"):
            name, colon, value = line.partition(": ")
            assert colon
            assert name in ("", "id", "data")
            assert name not in fields
            fields[name] = value
        if "data" in fields:
            events.append(fields)
    return events


def data_of(body: bytes) -> list[Any]:
    """The JSON of every event but the last, which must be `[DONE]`."""
    *events, done = [event["data"] for event in events_of(body)]
    assert "[DONE]" == done
    return [json.loads(data) for data in events]


def stream(runtime: FakeRuntime, body: dict[str, Any] | None = None, **settings: Any) -> Answer:
    client = Client(service=make_service(runtime, settings=Settings(**settings)))
    return client.post("/generate", {"prompt": "abc", "stream": True, **(body or {})})


def test_a_stream_is_server_sent_events() -> None:
    answer = stream(FakeRuntime())

    assert (200, "text/event-stream; charset=utf-8", "no-store") == (
        answer.status,
        answer.headers["content-type"],
        answer.headers["cache-control"],
    )


def test_deltas_come_first_and_then_the_whole_response() -> None:
    *pieces, terminal = data_of(stream(FakeRuntime(plain("sun", "rise"))).body)

    assert ["sun", "rise"] == [piece["text"] for piece in pieces]
    assert "sunrise" == terminal["text"]


def test_a_delta_has_exactly_its_fields() -> None:
    piece, _ = data_of(stream(FakeRuntime(plain("ab"))).body)

    assert {"index": 0, "text": "ab", "token_ids": [67, 68], "logprobs": None} == piece


def test_the_terminal_of_a_stream_is_the_answer_that_is_not_streamed() -> None:
    whole = Client().post("/generate", {"prompt": "abc", "seed": 1}).json
    *_, terminal = data_of(stream(FakeRuntime(), {"seed": 1}).body)

    assert whole | {"id": "", "parameters": {}} == terminal | {"id": "", "parameters": {}}


def test_ids_count_the_tokens_of_each_text() -> None:
    events = events_of(stream(FakeRuntime(plain("ab", "cde")), {"num_return": 2}).body)

    assert [("2", 0), ("2", 1), ("5", 0), ("5", 1)] == [
        (event["id"], json.loads(event["data"])["index"]) for event in events[:4]
    ]


def test_a_finish_reason_stands_in_the_terminal_only() -> None:
    *pieces, terminal = data_of(stream(FakeRuntime()).body)

    assert not any("finish_reason" in piece for piece in pieces)
    assert "length" == terminal["finish_reason"]


def test_text_cannot_forge_an_event() -> None:
    forged = 'x\n\ndata: [DONE]\r\n\r\nid: 9\n\n\u2028"'

    *pieces, terminal = data_of(stream(FakeRuntime(plain(forged))).body)

    assert [forged] == [piece["text"] for piece in pieces]
    assert forged == terminal["text"]


def test_a_failure_after_the_first_token_ends_the_stream_with_an_error() -> None:
    answer = stream(FakeRuntime(failing("engine_failed", "sun")))
    piece, error = data_of(answer.body)

    assert (200, "sun", "engine_failed", answer.headers["x-request-id"]) == (
        answer.status,
        piece["text"],
        error["error"]["code"],
        error["error"]["request_id"],
    )


BROKEN = (TokenRecord(65, math.nan),)
"""JSON holds no such number, so whoever writes this down fails."""


def breaking_in_a_delta(request: GenerationRequest) -> list[Any]:
    return [*deltas(request, "sun"), Delta(request.id, 0, "a", BROKEN, 4), finished(request, "suna")]


def breaking_at_the_end(request: GenerationRequest) -> list[Any]:
    end = finished(request, "sun")
    return [*deltas(request, "sun"), replace(end, completions=(Completion(0, "sun", BROKEN, "length"),))]


@pytest.mark.parametrize(
    ("route", "script"),
    [
        *[(route, breaking_in_a_delta) for route in ROUTES],
        ("/generate", breaking_at_the_end),
    ],
)
def test_a_fault_of_ours_in_the_middle_of_a_stream_ends_it_with_an_error(
    route: str, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    logprobs = {"/generate": b"{}", "/v1/completions": b"1"}.get(route, b"true")
    answer = Client(FakeRuntime(script)).post(route, body_for(route, STREAM)[:-1] + b',"logprobs":' + logprobs + b"}")

    *_, piece, error = data_of(answer.body)

    assert b"sun" in answer.body
    assert "error" not in piece
    assert ("internal_error", answer.headers["x-request-id"]) == (error["error"]["code"], error["error"]["request_id"])
    (record,) = caplog.records
    assert error["error"]["request_id"] == fields_of(record)["request_id"]


def test_after_a_fault_of_ours_in_a_stream_its_request_runs_no_longer(caplog: pytest.LogCaptureFixture) -> None:
    runtime = FakeRuntime(breaking_in_a_delta)

    stream(runtime, {"logprobs": {}})

    assert 1 == runtime.ticket.cancels


def test_an_answer_without_text_is_still_a_stream() -> None:
    (terminal,) = data_of(stream(FakeRuntime(lambda request: [finished(request, "")])).body)

    assert "" == terminal["text"]


def pausing(request: GenerationRequest) -> list[Any]:
    return [*deltas(request, "a"), Silence(0.05), finished(request, "a")]


def test_silence_is_filled_with_comments() -> None:
    client = Client(service=make_service(FakeRuntime(silent("a")), settings=Settings(keep_alive_s=0.01)))

    def has_two(answer: Answer) -> bool:
        return answer.body.count(b": keep-alive\n\n") == 2

    answer = asyncio.run(asyncio.wait_for(client.call("POST", "/generate", STREAM, JSON, leaves_when=has_two), 30))

    assert has_two(answer)


def test_comments_leave_the_events_as_they_are() -> None:
    piece, terminal = data_of(stream(FakeRuntime(pausing), keep_alive_s=0.01).body)

    assert ("a", "a") == (piece["text"], terminal["text"])


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("body", [WHOLE, STREAM])
def test_a_request_that_ended_is_not_cancelled(route: str, body: bytes) -> None:
    runtime = FakeRuntime()

    Client(runtime).post(route, body_for(route, body))

    assert 0 == runtime.ticket.cancels


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("body", [WHOLE, STREAM])
def test_a_client_that_leaves_before_the_first_token_cancels_once(route: str, body: bytes) -> None:
    runtime = FakeRuntime(silent())

    answer = asyncio.run(
        Client(runtime).call("POST", route, body_for(route, body), JSON, leaves_when=lambda answer: True)
    )

    assert (1, 499) == (runtime.ticket.cancels, answer.status)


def has_text(answer: Answer) -> bool:
    return b"sun" in answer.body


@pytest.mark.parametrize("route", ROUTES)
def test_a_client_that_leaves_a_stream_cancels_once(route: str) -> None:
    runtime = FakeRuntime(silent("sun"))

    asyncio.run(Client(runtime).call("POST", route, body_for(route, STREAM), JSON, leaves_when=has_text))

    assert 1 == runtime.ticket.cancels


def test_a_client_that_leaves_a_stream_before_its_headers_cancels_once() -> None:
    """The first event is there, but the response that would read it never gets to its body."""
    runtime = FakeRuntime(silent("sun"))

    def refuse(answer: Answer) -> None:
        raise OSError("the socket is closed")

    asyncio.run(Client(runtime).call("POST", "/generate", STREAM, JSON, on_send=refuse))

    assert 1 == runtime.ticket.cancels


@pytest.mark.parametrize("body", [WHOLE, STREAM])
def test_a_handler_that_is_cancelled_cancels_its_request(body: bytes) -> None:
    runtime = FakeRuntime(silent("sun"))

    async def run() -> None:
        task = asyncio.create_task(Client(runtime).call("POST", "/generate", body, JSON))
        while not runtime.tickets:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())

    assert 1 == runtime.ticket.cancels


def test_no_task_outlives_its_request() -> None:
    async def run() -> set[asyncio.Task[Any]]:
        client = Client()
        for body in (WHOLE, STREAM):
            await client.call("POST", "/generate", body, JSON)
        await asyncio.sleep(0)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert set() == asyncio.run(run())


def endless(request: GenerationRequest) -> list[Any]:
    """A token every five milliseconds."""
    made: list[Any] = []
    for delta in deltas(request, *"x" * 400):
        made += [delta, Silence(0.005)]
    return made


@pytest.mark.parametrize(("body", "script"), [(WHOLE, silent()), (STREAM, endless)], ids=["whole answer", "stream"])
def test_a_closed_socket_cancels_once(body: bytes, script: Callable[[GenerationRequest], list[Delta]]) -> None:
    runtime = FakeRuntime(script)
    head = b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with serving(Client(runtime).app) as base:
        address = urlsplit(base)
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall(head % len(body) + body)
            while not runtime.tickets:
                time.sleep(0.001)
            if body == STREAM:
                assert connection.recv(1)
        deadline = time.monotonic() + 30
        while not runtime.ticket.cancels and time.monotonic() < deadline:
            time.sleep(0.001)

    assert 1 == runtime.ticket.cancels
