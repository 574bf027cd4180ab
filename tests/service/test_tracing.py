"""Requests as spans, sent by the real exporter to a collector of our own."""

import asyncio
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from service.keys import Keys
from service.logs import event_of
from service.request import Finished, GenerationRequest
from service.settings import Settings
from service.traced import TracingError, collector_of, tracer_for
from service.tracing import SpanTracer
from tests.fake_collector import Collector, Span, collecting
from tests.fake_runtime import FakeRuntime, failing, make_service, plain, silent
from tests.free_port import free_port
from tests.service.door import JSON, Answer, Client

CANARY = "canary-7f3a"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "abc"}]}
SERVER, INTERNAL = 2, 1
"""Kinds of spans as OTLP numbers them."""


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Collector, SpanTracer]]:
    with collecting() as collector:
        tracer = SpanTracer(collector.url, schedule_s=0.01)
        yield collector, tracer
        tracer.close()


@pytest.fixture
def collector(running: tuple[Collector, SpanTracer]) -> Collector:
    """The collector without what came before."""
    return running[0]


@pytest.fixture
def tracer(running: tuple[Collector, SpanTracer]) -> SpanTracer:
    return running[1]


def traced(tracer: SpanTracer, runtime: FakeRuntime | None = None, keys: Keys | None = None) -> Client:
    return Client(service=replace(make_service(runtime, keys=keys), tracer=tracer))


def of_request(collector: Collector, answer: Answer) -> list[Span]:
    """The spans of one request, the outermost first."""
    request_id = answer.headers["x-request-id"]

    def outermost() -> list[Span]:
        return [span for span in list(collector.spans) if span.attributes.get("tane.request_id") == request_id]

    collector.wait_for(lambda _: bool(outermost()))
    (server,) = outermost()
    inside = [span for span in collector.spans if span.parent_id == server.span_id]
    return [server, *sorted(inside, key=lambda span: (span.start, span.end))]


def told(collector: Collector, answer: Answer) -> Mapping[str, Any]:
    return of_request(collector, answer)[0].attributes


def test_a_request_is_one_span_of_a_server_with_its_stages_inside(collector: Collector, tracer: SpanTracer) -> None:
    answer = traced(tracer).post("/generate", {"prompt": "abc"})

    spans = of_request(collector, answer)
    assert [("POST /generate", SERVER), ("queue", INTERNAL), ("prefill", INTERNAL), ("decode", INTERNAL)] == [
        (span.name, span.kind) for span in spans
    ]
    assert 1 == len({span.trace_id for span in spans})
    assert "" == spans[0].parent_id


def test_stages_last_as_long_as_the_request_was_told_one_after_the_other(
    collector: Collector, tracer: SpanTracer
) -> None:
    answer = traced(tracer).post("/generate", {"prompt": "abc"})

    server, *inside = of_request(collector, answer)
    assert [0.25, 0.5, 1.0] == pytest.approx([span.seconds for span in inside], abs=1e-6)
    assert [span.end for span in inside[:-1]] == pytest.approx([span.start for span in inside[1:]], abs=1000)
    assert server.start <= inside[0].start <= server.end
    assert abs(time.time_ns() - server.end) < 60e9


def test_attributes_are_those_of_the_conventions(collector: Collector, tracer: SpanTracer) -> None:
    fields = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "max_new_tokens": 9, "seed": 3, "num_return": 2}
    answer = traced(tracer).post("/generate", {"prompt": "abc", "frequency_penalty": 0.25, **fields})

    assert {
        "http.request.method": "POST",
        "http.route": "/generate",
        "http.response.status_code": 200,
        "tane.request_id": answer.headers["x-request-id"],
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "tane",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.seed": 3,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_k": 7.0,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.frequency_penalty": 0.25,
        "gen_ai.request.presence_penalty": 0.0,
        "gen_ai.request.choice.count": 2,
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 14,
        "gen_ai.usage.cache_read.input_tokens": 1,
        "gen_ai.response.model": "tiny",
        "gen_ai.response.finish_reasons": ["length", "length"],
    } == told(collector, answer)


def test_time_that_a_request_gave_way_is_told(collector: Collector, tracer: SpanTracer) -> None:
    def gave_way(request: GenerationRequest) -> list[Finished]:
        (finished,) = [each for each in plain("sun")(request) if isinstance(each, Finished)]
        return [replace(finished, timings=replace(finished.timings, paused_s=0.75))]

    answer = traced(tracer, FakeRuntime(gave_way)).post("/generate", {"prompt": "abc"})

    assert 0.75 == told(collector, answer)["tane.paused_s"]


def test_a_stream_tells_when_its_first_token_came(collector: Collector, tracer: SpanTracer) -> None:
    answer = traced(tracer).post("/v1/chat/completions", {**CHAT, "stream": True})

    attributes = told(collector, answer)
    assert ("chat", True) == (attributes["gen_ai.operation.name"], attributes["gen_ai.request.stream"])
    assert 0.75 <= attributes["gen_ai.response.time_to_first_chunk"] < 10


