"""A replica behind a router: what it adds to answers, how its engines live, and what it tells of itself."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from service import replica as replica_module
from service import watchdog
from service.context import Service
from service.engine import Engine
from service.replica import EngineLost, Replica
from service.request import RequestEvent
from service.runtime import Runtime
from service.settings import Settings
from service.startup import build_service
from service.step_report import StepReport
from tests.fake_runtime import make_service
from tests.slow_steps import slow_steps
from tests.tiny_model import TinyShape, write_tiny_gguf

BODY = {"prompt": "The seed", "max_new_tokens": 4, "seed": 3}
LONG = {**BODY, "max_new_tokens": 400, "ignore_eos": True, "stream": True, "speculation": "off"}
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=512))


@pytest.fixture
def service(model: Path) -> Service:
    settings = {"model": str(model), "kv_cache_bytes": 4 << 20, "threads": 1, "insecure": True}
    return build_service(Settings.load({}, settings))


@asynccontextmanager
async def living(replica: Replica) -> AsyncIterator[httpx.AsyncClient]:
    """Begin its life as a server would, and end it after the block."""
    orders: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    said: asyncio.Queue[Any] = asyncio.Queue()
    life = asyncio.create_task(replica({"type": "lifespan"}, orders.get, said.put))
    await orders.put({"type": "lifespan.startup"})
    assert {"type": "lifespan.startup.complete"} == await said.get()
    transport = httpx.ASGITransport(app=replica)
    async with httpx.AsyncClient(transport=transport, base_url="http://replica.test") as client:
        yield client
    await orders.put({"type": "lifespan.shutdown"})
    assert {"type": "lifespan.shutdown.complete"} == await said.get()
    await life


class Call:
    """One request made by hand, as a router makes it; it may be cancelled."""

    def __init__(self, replica: Replica, body: dict[str, Any]) -> None:
        self.pieces: list[bytes] = []
        self.began = asyncio.Event()
        self._arriving = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/generate",
            "raw_path": b"/generate",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }
        self.task = asyncio.create_task(replica(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._arriving:
            return self._arriving.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def _send(self, message: Any) -> None:
        if message.get("body"):
            self.pieces.append(message["body"])
            self.began.set()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("path", ["/readyz", "/nothing-there"])
def test_every_answer_names_its_replica(path: str, service: Service) -> None:
    async def test() -> None:
        async with living(Replica(service, "r7")) as client:
            assert "r7" == (await client.get(path)).headers["x-tane-replica"]

    run(test)


def test_an_answer_has_one_request_id(service: Service) -> None:
    """The router's where it gives one, and it is the router that tells it."""

    async def test() -> None:
        async with living(Replica(service, "r7")) as client:
            own = await client.get("/readyz")
            routed = await client.get("/readyz", headers={"x-request-id": "from-the-router"})

        assert 1 == len(own.headers.get_list("x-request-id"))
        assert [] == routed.headers.get_list("x-request-id")

    run(test)


def test_it_generates_while_it_lives(service: Service) -> None:
    async def test() -> None:
        async with living(Replica(service, "r7")) as client:
            answer = await client.post("/generate", json=BODY)

        assert (200, 4) == (answer.status_code, len(answer.json()["token_ids"]))

    run(test)


def test_what_runs_when_its_life_ends_is_sent_whole(service: Service) -> None:
    async def test() -> None:
        replica = Replica(service, "r7")
        async with living(replica):
            call = Call(replica, LONG)
            await call.began.wait()
        await call.task

        assert call.pieces[-1].endswith(b"data: [DONE]\n\n")
        assert b'"finish_reason":"length"' in call.pieces[-1]

    run(test)


def test_it_tells_how_much_waits(service: Service) -> None:
    async def test() -> None:
        replica = Replica(service, "r7")
        async with living(replica):
            call = Call(replica, LONG)
            await call.began.wait()
            busy = replica.load["queued_tokens"]
            await call.task
            idle = replica.load["queued_tokens"]

        assert busy >= 400
        assert 0 == idle

    with slow_steps(0.001):
        run(test)


