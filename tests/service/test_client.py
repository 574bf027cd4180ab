"""Both clients against a real socket: what they send, what they make of the answers, and how they fail."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from service.client import AsyncTaneClient, Completion, Delta, GenerateFields, Response, TaneClient, TaneError
from service.request import CacheReport, SessionInfo, SpeculationReport, Timings, Usage
from tests.serving import serving

ANSWER: dict[str, Any] = {
    "id": "r1",
    "model": "tiny",
    "text": "né",
    "token_ids": [5, 6],
    "finish_reason": "length",
    "logprobs": None,
    "usage": {"prompt_tokens": 3, "generated_tokens": 2, "cached_tokens": 1, "resumed_tokens": 0},
    "seed": 9,
    "parameters": {"temperature": 0.0},
    "cache": {
        "reused_tokens": 1,
        "computed_tokens": 2,
        "evicted_tokens": 0,
        "first_changed_token": None,
        "reason": "prefix",
    },
    "timings": {"queue_s": 0.0, "prefill_s": 0.1, "decode_s": 0.2, "tokens_per_second": 10.0},
    "reproducibility": {"level": "best_effort", "fingerprint": "f"},
}
SESSION = {"id": "a", "tokens": 3, "bytes": 96, "idle_s": 0.5, "busy": False, "parent": None}
BUSY = {
    "type": "conflict_error",
    "code": "session_busy",
    "message": "the session is generating",
    "param": "session_id",
    "allowed": None,
    "request_id": "q7",
}


def event(value: Any, sent: int | None = None) -> bytes:
    head = "" if sent is None else f"id: {sent}\n"
    return f"{head}data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()


STREAM = [
    b": keep-alive\n\n",
    event({"index": 0, "text": "n", "token_ids": [5], "logprobs": None}, 1)[:20],
    event({"index": 0, "text": "n", "token_ids": [5], "logprobs": None}, 1)[20:],
    event({"index": 0, "text": "é", "token_ids": [6], "logprobs": None}, 2) + event(ANSWER, 2) + event("[DONE]"),
]


@dataclass
class FakeServer:
    """An ASGI application that answers everything with the pieces it was told, and remembers what it got."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    seen: list[tuple[str, str, Any]] = field(default_factory=list)
    authorizations: list[bytes | None] = field(default_factory=list)
    waits: bool = False
    """Whether it sends no more, but holds the connection until the client leaves."""
    left: threading.Event = field(default_factory=threading.Event)

    def answers(self, *pieces: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.status, self.headers, self.waits = status, headers or {}, False
        self.pieces = [piece if isinstance(piece, bytes) else json.dumps(piece).encode() for piece in pieces]

    async def __call__(self, scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        body = b""
        while (message := await receive()).get("more_body") or message.get("body"):
            body += message["body"]
            if not message["more_body"]:
                break
        self.authorizations.append(dict(scope["headers"]).get(b"authorization"))
        self.seen.append((scope["method"], scope["raw_path"].decode(), json.loads(body) if body else None))
        headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if self.waits:
            await receive()
            self.left.set()
            return
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[FakeServer, str]]:
    fake = FakeServer()
    with serving(fake) as url:
        yield fake, url


@pytest.fixture
def server(running: tuple[FakeServer, str]) -> FakeServer:
    running[0].seen.clear()
    return running[0]


class Blocking:
    """The calls of TaneClient."""

    def __init__(self, url: str) -> None:
        self._url = url

    def call(self, name: str, *args: Any, **fields: Any) -> Any:
        with TaneClient(self._url) as client:
            return getattr(client, name)(*args, **fields)

    def stream(self, **fields: Any) -> Iterator[Delta | Response]:
        with TaneClient(self._url) as client:
            yield from client.stream(**cast(GenerateFields, fields))


class Asynchronous:
    """The calls of AsyncTaneClient, each in an event loop of its own."""

    def __init__(self, url: str) -> None:
        self._url = url

    def call(self, name: str, *args: Any, **fields: Any) -> Any:
        async def run() -> Any:
            async with AsyncTaneClient(self._url) as client:
                return await getattr(client, name)(*args, **fields)

        return asyncio.run(run())

    def stream(self, **fields: Any) -> Iterator[Delta | Response]:
        items: list[Delta | Response] = []

        async def run() -> None:
            async with AsyncTaneClient(self._url) as client:
                async for item in client.stream(**cast(GenerateFields, fields)):
                    items.append(item)

        failure: TaneError | None = None
        try:
            asyncio.run(run())
        except TaneError as error:
            failure = error
        yield from items
        if failure:
            raise failure


Client = Blocking | Asynchronous


@pytest.fixture(params=[Blocking, Asynchronous])
def client(request: pytest.FixtureRequest, running: tuple[FakeServer, str]) -> Client:
    made: Client = request.param(running[1])
    return made


def failure_of(client: Client, name: str = "info", *args: Any) -> TaneError:
    with pytest.raises(TaneError) as caught:
        client.call(name, *args)
    return caught.value


def test_generate_sends_just_the_fields_given(server: FakeServer, client: Client) -> None:
    server.answers(ANSWER)

    client.call("generate", prompt="hi", seed=9)

    assert [("POST", "/generate", {"prompt": "hi", "seed": 9})] == server.seen


def test_generate_returns_the_whole_answer_typed(server: FakeServer, client: Client) -> None:
    server.answers(ANSWER)

    response = client.call("generate", prompt="hi")

    expected = Response(
        id="r1",
        model="tiny",
        completions=(Completion(0, "né", (5, 6), "length", None),),
        seed=9,
        parameters={"temperature": 0.0},
        usage=Usage(3, 2, 1, 0),
        cache=CacheReport(1, 2, 0, None, "prefix"),
        timings=Timings(0.0, 0.1, 0.2, 10.0),
        reproducibility={"level": "best_effort", "fingerprint": "f"},
        raw=ANSWER,
    )
    assert expected == response


def test_several_choices_become_several_completions(server: FakeServer, client: Client) -> None:
    one = {"text": "a", "token_ids": [1], "finish_reason": "eos", "logprobs": [{"token_id": 1}]}
    shared = {name: value for name, value in ANSWER.items() if name not in one}
    server.answers({**shared, "choices": [{"index": 0, **one}, {"index": 1, **one, "text": "b"}]})

    response = client.call("generate", prompt="hi", num_return=2)

    assert [(0, "a"), (1, "b")] == [(one.index, one.text) for one in response.completions]


def test_a_field_that_this_client_does_not_know_is_kept_in_raw(server: FakeServer, client: Client) -> None:
    server.answers({**ANSWER, "usage": {**ANSWER["usage"], "newer_tokens": 4}})

    assert 4 == client.call("generate", prompt="hi").raw["usage"]["newer_tokens"]


def test_log_probabilities_of_the_prompt_are_typed(server: FakeServer, client: Client) -> None:
    entry = {"token_id": 3, "logprob": -0.5, "top": []}
    server.answers({**ANSWER, "prompt_logprobs": [None, entry]})

    assert (None, entry) == client.call("generate", prompt="hi").prompt_logprobs


def test_explanations_are_typed(server: FakeServer, client: Client) -> None:
    told = {"token_id": 5, "entropy": 1.5, "uniform": 0.25, "stages": []}
    server.answers({**ANSWER, "explain": [told, told]})

    (completion,) = client.call("generate", prompt="hi").completions

    assert (told, told) == completion.explain


def test_numbers_of_beams_are_typed(server: FakeServer, client: Client) -> None:
    server.answers({**ANSWER, "logprob": -3.5, "score": -1.75, "stopped": "bound"})

    response = client.call("generate", prompt="hi")

    (beam,) = response.completions
    assert (-3.5, -1.75, "bound") == (beam.logprob, beam.score, response.stopped)


def test_guessed_tokens_are_typed(server: FakeServer, client: Client) -> None:
    server.answers({**ANSWER, "speculation": {"drafted_tokens": 5, "accepted_tokens": 3}})

    assert SpeculationReport(5, 3) == client.call("generate", prompt="hi").speculation


@pytest.mark.parametrize("name", ["prompt_logprobs", "explain"])
def test_what_was_not_asked_for_is_none(server: FakeServer, client: Client, name: str) -> None:
    server.answers(ANSWER)

    response = client.call("generate", prompt="hi")

    assert None is (response.prompt_logprobs if name == "prompt_logprobs" else response.completions[0].explain)


def test_a_stream_yields_its_deltas_and_then_the_response(server: FakeServer, client: Client) -> None:
    server.answers(*STREAM)

    *deltas, last = client.stream(prompt="hi")

    assert [Delta(0, "n", (5,), None, 1), Delta(0, "é", (6,), None, 2)] == deltas
    assert isinstance(last, Response)
    assert "né" == last.text


def test_a_stream_is_asked_for(server: FakeServer, client: Client) -> None:
    server.answers(*STREAM)

    list(client.stream(prompt="hi"))

    assert [("POST", "/generate", {"prompt": "hi", "stream": True})] == server.seen


def test_an_error_on_the_way_comes_after_what_was_sent_before_it(server: FakeServer, client: Client) -> None:
    server.answers(*STREAM[:3], event({"error": {**BUSY, "code": "numerical_error"}}) + event("[DONE]"))
    stream = client.stream(prompt="hi")

    first = next(stream)
    with pytest.raises(TaneError) as caught:
        next(stream)

    assert Delta(0, "n", (5,), None, 1) == first
    assert (200, "numerical_error") == (caught.value.status, caught.value.code)


def test_a_stream_that_breaks_off_raises(server: FakeServer, client: Client) -> None:
    server.answers(*STREAM[:3])

    with pytest.raises(TaneError) as caught:
        list(client.stream(prompt="hi"))

    assert "stream_interrupted" == caught.value.code


def test_a_refused_stream_raises_the_named_error(server: FakeServer, client: Client) -> None:
    server.answers({"error": BUSY}, status=409)

    with pytest.raises(TaneError) as caught:
        list(client.stream(prompt="hi"))

    assert (409, "session_busy") == (caught.value.status, caught.value.code)


def test_an_error_carries_every_part_of_its_envelope(server: FakeServer, client: Client) -> None:
    server.answers({"error": {**BUSY, "allowed": [1, 2]}}, status=409, headers={"retry-after": "3"})

    error = failure_of(client)

    assert (409, "session_busy", "the session is generating", "session_id", "q7", [1, 2], 3) == (
        error.status,
        error.code,
        error.message,
        error.param,
        error.request_id,
        error.allowed,
        error.retry_after_s,
    )


def test_an_error_without_an_envelope_is_named_by_its_status(server: FakeServer, client: Client) -> None:
    server.answers(b"<html>", status=502, headers={"x-request-id": "q8"})

    error = failure_of(client)

    assert (502, "http_502", "Bad Gateway", "q8") == (
        error.status,
        error.code,
        error.message,
        error.request_id,
    )


def test_an_answer_of_another_kind_of_server_is_an_error(server: FakeServer, client: Client) -> None:
    server.answers({"tokens": [1]})

    assert "unexpected_answer" == failure_of(client, "tokenize", "hi").code


def test_tokenize_returns_ids(server: FakeServer, client: Client) -> None:
    server.answers({"token_ids": [1, 2]})

    assert [1, 2] == client.call("tokenize", "hi")
    assert [("POST", "/tokenize", {"text": "hi"})] == server.seen


def test_detokenize_returns_text(server: FakeServer, client: Client) -> None:
    server.answers({"text": "hi"})

    assert "hi" == client.call("detokenize", (1, 2))
    assert [("POST", "/detokenize", {"token_ids": [1, 2]})] == server.seen


def test_sessions_are_listed(server: FakeServer, client: Client) -> None:
    server.answers({"sessions": [SESSION]})

    assert [SessionInfo("a", 3, 96, 0.5, False, None)] == client.call("sessions")


def test_a_fork_names_the_new_session(server: FakeServer, client: Client) -> None:
    server.answers({**SESSION, "id": "b", "parent": "a"}, status=201)

    assert SessionInfo("b", 3, 96, 0.5, False, "a") == client.call("fork", "a", "b")
    assert [("POST", "/sessions/a/fork", {"session_id": "b"})] == server.seen


def test_a_session_id_cannot_leave_its_place_in_the_path(server: FakeServer, client: Client) -> None:
    server.answers(status=204)

    client.call("delete_session", "../info?x")

    assert [("DELETE", "/sessions/..%2Finfo%3Fx", None)] == server.seen


def test_info_is_returned_as_it_is(server: FakeServer, client: Client) -> None:
    server.answers({"model": {"name": "tiny"}})

    assert {"model": {"name": "tiny"}} == client.call("info")


@pytest.mark.parametrize("kind", [Blocking, Asynchronous])
def test_a_server_that_is_not_there_is_a_connection_failure(kind: type[Client]) -> None:
    error = failure_of(kind("http://127.0.0.1:1"))

    assert (None, "connection_failed") == (error.status, error.code)


def test_closing_a_stream_early_closes_its_connection(server: FakeServer, running: tuple[FakeServer, str]) -> None:
    server.answers(*STREAM[:3])
    server.waits = True
    with TaneClient(running[1]) as client:
        stream = client.stream(prompt="hi")
        next(stream)

        stream.close()

        assert server.left.wait(timeout=30)
