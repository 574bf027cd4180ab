"""A client of several servers: an answer that breaks off goes on elsewhere, and refusals that pass are waited out."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import httpx
import pytest

from service.client import AsyncClient, Client, TaneError
from service.generate_fields import GenerateFields

A, B = "http://a.test", "http://b.test"
WORDS = ("The ", "seed ", "opens", ".")
FIRST_ID = 10
BROKEN = object()
"""In a script: the connection breaks here."""


def delta(number: int, index: int = 0) -> dict[str, Any]:
    """The event of one token."""
    return {"index": index, "text": WORDS[number], "token_ids": [FIRST_ID + number], "logprobs": None}


def terminal(resumed: int = 0) -> dict[str, Any]:
    ids = [FIRST_ID + number for number in range(len(WORDS))]
    usage = {"generated_tokens": len(ids) - resumed, "resumed_tokens": resumed}
    return {"text": "".join(WORDS), "token_ids": ids, "usage": usage}


def error(code: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"type": "t", "code": code, "message": "m", "param": param, "allowed": None, "request_id": "r"}}


class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The bytes of events, which may break off."""

    def __init__(self, events: Sequence[Any]) -> None:
        self._events = events

    def __iter__(self) -> Iterator[bytes]:
        for number, event in enumerate(self._events):
            if event is BROKEN:
                raise httpx.ReadError("gone")
            yield f"id: {number}\ndata: {json.dumps(event)}\n\n".encode()

    async def __aiter__(self) -> Any:
        for piece in self:
            yield piece


def answered(script: Sequence[Any], fingerprint: str | None = None) -> httpx.Response:
    headers = {} if fingerprint is None else {"x-tane-fingerprint": fingerprint}
    return httpx.Response(200, stream=Body(script), headers=headers)


@dataclass(slots=True)
class Servers:
    """Answers one script after another, and remembers what it was asked."""

    scripts: list[Any]
    asked: list[tuple[str, dict[str, Any], Mapping[str, str]]] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        place = f"{request.url.scheme}://{request.url.host}"
        self.asked.append((place, json.loads(request.content), request.headers))
        script = self.scripts.pop(0)
        if isinstance(script, Exception):
            raise script
        if isinstance(script, httpx.Response):
            return script
        return answered(script)

    @property
    def places(self) -> list[str]:
        return [place for place, _, _ in self.asked]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, body, _ in self.asked]


Streams = Callable[..., list[dict[str, Any]]]


def blocking(servers: Servers, urls: Sequence[str] = (A, B), **fields: Any) -> list[dict[str, Any]]:
    with Client(urls, "key", transport=httpx.MockTransport(servers)) as client:
        return list(client.stream(**cast(GenerateFields, {"prompt": "x", **fields})))


def asynchronous(servers: Servers, urls: Sequence[str] = (A, B), **fields: Any) -> list[dict[str, Any]]:
    async def run() -> list[dict[str, Any]]:
        async with AsyncClient(urls, "key", transport=httpx.MockTransport(servers)) as client:
            return [event async for event in client.stream(**cast(GenerateFields, {"prompt": "x", **fields}))]

    return asyncio.run(run())


