"""A collector of traces: takes what OTLP exporters send over HTTP, and shows it as plain values.

Knows OTLP as protobuf; knows nothing of Tane.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Span:
    """One span as it was sent. Times are nanoseconds since 1970."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    is_error: bool
    attributes: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1e9


@dataclass
class Collector:
    """What came so far."""

    url: str = ""
    status: int = 200
    """That it answers with."""
    may_answer: threading.Event = field(default_factory=threading.Event)
    asked: int = 0
    answered: int = 0
    spans: list[Span] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    resource: dict[str, Any] = field(default_factory=dict)

    def take(self, path: str, body: bytes) -> None:
        self.paths.append(path)
        self.bodies.append(body)
        request = ExportTraceServiceRequest.FromString(body)
        for part in request.resource_spans:
            self.resource.update(_values(part.resource.attributes))
            self.spans += [_span(each) for scope in part.scope_spans for each in scope.spans]

    def wait_for(self, wanted: Callable[["Collector"], bool], seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not wanted(self):
            assert time.monotonic() < deadline, f"the collector did not get it: {self.spans}"
            time.sleep(0.005)


def _span(span: Any) -> Span:
    return Span(
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code == span.status.STATUS_CODE_ERROR,
        _values(span.attributes),
    )


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens until the block ends."""
    collector = Collector()
    collector.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.asked += 1
            collector.may_answer.wait(30)
            if collector.status == 200:
                collector.take(self.path, body)
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()
            collector.answered += 1

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)
