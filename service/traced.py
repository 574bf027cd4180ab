"""Whether requests are told to a collector of traces, and by whom.

Knows the notes on requests, and no OpenTelemetry: what does is loaded only where a collector is named. Always: what
cannot work is found out before the server takes requests.
"""

from collections.abc import Iterable
from typing import Protocol
from urllib.parse import urlsplit

from service.request_log import RequestNote

EXTRA = "opentelemetry is not installed; pip install 'tane[tracing]' brings it"


class TracingError(Exception):
    """A collector that cannot be told of anything."""


class Tracer(Protocol):
    """Tells of requests; neither call waits for a collector but the last."""

    def tell(self, note: RequestNote, route: str, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """A request has ended, or nobody waits for it any more (499)."""

    def close(self) -> None:
        """Send what is left."""


def tracer_for(endpoint: str | None) -> Tracer | None:
    """Whoever tells the collector at this address; None where none is named. Raises TracingError."""
    if endpoint is None:
        return None
    if not _is_address(endpoint):
        raise TracingError("--otlp-endpoint must be an address like http://127.0.0.1:4318")
    try:
        from service.tracing import SpanTracer
    except ImportError:
        raise TracingError(f"--otlp-endpoint cannot be used: {EXTRA}") from None
    return SpanTracer(endpoint)


def _is_address(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
