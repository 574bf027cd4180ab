"""The client library against the real door: what one sends the other takes, and each reads the other's answers."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from service.app import create_app
from service.client import AsyncTaneClient, GenerateFields, Response, TaneClient, TaneError, record_of
from service.context import Served
from service.errors import Overloaded
from service.request import CacheReport, ForkSession, SessionInfo, Usage
from service.schemas import GenerateRequest
from tests.fake_runtime import ENGINE_INFO, MODEL, TIMINGS, FakeRuntime, failing, make_service, plain
from tests.serving import serving

KNOWN = SessionInfo("known", tokens=5, bytes=320, idle_s=1.5, busy=False, parent=None)


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[FakeRuntime, TaneClient]]:
    runtime = FakeRuntime()
    with serving(create_app(make_service(runtime))) as url, TaneClient(url) as client:
        yield runtime, client


@pytest.fixture
def runtime(running: tuple[FakeRuntime, TaneClient]) -> FakeRuntime:
    runtime = running[0]
    runtime.script, runtime.refusal, runtime.problem = plain("sun", "rise"), None, None
    runtime.commands.clear()
    return runtime


@pytest.fixture
def client(running: tuple[FakeRuntime, TaneClient], runtime: FakeRuntime) -> TaneClient:
    return running[1]


def test_every_served_field_has_its_type() -> None:
    assert GenerateRequest.model_fields.keys() - {"stream"} == GenerateFields.__annotations__.keys()


def test_an_answer_is_read_whole(client: TaneClient) -> None:
    response = client.generate(prompt="hi", seed=5)

    assert ("sunrise", "length", 5) == (response.text, response.finish_reason, response.seed)
    assert Usage(2, 7, cached_tokens=1) == response.usage
    assert CacheReport(reused_tokens=1, computed_tokens=1, reason="prefix") == response.cache
    assert TIMINGS == response.timings


def test_several_completions_are_read(client: TaneClient) -> None:
    response = client.generate(prompt="hi", num_return=3, logprobs={"top": 1})

    assert [0, 1, 2] == [completion.index for completion in response.completions]
    assert all(completion.logprobs for completion in response.completions)


def test_deltas_joined_are_the_text(client: TaneClient) -> None:
    *deltas, response = client.stream(messages=[{"role": "user", "content": "hi"}])

    assert isinstance(response, Response)
    assert response.text == "".join(delta.text for delta in deltas if not isinstance(delta, Response))


def test_a_failure_in_a_stream_has_its_code(client: TaneClient, runtime: FakeRuntime) -> None:
    runtime.script = failing("numerical_error", "sun")

    with pytest.raises(TaneError) as caught:
        list(client.stream(prompt="hi"))

    assert (200, "numerical_error") == (caught.value.status, caught.value.code)


def test_a_bad_field_is_named(client: TaneClient) -> None:
    with pytest.raises(TaneError) as caught:
        client.generate(prompt="hi", temperature=9)

    assert (422, "out_of_range", "temperature") == (caught.value.status, caught.value.code, caught.value.param)


def test_a_refusal_says_when_to_return(client: TaneClient, runtime: FakeRuntime) -> None:
    runtime.refusal = Overloaded("the queue is full", retry_after_s=4)

    with pytest.raises(TaneError) as caught:
        client.generate(prompt="hi")

    assert (503, 4) == (caught.value.status, caught.value.retry_after_s)


def test_text_survives_its_tokens(client: TaneClient) -> None:
    assert "né\u2028" == client.detokenize(client.tokenize("né\u2028"))


def test_sessions_are_listed(client: TaneClient) -> None:
    assert [KNOWN] == client.sessions()


def test_a_session_is_forked(client: TaneClient, runtime: FakeRuntime) -> None:
    child = client.fork("known", "child")

    assert ("child", "known") == (child.id, child.parent)
    (command,) = runtime.commands
    assert isinstance(command, ForkSession)
    assert ("known", "child") == (command.session_id, command.new_session_id)


def test_a_session_is_deleted(client: TaneClient, runtime: FakeRuntime) -> None:
    client.delete_session("known")

    assert 1 == len(runtime.commands)


def test_an_unknown_session_is_an_error(client: TaneClient, runtime: FakeRuntime) -> None:
    runtime.problem = "session_not_found"

    with pytest.raises(TaneError) as caught:
        client.delete_session("none")

    assert (404, "session_not_found") == (caught.value.status, caught.value.code)


def test_a_record_of_an_answer_is_replayed(client: TaneClient) -> None:
    fields: GenerateFields = {"prompt": "hi", "session_id": "s", "logprobs": {"top": 1}}
    response = client.generate(**fields)

    replay = client.replay(record_of(fields, response.raw))

    assert (True, None, (), ("session_id",)) == (replay.equal, replay.first_difference, replay.reasons, replay.dropped)
    assert replay.response is not None
    assert response.token_ids == replay.response.token_ids


def test_a_difference_is_a_value(client: TaneClient, runtime: FakeRuntime) -> None:
    response = client.generate(prompt="hi")
    runtime.script = plain("sunset!")

    replay = client.replay(record_of({"prompt": "hi"}, response.raw))

    difference = replay.first_difference
    assert difference is not None
    assert ("token_ids", 0, 3) == (difference.field, difference.index, difference.position)
    assert (False, ("best_effort",)) == (replay.equal, replay.reasons)


def test_a_refused_replay_has_no_answer(client: TaneClient) -> None:
    response = client.generate(prompt="hi")
    made = response.raw["reproducibility"]
    other = {**response.raw, "reproducibility": {**made, "fingerprint": "other"}}

    replay = client.replay(record_of({"prompt": "hi", "max_new_tokens": 100}, other))

    assert (False, None) == (replay.equal, replay.response)
    assert replay.refusal is not None
    assert "request.max_new_tokens" == replay.refusal["param"]


def test_what_is_no_record_is_an_error(client: TaneClient) -> None:
    with pytest.raises(TaneError) as caught:
        client.replay({"request": {"prompt": "hi"}})

    assert (422, "answer") == (caught.value.status, caught.value.param)


def test_records_are_replayed_asynchronously(runtime: FakeRuntime) -> None:
    app = create_app(make_service(runtime))

    async def replayed() -> bool:
        async with AsyncTaneClient("http://localhost", transport=httpx.ASGITransport(app)) as client:
            response = await client.generate(prompt="hi")
            return (await client.replay(record_of({"prompt": "hi"}, response.raw))).equal

    assert asyncio.run(replayed())


def test_info_names_the_server(client: TaneClient) -> None:
    assert "tane" == client.info()["name"]


def test_every_call_reaches_the_model_that_it_names() -> None:
    tiny, small = FakeRuntime(), FakeRuntime(plain("moon"))
    variant = Served(small, ENGINE_INFO, replace(MODEL, name="small"))
    app = create_app(make_service(tiny, variants=[variant]))

    with serving(app) as url, TaneClient(url) as client:
        answer = client.generate(prompt="hi", model="small")
        assert client.detokenize(client.tokenize("hi", model="small"), model="small") == "hi"
        assert client.replay(record_of({"prompt": "hi"}, answer.raw), model="small").equal
        assert ["known"] == [session.id for session in client.sessions(model="small")]
        assert "b" == client.fork("known", "b", model="small").id
        client.delete_session("known", model="small")

    assert ([], []) == (tiny.requests, tiny.commands)
    assert (2, 3) == (len(small.requests), len(small.commands))
