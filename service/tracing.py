"""Each request as a span for OpenTelemetry, made when it has ended, with a span inside for each of its stages.

The only module that imports opentelemetry. Attributes are those of the semantic conventions for HTTP servers and for
generative AI, and a few of our own. Knows notes on requests; knows no routes.
Always: what is told is a number, or from a closed set, or of our own making, or an id that has passed `SAFE_ID`; never
a prompt, a text or a path. A collector that is slow or gone delays nothing: spans wait in a bounded queue for a thread
of the SDK, and are dropped when it is full.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from secrets import token_hex
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from service import __version__
from service.logs import told
from service.middleware import OTHER_ROUTE
from service.request import Failed, Finished, GenerationRequest
from service.request_log import GONE, METHODS, WATCHED, RequestNote

logger = logging.getLogger(__name__)

PATH = "/v1/traces"
EXPORT_S = 3.0
CHAT_ROUTE = "/v1/chat/completions"
CONTEXT_HEADERS = ("traceparent", "tracestate")
"""What W3C's Trace Context defines."""
NS = 1_000_000_000


class SpanTracer:
    """Tells one collector of requests."""

    def __init__(self, endpoint: str, *, schedule_s: float | None = None, export_s: float = EXPORT_S) -> None:
        """`endpoint` without the path for traces. Spans are sent every `schedule_s`, else as OTEL_BSP_… say, and a
        batch may take `export_s`, repeated attempts included."""
        resource = Resource.create(
            {"service.name": "tane", "service.version": __version__, "service.instance.id": token_hex(16)}
        )
        # What the environment says of the service goes before.
        self._provider = TracerProvider(
            resource=resource.merge(OTELResourceDetector().detect()), shutdown_on_exit=False
        )
        exporter = _Exporter(endpoint, export_s)
        delay = None if schedule_s is None else schedule_s * 1000
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=delay))
        self._tracer = self._provider.get_tracer("tane", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def tell(self, note: RequestNote, route: str, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Make the spans of a request that ends now."""
        if route in WATCHED:
            return
        moments = _Moments()
        method = note.method if note.method in METHODS else "HTTP"
        span = self._tracer.start_span(
            method if route == OTHER_ROUTE else f"{method} {route}",
            context=self._parent(headers),
            kind=SpanKind.SERVER,
            attributes=dict(attributes(note, route, status)),
            start_time=moments.at(note.began),
        )
        if span.is_recording():
            inside = set_span_in_context(span)
            for name, began, ended in stages(note):
                stage = self._tracer.start_span(name, context=inside, start_time=moments.at(began))
                stage.end(moments.at(ended))
            if failed(note, status):
                span.set_status(Status(StatusCode.ERROR))
        span.end(moments.now_ns)

    def close(self) -> None:
        """Send what waits, and end the thread that sends."""
        self._provider.shutdown()

    def _parent(self, headers: Iterable[tuple[bytes, bytes]]) -> Context:
        """The span that the caller is in, if it names one that can be meant; else none."""
        given: dict[str, list[str]] = {name: [] for name in CONTEXT_HEADERS}
        for name, value in headers:
            if (text := name.decode("latin-1")) in given:
                given[text].append(value.decode("latin-1"))
        if len(given["traceparent"]) != 1:
            return Context()
        return self._propagator.extract(given, Context())


class _Moments:
    """Moments of `time.perf_counter` as nanoseconds since 1970, seen from one that is now."""

    def __init__(self) -> None:
        self.now_ns = time.time_ns()
        self._now = time.perf_counter()

    def at(self, moment: float) -> int:
        return self.now_ns - round((self._now - moment) * NS)


class _Exporter(SpanExporter):
    """Sends spans by HTTP, and tells once when the collector is lost and when it is back."""

    def __init__(self, endpoint: str, export_s: float) -> None:
        # It tells of each attempt; what matters is told here.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._inner = OTLPSpanExporter(endpoint.rstrip("/") + PATH, timeout=export_s)
        parts = urlsplit(endpoint)
        self._collector = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
        self._is_lost = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        is_lost = result is not SpanExportResult.SUCCESS
        if is_lost and not self._is_lost:
            logger.warning("traces do not reach %s and are lost", self._collector, extra=told("traces_lost"))
        elif self._is_lost and not is_lost:
            logger.info("traces reach %s again", self._collector, extra=told("traces_sent"))
        self._is_lost = is_lost
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()  # type: ignore[no-untyped-call]


def stages(note: RequestNote) -> Iterator[tuple[str, float, float]]:
    """Waiting, reading the prompt and generating: name, begin and end, as far as the request came."""
    timings = None if note.end is None else note.end.timings
    if timings is None or note.submitted is None:
        return
    began = note.submitted
    for name, seconds in (("queue", timings.queue_s), ("prefill", timings.prefill_s), ("decode", timings.decode_s)):
        if seconds > 0:
            yield name, began, began + seconds
        began += seconds


def failed(note: RequestNote, status: int) -> bool:
    """Whether the server is to blame: a status of its own, or a stream that broke after its status."""
    broke = isinstance(note.end, Failed) and note.end.code != "cancelled"
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR or (status == HTTPStatus.OK and (broke or bool(note.error_code)))


def attributes(note: RequestNote, route: str, status: int) -> Iterator[tuple[str, AttributeValue]]:
    """Everything that is told of a request but its times."""
    yield "http.request.method", note.method if note.method in METHODS else "_OTHER"
    if route != OTHER_ROUTE:
        yield "http.route", route
    if status != GONE:
        yield "http.response.status_code", status
    if problem := note.error_code or _problem(note, status):
        yield "error.type", problem
    yield "tane.request_id", note.request_id
    if note.client_request_id is not None:
        yield "tane.client_request_id", note.client_request_id
    if note.key_id is not None:
        yield "tane.key_id", note.key_id
    if note.asked is not None and note.model is not None:
        yield from _asked(note.asked, note.model, route)
    if note.end is not None:
        yield from _ended(note, note.end)


def _problem(note: RequestNote, status: int) -> str | None:
    """Why a request ended without an answer that its caller heard."""
    if isinstance(note.end, Failed):
        return note.end.code
    return "cancelled" if status == GONE else None


def _asked(asked: GenerationRequest, model: str, route: str) -> Iterator[tuple[str, AttributeValue]]:
    parameters = asked.parameters
    yield "gen_ai.operation.name", "chat" if route == CHAT_ROUTE else "text_completion"
    yield "gen_ai.provider.name", "tane"
    yield "gen_ai.request.model", model
    yield "gen_ai.request.max_tokens", parameters.max_new_tokens
    yield "gen_ai.request.seed", parameters.seed
    yield "gen_ai.request.temperature", float(parameters.temperature)
    yield "gen_ai.request.top_k", float(parameters.top_k)
    yield "gen_ai.request.top_p", float(parameters.top_p)
    yield "gen_ai.request.frequency_penalty", float(parameters.penalties.frequency)
    yield "gen_ai.request.presence_penalty", float(parameters.penalties.presence)
    if asked.sample_count > 1:
        yield "gen_ai.request.choice.count", asked.sample_count
    if asked.streams:
        yield "gen_ai.request.stream", True


def _ended(note: RequestNote, end: Finished | Failed) -> Iterator[tuple[str, AttributeValue]]:
    yield "gen_ai.usage.input_tokens", end.usage.prompt_tokens
    yield "gen_ai.usage.output_tokens", end.usage.generated_tokens
    yield "gen_ai.usage.cache_read.input_tokens", end.usage.cached_tokens
    if end.timings is not None and end.timings.paused_s:
        yield "tane.paused_s", end.timings.paused_s
    if isinstance(end, Finished) and note.model is not None:
        yield "gen_ai.response.model", note.model
        yield "gen_ai.response.finish_reasons", [each.finish_reason for each in end.completions]
    if note.streamed and note.submitted is not None and end.timings is not None and end.usage.generated_tokens:
        before = note.submitted - note.began
        yield "gen_ai.response.time_to_first_chunk", before + end.timings.queue_s + end.timings.prefill_s
