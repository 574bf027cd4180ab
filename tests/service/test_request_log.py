"""Each request has one line in the log, when it has ended, and nothing in it that anyone wrote."""

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any

import pytest

from service.logs import AnswerCut, JsonLines, TextLines, event_of, fields_of
from service.metrics import Metrics
from service.middleware import Door
from service.request import GenerationRequest
from tests.fake_runtime import FakeRuntime, failing, plain, silent
from tests.service.door import JSON, Answer, Client
from tests.source_files import ROOT

CANARY = "canary-7f3a"
FIELDS = [
    "request_id",
    "client_request_id",
    "key_id",
    "method",
    "route",
    "status",
    "error_code",
    "model",
    "streamed",
    "outcome",
    "prompt_tokens",
    "cached_tokens",
    "generated_tokens",
    "resumed_tokens",
    "queue_s",
    "prefill_s",
    "decode_s",
    "paused_s",
    "ttft_s",
    "total_s",
]


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "service")
    return caplog


def only(log: pytest.LogCaptureFixture) -> Mapping[str, Any]:
    """The fields of the only line."""
    (record,) = log.records
    assert "request" == event_of(record)
    return fields_of(record)


def test_a_whole_answer_is_told_with_its_counts_and_times(log: pytest.LogCaptureFixture) -> None:
    answer = Client().post("/generate", {"prompt": "abc"})

    told = dict(only(log))
    assert 0 < told.pop("total_s") < 60
    assert {
        "request_id": answer.headers["x-request-id"],
        "client_request_id": None,
        "key_id": None,
        "method": "POST",
        "route": "/generate",
        "status": 200,
        "error_code": None,
        "model": "tiny",
        "streamed": False,
        "outcome": "length",
        "prompt_tokens": 3,
        "cached_tokens": 1,
        "generated_tokens": 7,
        "resumed_tokens": 0,
        "queue_s": 0.25,
        "prefill_s": 0.5,
        "decode_s": 1.0,
        "paused_s": 0.0,
        "ttft_s": 0.75,
    } == told


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/generate", {"prompt": "abc"}),
        ("/v1/completions", {"model": "tiny", "prompt": "abc"}),
        ("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "abc"}]}),
    ],
)
def test_a_stream_is_told_once_at_its_end(route: str, body: Any, log: pytest.LogCaptureFixture) -> None:
    answer = Client().post(route, {**body, "stream": True})

    told = only(log)
    assert answer.complete
    assert (route, 200, True, "length", 7) == (
        told["route"],
        told["status"],
        told["streamed"],
        told["outcome"],
        told["generated_tokens"],
    )


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_is_told_as_cancelled(stream: bool, log: pytest.LogCaptureFixture) -> None:
    client = Client(FakeRuntime(silent("sun") if stream else silent()))
    body = b'{"prompt": "abc", "stream": %s}' % str(stream).lower().encode()

    def leaves(answer: Answer) -> bool:
        return b"sun" in answer.body or not stream

    asyncio.run(client.call("POST", "/generate", body, JSON, leaves_when=leaves))

    assert ("cancelled", 200 if stream else 499, stream) == (
        only(log)["outcome"],
        only(log)["status"],
        only(log)["streamed"],
    )


def test_a_client_that_is_gone_while_it_is_sent_to_has_its_counts_told(log: pytest.LogCaptureFixture) -> None:
    def break_pipe(answer: Any) -> None:
        if b"sun" in answer.body:
            raise BrokenPipeError

    client = Client(FakeRuntime(silent("sun")))
    asyncio.run(client.call("POST", "/generate", b'{"prompt": "abc", "stream": true}', JSON, on_send=break_pipe))

    assert ("cancelled", 0) == (only(log)["outcome"], only(log)["generated_tokens"])


def test_a_client_that_goes_away_before_its_body_came_is_told_as_cancelled(log: pytest.LogCaptureFixture) -> None:
    calling = Client().call("POST", "/generate", b"{", JSON, complete_body=False, leaves_when=lambda answer: True)
    asyncio.run(calling)

    assert ("cancelled", 499) == (only(log)["outcome"], only(log)["status"])


def test_a_refused_request_is_told_with_its_code(log: pytest.LogCaptureFixture) -> None:
    Client().post("/generate", {"prompt": "abc", "temperature": 3})

    assert (422, "out_of_range", None) == (only(log)["status"], only(log)["error_code"], only(log)["outcome"])


@pytest.mark.parametrize("texts", [(), ("sun",)])
def test_a_failure_of_ours_is_told_once_as_an_error(texts: Any, log: pytest.LogCaptureFixture) -> None:
    Client(FakeRuntime(failing("engine_failed", *texts))).post("/generate", {"prompt": "abc", "stream": True})

    assert "engine_failed" == only(log)["outcome"]
    assert ["ERROR"] == [record.levelname for record in log.records]


def broken(request: GenerationRequest) -> Any:
    raise RuntimeError("unlucky")


