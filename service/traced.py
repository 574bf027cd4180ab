"""Whether requests are told to a collector of traces, and by whom.

Knows the notes on requests, and no OpenTelemetry: what does is loaded only where a collector is named. Always: what
cannot work is found out before the server takes requests.
"""

from collections.abc import Iterable
from typing import Protocol
from urllib.parse import urlsplit

from service.request_log import RequestNote
from service.settings import Settings

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
EXTRA = "opentelemetry is not installed; pip install 'tane[tracing]' brings it"


class TracingError(Exception):
    """A collector that cannot be told of anything."""


class Tracer(Protocol):
    """Tells of requests; neither call waits for a collector but the last."""

    def tell(self, note: RequestNote, route: str, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """A request has ended, or nobody waits for it any more (499)."""

    def close(self) -> None:
        """Send what is left."""


def tracer_for(settings: Settings) -> Tracer | None:
    """Whoever tells the collector of these settings; None where none is named. Raises TracingError."""
    endpoint = collector_of(settings)
    if endpoint is None:
        return None
    if not _is_address(endpoint):
        raise TracingError("--otlp-endpoint must be an address like http://127.0.0.1:4318")
    try:
        from service.tracing import SpanTracer
    except ImportError:
        raise TracingError(f"--otlp-endpoint cannot be used: {EXTRA}") from None
    return SpanTracer(endpoint)


def collector_of(settings: Settings) -> str | None:
    """Where traces go: the option, else what other programs are told too.

    Raises TracingError where that speaks a protocol that is not ours.
    """
    told = settings.opentelemetry
    if settings.otlp_endpoint is not None or not told.get(ENDPOINT):
        return settings.otlp_endpoint
    for name in PROTOCOLS:
        if told.get(name, "") not in ("", PROTOCOL):
            raise TracingError(f"{name} must be {PROTOCOL}")
        if told.get(name):
            break
    return told[ENDPOINT]


def _is_address(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