@pytest.fixture(params=[blocking, asynchronous])
def stream(request: pytest.FixtureRequest) -> Streams:
    made: Streams = request.param
    return made


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited, in place of waiting."""
    waited: list[float] = []

    async def note(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("service.client.time.sleep", waited.append)
    monkeypatch.setattr("service.client.asyncio.sleep", note)
    return waited


WHOLE = [*map(delta, range(len(WORDS))), terminal()]


def test_an_undisturbed_stream_is_the_server_s_events(stream: Streams) -> None:
    assert WHOLE == stream(Servers([WHOLE]))


@pytest.mark.parametrize("cut", range(1, len(WORDS) + 1))
def test_an_answer_that_breaks_off_goes_on_at_the_next_server(cut: int, stream: Streams) -> None:
    rest = [*map(delta, range(cut, len(WORDS))), terminal(cut)]
    servers = Servers([[*WHOLE[:cut], BROKEN], rest])

    events = stream(servers, seed=5)

    assert [*WHOLE[:-1], terminal(cut)] == events
    assert [A, B] == servers.places
    assert {"token_ids": [FIRST_ID + number for number in range(cut)]} == servers.bodies[1]["resume"]


def test_nothing_is_resumed_where_nothing_came(stream: Streams) -> None:
    servers = Servers([[BROKEN], WHOLE])

    assert WHOLE == stream(servers)
    assert "resume" not in servers.bodies[1]


def test_a_stream_that_ends_without_its_answer_goes_on(stream: Streams) -> None:
    assert [*WHOLE[:-1], terminal(1)] == stream(Servers([WHOLE[:1], [*WHOLE[1:-1], terminal(1)]]))


def test_a_seed_is_drawn_once(stream: Streams) -> None:
    servers = Servers([[BROKEN], WHOLE])

    stream(servers)

    first, second = servers.bodies
    assert first["seed"] == second["seed"]
    assert 0 <= first["seed"] < 2**53


def test_what_is_none_is_left_out(stream: Streams) -> None:
    """A seed is drawn, and a deadline that nobody set has nothing left of it."""
    servers = Servers([[BROKEN], WHOLE])

    stream(servers, seed=None, deadline_ms=None, resume=None, session_id=None)

    assert [{"prompt", "seed", "stream"}] * 2 == [set(body) for body in servers.bodies]
    assert servers.bodies[0]["seed"] == servers.bodies[1]["seed"] is not None


def test_several_texts_are_asked_for_again_and_what_was_seen_is_dropped(stream: Streams) -> None:
    """Another server may cut its deltas elsewhere."""
    both = {"index": 0, "text": WORDS[0] + WORDS[1], "token_ids": [FIRST_ID, FIRST_ID + 1], "logprobs": None}
    again = [both, delta(0, 1), delta(1, 1), delta(2), terminal()]
    servers = Servers([[delta(0), delta(0, 1), BROKEN], again])

    events = stream(servers, num_return=2)

    assert [delta(0), delta(0, 1), delta(1), delta(1, 1), delta(2), terminal()] == events
    assert "resume" not in servers.bodies[1]


def test_a_server_that_cannot_resume_is_asked_for_the_whole(stream: Streams) -> None:
    refusal = httpx.Response(422, json=error("invalid_combination", "resume.token_ids.0"))
    servers = Servers([[delta(0), BROKEN], refusal, WHOLE])

    assert WHOLE == stream(servers)
    assert [A, B, B] == servers.places


def test_resumed_tokens_of_the_caller_s_own_stand_before_those_that_came(stream: Streams) -> None:
    servers = Servers([[delta(2), BROKEN], [delta(3), terminal(3)]])

    stream(servers, resume={"token_ids": [7, 8]})

    assert {"token_ids": [7, 8, FIRST_ID + 2]} == servers.bodies[1]["resume"]


def overloaded(seconds: int) -> httpx.Response:
    return httpx.Response(503, json=error("overloaded"), headers={"retry-after": str(seconds)})


def test_a_full_server_is_left_for_the_next_at_once(stream: Streams, waits: list[float]) -> None:
    servers = Servers([overloaded(9), WHOLE])

    assert WHOLE == stream(servers)
    assert ([A, B], [0.0]) == (servers.places, waits)


def test_where_all_are_full_the_wait_is_theirs(stream: Streams, waits: list[float]) -> None:
    servers = Servers([overloaded(9), overloaded(7), WHOLE])

    assert WHOLE == stream(servers)
    assert ([A, B, A], [0.0, 7.0]) == (servers.places, waits)


def test_a_server_that_is_not_there_is_tried_less_and_less_often(stream: Streams, waits: list[float]) -> None:
    gone = httpx.ConnectError("refused")

    stream(Servers([gone, gone, gone, WHOLE]), [A])

    assert all(low <= wait <= 2 * low for low, wait in zip([0.05, 0.1, 0.2], waits, strict=True))


def test_in_the_end_the_error_is_raised(stream: Streams, waits: list[float]) -> None:
    with pytest.raises(TaneError) as raised:
        stream(Servers([httpx.ConnectError("refused")] * 8))

    assert "connection_failed" == raised.value.code


def test_a_refusal_that_does_not_pass_is_raised_at_once(stream: Streams) -> None:
    servers = Servers([httpx.Response(422, json=error("out_of_range", "top_p"))])

    with pytest.raises(TaneError) as raised:
        stream(servers)

    assert (422, "top_p") == (raised.value.status, raised.value.param)


@pytest.mark.parametrize("code", ["engine_failed", "engine_stopped"])
def test_a_failure_in_the_middle_goes_on_elsewhere(code: str, stream: Streams) -> None:
    assert [*WHOLE[:-1], terminal(1)] == stream(Servers([[delta(0), error(code)], [*WHOLE[1:-1], terminal(1)]]))


@pytest.mark.parametrize("code", ["numerical_error", "constraint_failed", "deadline_exceeded"])
def test_a_failure_that_would_come_again_is_raised(code: str, stream: Streams) -> None:
    with pytest.raises(TaneError) as raised:
        stream(Servers([[delta(0), error(code)]]))

    assert code == raised.value.code


def test_the_key_is_sent(stream: Streams) -> None:
    servers = Servers([WHOLE])

    stream(servers)

    assert "Bearer key" == servers.asked[0][2]["authorization"]


def test_the_next_answer_is_asked_where_the_last_one_came_from() -> None:
    servers = Servers([httpx.ConnectError("refused"), WHOLE, WHOLE])
    with Client([A, B], transport=httpx.MockTransport(servers)) as client:
        client.generate(prompt="x")
        answer = client.generate(prompt="x")

    assert (terminal(), [A, B, B]) == (answer, servers.places)


def test_what_is_left_of_a_deadline_is_sent(stream: Streams) -> None:
    servers = Servers([[BROKEN], WHOLE])

    stream(servers, deadline_ms=60_000)

    assert 0 < servers.bodies[1]["deadline_ms"] < 60_000


def test_one_address_is_enough() -> None:
    with Client(A + "/", transport=httpx.MockTransport(servers := Servers([WHOLE]))) as client:
        client.generate(prompt="x")

    assert [A] == servers.places


def test_no_address_is_an_error() -> None:
    with pytest.raises(ValueError, match="base URL"):
        Client([])


def test_a_key_that_is_not_known_is_not_sent_again(stream: Streams) -> None:
    servers = Servers([httpx.Response(401, json=error("invalid_api_key"))])

    with pytest.raises(TaneError) as raised:
        stream(servers)

    assert (401, "invalid_api_key") == (raised.value.status, raised.value.code)


def busy() -> httpx.Response:
    return httpx.Response(409, json=error("session_busy", "session_id"))


def test_a_session_that_the_lost_attempt_holds_is_waited_for(stream: Streams, waits: list[float]) -> None:
    servers = Servers([[delta(0), BROKEN], busy(), busy(), [*WHOLE[1:-1], terminal(1)]])

    assert [*WHOLE[:-1], terminal(1)] == stream(servers, session_id="s")
    assert 3 == len(waits)


def test_a_session_that_someone_else_holds_is_an_error(stream: Streams) -> None:
    with pytest.raises(TaneError) as raised:
        stream(Servers([busy()]), session_id="s")

    assert "session_busy" == raised.value.code


def test_a_server_that_comes_back_goes_on(stream: Streams, waits: list[float]) -> None:
    gone = httpx.ConnectError("refused")
    servers = Servers([[delta(0), BROKEN], gone, gone, [*WHOLE[1:-1], terminal(1)]])

    assert [*WHOLE[:-1], terminal(1)] == stream(servers, [A])
    assert all(waits)


def test_an_answer_goes_on_at_a_server_of_the_same_bits(stream: Streams, waits: list[float]) -> None:
    """The one that computes others is passed over."""
    begun, other = answered([delta(0), BROKEN], "int8"), answered([*WHOLE[1:-1], terminal(1)], "float16")
    servers = Servers([begun, other, answered([*WHOLE[1:-1], terminal(1)], "int8")])

    assert [*WHOLE[:-1], terminal(1)] == stream(servers)
    assert [A, B, A] == servers.places


def test_a_stream_does_not_go_on_with_other_bits(stream: Streams, waits: list[float]) -> None:
    others = [answered([*WHOLE[1:-1], terminal(1)], "float16") for _ in range(8)]

    with pytest.raises(TaneError, match="float16 cannot go on with the answer of int8") as raised:
        stream(Servers([answered([delta(0), BROKEN], "int8"), *others]))

    assert "fingerprint_mismatch" == raised.value.code


def test_where_nothing_came_any_server_may_answer(stream: Streams) -> None:
    assert WHOLE == stream(Servers([answered([BROKEN], "int8"), answered(WHOLE, "float16")]))


def test_an_answer_that_nobody_saw_is_asked_for_anew_where_bits_are_others() -> None:
    begun, refused = answered([delta(0), BROKEN], "int8"), answered([*WHOLE[1:-1], terminal(1)], "float16")
    servers = Servers([begun, refused, answered(WHOLE, "float16")])
    with Client([A, B], transport=httpx.MockTransport(servers)) as client:
        answer = client.generate(prompt="x")

    assert (terminal(), [A, B, B]) == (answer, servers.places)
    assert ["resume" in body for body in servers.bodies] == [False, True, False]