def test_an_unexpected_exception_is_told_once_under_its_request_id(log: pytest.LogCaptureFixture) -> None:
    answer = Client(FakeRuntime(broken)).post("/generate", {"prompt": "abc"})

    told = only(log)
    assert (answer.error["request_id"], 500, "internal_error") == (
        told["request_id"],
        told["status"],
        told["error_code"],
    )
    assert "RuntimeError: unlucky" in JsonLines().format(log.records[0])


def test_a_fault_in_a_stream_is_told_once_with_its_traceback_and_counts(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwritable(*_: object) -> bytes:
        raise RuntimeError("unlucky")

    monkeypatch.setattr("service.routes.GenerateStream.finished", unwritable)

    Client().post("/generate", {"prompt": "abc", "stream": True})

    told = only(log)
    assert (200, "internal_error", 7) == (told["status"], told["error_code"], told["generated_tokens"])
    assert "ERROR" == log.records[0].levelname
    assert "RuntimeError: unlucky" in JsonLines().format(log.records[0])


def test_the_end_of_a_request_whose_stream_broke_is_told(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.routes.GenerateStream.delta", lambda *_: 1 // 0)

    Client().post("/generate", {"prompt": "abc", "stream": True})

    assert "cancelled" == only(log)["outcome"]


def test_an_exception_after_the_status_is_told_once_and_cuts_the_answer(log: pytest.LogCaptureFixture) -> None:
    async def breaking(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("unlucky")

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    async def send(message: Any) -> None:
        pass

    door = Door(breaking, Metrics(), frozenset())
    scope = {"type": "http", "method": "GET", "headers": []}

    with pytest.raises(AnswerCut):
        asyncio.run(door(scope, receive, send))

    assert 200 == only(log)["status"]
    assert "ERROR" == log.records[0].levelname


@pytest.mark.parametrize(
    "hostile", ['a"}\n{"event":"forged"}', "a\r\nx", "\x1b[2J", "a b", "x" * 129, "", "\xff", "a=b"], ids=repr
)
def test_an_id_that_could_mean_something_is_not_repeated(hostile: str, log: pytest.LogCaptureFixture) -> None:
    Client().request("GET", "/info", headers={"x-request-id": hostile})

    assert only(log)["client_request_id"] is None


def test_a_plain_id_of_the_client_is_told_beside_ours(log: pytest.LogCaptureFixture) -> None:
    answer = Client().request("GET", "/info", headers={"x-request-id": "trace:A-1_b.2"})

    assert ("trace:A-1_b.2", answer.headers["x-request-id"]) == (
        only(log)["client_request_id"],
        only(log)["request_id"],
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()])
def test_neither_prompt_nor_text_nor_path_is_told(
    formatter: logging.Formatter, stream: bool, log: pytest.LogCaptureFixture
) -> None:
    client = Client(FakeRuntime(plain(CANARY)))
    body = {"prompt": CANARY, "stream": stream, "session_id": CANARY, "stop": [CANARY], "logprobs": {}, "explain": True}
    client.post("/generate", body, JSON | {"authorization": f"Bearer {CANARY}", "cookie": CANARY})
    client.post("/generate", {**body, CANARY: 1})
    client.post("/generate", f'{{"prompt": "{CANARY}'.encode())
    client.get(f"/{CANARY}?key={CANARY}")
    client.get(f"/sessions/{CANARY}?model={CANARY}")

    lines = [formatter.format(record) for record in log.records]

    assert 5 == len(lines)
    assert [] == [line for line in lines if CANARY in line]


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/ui/js/main.js"])
def test_what_machines_ask_all_the_time_is_told_at_debug_while_all_is_well(
    path: str, log: pytest.LogCaptureFixture
) -> None:
    runtime = FakeRuntime()
    client = Client(runtime)
    client.get(path)
    runtime.is_live = runtime.is_ready = False
    client.get(path)

    assert ["DEBUG", "INFO" if path in ("/livez", "/readyz") else "DEBUG"] == [
        record.levelname for record in log.records
    ]


def test_a_path_that_is_no_route_and_a_method_that_is_none_are_told_as_other(log: pytest.LogCaptureFixture) -> None:
    Client().request("BREW", "/pot")

    assert ("other", "other", 404) == (only(log)["route"], only(log)["method"], only(log)["status"])


def test_every_line_has_the_same_fields(log: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.get("/info")
    client.post("/generate", {"prompt": "abc"})
    client.post("/generate", {})

    assert [FIELDS] * 3 == [list(fields_of(record)) for record in log.records]


def test_the_page_on_logs_lists_the_fields() -> None:
    text = (ROOT / "docs/logs.md").read_text(encoding="utf-8")
    table = text[text.index("<!-- request fields -->") : text.index("<!-- /request fields -->")]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]

    assert FIELDS == re.findall(r"`(\w+)`", " ".join(cells))