@pytest.mark.parametrize("name", ["traceparent", "TraceParent"])
def test_the_callers_trace_goes_on(collector: Collector, tracer: SpanTracer, name: str) -> None:
    answer = traced(tracer).post("/generate", {"prompt": "abc"}, JSON | {name.lower(): TRACEPARENT})

    server, *_ = of_request(collector, answer)
    assert (TRACE, PARENT) == (server.trace_id, server.parent_id)


@pytest.mark.parametrize(
    "hostile",
    ["", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ff-" + TRACEPARENT[3:], "x" * 10_000, "\xff"],
    ids=range(5),
)
def test_a_caller_that_names_no_trace_begins_one(collector: Collector, tracer: SpanTracer, hostile: str) -> None:
    answer = traced(tracer).request("GET", "/info", headers={"traceparent": hostile, "tracestate": "a=b" * 999})

    (server,) = of_request(collector, answer)
    assert (200, "") == (answer.status, server.parent_id)
    assert TRACE != server.trace_id


def test_two_parents_are_none(tracer: SpanTracer) -> None:
    two = tracer._parent([(b"traceparent", TRACEPARENT.encode()), (b"traceparent", TRACEPARENT.encode())])

    assert {} == two
    assert {} != tracer._parent([(b"traceparent", TRACEPARENT.encode())])


def test_a_trace_that_its_caller_does_not_record_is_not_recorded_here(collector: Collector, tracer: SpanTracer) -> None:
    client = traced(tracer)
    client.request("GET", "/info", headers={"traceparent": f"00-{'9' * 32}-{PARENT}-00"})
    of_request(collector, client.request("GET", "/info"))

    assert [] == [span for span in collector.spans if span.trace_id == "9" * 32]


FAILURES: dict[str, tuple[FakeRuntime, Any, tuple[int, str, bool]]] = {
    "refused": (FakeRuntime(), {"temperature": 3}, (422, "out_of_range", False)),
    "failed": (FakeRuntime(failing("engine_failed")), {}, (500, "engine_failed", True)),
    "late": (FakeRuntime(failing("deadline_exceeded")), {}, (504, "deadline_exceeded", True)),
    "failed in a stream": (
        FakeRuntime(failing("engine_failed", "sun")),
        {"stream": True},
        (200, "engine_failed", True),
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_told_and_one_of_ours_is_an_error(collector: Collector, tracer: SpanTracer, name: str) -> None:
    runtime, fields, expected = FAILURES[name]
    answer = traced(tracer, runtime).post("/generate", {"prompt": "abc", **fields})

    server, *_ = of_request(collector, answer)
    attributes = server.attributes
    assert expected == (attributes["http.response.status_code"], attributes["error.type"], server.is_error)


def test_a_client_that_goes_away_is_told_without_a_status(collector: Collector, tracer: SpanTracer) -> None:
    before = len(collector.spans)
    client = traced(tracer, FakeRuntime(silent()))
    asyncio.run(client.call("POST", "/generate", b'{"prompt": "abc"}', JSON, leaves_when=lambda answer: True))
    collector.wait_for(lambda collector: len(collector.spans) > before)

    (server,) = [span for span in collector.spans[before:] if span.kind == SERVER]
    assert ("cancelled", False) == (server.attributes["error.type"], server.is_error)
    assert "http.response.status_code" not in server.attributes


def test_ids_of_keys_and_of_clients_are_told(collector: Collector, tracer: SpanTracer) -> None:
    keys = Keys([b"alice"])
    headers = {"authorization": "Bearer alice", "x-request-id": "theirs-1"}
    answer = traced(tracer, keys=keys).request("GET", "/info", headers=headers)

    attributes = told(collector, answer)
    assert (keys.id_of(b"alice"), "theirs-1") == (attributes["tane.key_id"], attributes["tane.client_request_id"])


def test_a_path_and_a_method_that_are_none_of_ours_are_not_told(collector: Collector, tracer: SpanTracer) -> None:
    answer = traced(tracer).request("BREW", "/pot")

    server, *_ = of_request(collector, answer)
    assert ("HTTP", "_OTHER") == (server.name, server.attributes["http.request.method"])
    assert "http.route" not in server.attributes


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
def test_what_machines_ask_all_the_time_is_not_traced(collector: Collector, tracer: SpanTracer, path: str) -> None:
    client = traced(tracer)
    answers = [client.get(each) for each in (path, "/info")]
    of_request(collector, answers[1])

    ids = {span.attributes.get("tane.request_id") for span in collector.spans}
    assert answers[0].headers["x-request-id"] not in ids


def test_neither_prompt_nor_text_nor_key_nor_path_is_told(collector: Collector, tracer: SpanTracer) -> None:
    client = traced(tracer, FakeRuntime(plain(CANARY)), keys=Keys([CANARY.encode()]))
    headers = JSON | {"authorization": f"Bearer {CANARY}", "cookie": CANARY}
    body = {"prompt": CANARY, "session_id": CANARY, "stop": [CANARY], "logprobs": {}, "explain": True}
    answers = [
        client.post("/generate", body, headers),
        client.post("/generate", {**body, "stream": True}, headers),
        client.post("/generate", {**body, CANARY: 1}, headers),
        client.request("GET", f"/{CANARY}?key={CANARY}", headers=headers),
        client.request("GET", f"/sessions/{CANARY}", headers=headers),
        client.request("GET", "/info", headers={"authorization": f"Bearer {CANARY}x"}),
    ]
    for answer in answers:
        of_request(collector, answer)

    assert [] == [body for body in collector.bodies if CANARY.encode() in body]


def test_the_service_names_itself_and_is_sent_where_otlp_says(collector: Collector, tracer: SpanTracer) -> None:
    of_request(collector, traced(tracer).get("/info"))

    assert {"/v1/traces"} == set(collector.paths)
    assert "tane" == collector.resource["service.name"]
    assert collector.resource["service.version"]


def test_the_environment_may_name_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "texts")
    with collecting() as collector:
        tracer = SpanTracer(collector.url)
        traced(tracer).get("/info")
        tracer.close()

    assert "texts" == collector.resource["service.name"]


def test_what_waits_is_sent_at_the_end() -> None:
    with collecting() as collector:
        tracer = SpanTracer(collector.url)
        traced(tracer).get("/info")
        tracer.close()

    assert ["GET /info"] == [span.name for span in collector.spans]


def test_a_dead_collector_harms_nothing_and_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tracer = SpanTracer(f"http://127.0.0.1:{free_port()}", schedule_s=0.001, export_s=0.02)
    client = traced(tracer)
    statuses = []
    for _ in range(20):
        statuses.append(client.post("/generate", {"prompt": "abc"}).status)
        time.sleep(0.005)
    tracer.close()

    assert [200] * 20 == statuses
    assert 1 == [event_of(record) for record in caplog.records].count("traces_lost")
    assert [] == [record for record in caplog.records if record.name.startswith("opentelemetry")]


def test_a_collector_that_does_not_answer_delays_no_request() -> None:
    with collecting() as collector:
        collector.may_answer.clear()
        tracer = SpanTracer(collector.url, schedule_s=0.001, export_s=30)
        client = traced(tracer)
        client.get("/info")
        collector.wait_for(lambda collector: collector.asked > 0)
        statuses = [client.get("/info").status for _ in range(20)]
        answered = collector.answered
        collector.may_answer.set()
        tracer.close()

    assert ([200] * 20, 0) == (statuses, answered)
    assert 21 == len(collector.spans)


def test_a_collector_that_is_back_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with collecting() as collector:
        collector.status = 400
        tracer = SpanTracer(collector.url, schedule_s=0.001, export_s=30)
        client = traced(tracer)
        client.get("/info")
        while "traces_lost" not in map(event_of, caplog.records):
            time.sleep(0.001)
        collector.status = 200
        client.get("/info")
        tracer.close()

    events = [event_of(record) for record in caplog.records]
    assert ["traces_lost", "traces_sent"] == [event for event in events if event.startswith("traces")]


# Whether it is on


def test_it_is_off_unless_a_collector_is_named() -> None:
    assert tracer_for(Settings.load({}, {})) is None


@pytest.mark.parametrize(
    ("environ", "flags", "expected"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1"}, {}, "http://a:1"),
        ({"TANE_OTLP_ENDPOINT": "http://b:1", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1"}, {}, "http://b:1"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1"}, {"otlp_endpoint": "http://c:1"}, "http://c:1"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, {}, None),
    ],
    ids=range(4),
)
def test_the_collector_is_named_by_flag_or_variable_or_opentelemetrys_own(
    environ: dict[str, str], flags: dict[str, str], expected: str | None
) -> None:
    assert expected == collector_of(Settings.load(environ, flags))


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        ({"PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        ({"TRACES_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
        ({"PROTOCOL": "grpc", "TRACES_PROTOCOL": "http/protobuf"}, None),
        ({"PROTOCOL": "http/protobuf"}, None),
    ],
    ids=range(4),
)
def test_another_protocol_than_ours_is_refused(names: dict[str, str], refused: str | None) -> None:
    protocols = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in names.items()}
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1", **protocols}
    if refused is None:
        assert "http://a:1" == collector_of(Settings.load(environ, {}))
        return

    settings = Settings.load(environ, {})  # which commands do that trace nothing
    with pytest.raises(TracingError, match=f"{refused} must be http/protobuf"):
        collector_of(settings)


def test_a_protocol_without_a_collector_says_nothing() -> None:
    assert collector_of(Settings.load({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, {})) is None


@pytest.mark.parametrize("endpoint", ["collector:4317", "ftp://a", "http://", "http://a:b", "http://[a"])
def test_what_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(TracingError, match="must be an address like"):
        tracer_for(Settings.load({}, {"otlp_endpoint": endpoint}))


def test_without_the_extra_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "service.tracing", None)

    with pytest.raises(TracingError, match=r"pip install 'tane\[tracing\]'"):
        tracer_for(Settings.load({}, {"otlp_endpoint": "http://127.0.0.1:4318"}))