@pytest.mark.parametrize("streams", [True, False])
def test_a_call_that_is_cancelled_ends_as_one_whose_client_has_gone(
    streams: bool, service: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its line in the log has what it used."""
    step = Engine.step
    ran: list[Engine] = []

    def counted_step(engine: Engine) -> tuple[list[RequestEvent], StepReport]:
        ran.append(engine)
        return step(engine)

    monkeypatch.setattr(Engine, "step", counted_step)

    async def test() -> None:
        replica = Replica(service, "r7")
        async with living(replica):
            call = Call(replica, {**LONG, "stream": streams})
            await until(lambda: replica.load["queued_tokens"] > 0)
            submitted = len(ran)
            await until(lambda: len(ran) > submitted + 2)
            call.task.cancel()
            await until(lambda: replica.load["queued_tokens"] == 0)
            await until(lambda: any(record.getMessage() == "request" for record in caplog.records))

    with caplog.at_level(logging.INFO, "service.request_log"), slow_steps(0.01):
        run(test)

    (line,) = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "request"]
    assert "cancelled" == line["outcome"]
    assert line["prompt_tokens"] > 0


def test_a_replica_whose_engine_has_ended_fails_its_health_check(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(runtime: Runtime) -> bool:
        raise SystemExit

    monkeypatch.setattr(Runtime, "_turn", broken)

    assert fails_its_health_check(service, monkeypatch, lambda client: client.get("/livez"))


def test_whoever_waits_for_an_engine_that_hangs_is_answered(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    moves, answers = threading.Event(), []
    whole = Engine.step

    def hanging(engine: Engine) -> Any:
        if not engine.is_idle:
            moves.wait(PATIENCE_S)
        return whole(engine)

    async def ask(client: httpx.AsyncClient) -> None:
        answers.append(await client.post("/generate", json=BODY))
        moves.set()

    monkeypatch.setattr(watchdog, "STALL_S", 0.1)
    monkeypatch.setattr(Engine, "step", hanging)

    assert fails_its_health_check(service, monkeypatch, ask)
    assert [(503, "engine_stopped")] == [(each.status_code, each.json()["error"]["code"]) for each in answers]


def fails_its_health_check(
    service: Service, monkeypatch: pytest.MonkeyPatch, ask: Callable[[httpx.AsyncClient], Awaitable[Any]]
) -> bool:
    """Whether a replica that was well at first does so in the end."""

    def is_lost(replica: Replica) -> bool:
        try:
            replica.check_health()
        except EngineLost:
            return True
        return False

    async def test() -> None:
        replica = Replica(service, "r7")
        assert not is_lost(replica)
        async with living(replica) as client:
            await ask(client)
            await until(lambda: is_lost(replica))

    monkeypatch.setattr(replica_module, "LOOK_S", 0.02)
    logging.disable(logging.CRITICAL)
    try:
        run(test)
    finally:
        logging.disable(logging.NOTSET)
    return True


def test_a_key_that_is_added_while_it_lives_is_known(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first\n")
    settings = {"model": str(model), "kv_cache_bytes": 4 << 20, "threads": 1, "keys_file": str(keys)}
    service = build_service(Settings.load({}, settings))

    async def status(client: httpx.AsyncClient, key: str) -> int:
        return (await client.get("/info", headers={"authorization": f"Bearer {key}"})).status_code

    async def test() -> None:
        async with living(Replica(service, "r7")) as client:
            assert (200, 401) == (await status(client, "first"), await status(client, "second"))
            keys.write_text("first\nsecond\n")
            while await status(client, "second") != 200:
                await asyncio.sleep(0.005)

    monkeypatch.setattr(replica_module, "LOOK_S", 0.01)
    run(test)


def test_what_is_left_of_traces_is_sent_when_its_life_ends(service: Service) -> None:
    class Collecting:
        closed = False

        def tell(self, *_: object) -> None: ...

        def close(self) -> None:
            self.closed = True

    async def test() -> None:
        async with living(Replica(replace(service, tracer=tracer), "r7")):
            assert not tracer.closed

    tracer = Collecting()
    run(test)

    assert tracer.closed


def test_engines_that_are_another_server_s_cannot_be_a_replica() -> None:
    with pytest.raises(TypeError, match="engines of its own"):
        Replica(make_service(), "r7")
