"""Around every HTTP request: a name for it, its place in metrics and log, and an answer when the code below fails.

Plain ASGI, since wrappers that run the app in a task of their own hide disconnects. Knows no routes.
Always: every answer carries `x-request-id`; every request has one line in the log, with the exception where one was
not expected, and that is answered as a 500.
"""

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from service.errors import OUR_FAULT, BadJson, ServiceError, envelope
from service.logs import AnswerCut
from service.metrics import Metrics
from service.request_log import GONE, RequestNote, new_note
from service.sse import encode_json
from service.traced import Tracer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OTHER_ROUTE = "other"
CLOSE = (b"connection", b"close")
"""Has the client ask on a new connection, which finds another server where there is one."""


def request_id_of(scope: Scope) -> str:
    """The name that this request got here."""
    return str(scope["state"]["request_id"])


def new_request_id() -> str:
    return secrets.token_hex(16)


class Door:
    """The outermost layer of the app, but for the one that speaks to browsers."""

    def __init__(
        self,
        app: App,
        metrics: Metrics,
        routes: frozenset[str],
        tracer: Tracer | None = None,
        is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        """`routes` are the path templates that may become labels; a server that is leaving ends its connections."""
        self._app = app
        self._metrics = metrics
        self._routes = routes
        self._tracer = tracer
        self._is_leaving = is_leaving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = new_request_id()
        note = new_note(request_id, scope["method"], scope["headers"])
        scope.setdefault("state", {}).update(request_id=request_id, note=note)
        status: int | None = None

        async def send_named(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                if self._is_leaving() and CLOSE not in message["headers"]:
                    message["headers"].append(CLOSE)
            await send(message)

        try:
            if _has_two_lengths(scope):
                error = BadJson("a request has a length or is chunked, not both", code="ambiguous_length")
                await send_error(send_named, error, note, CLOSE)
            else:
                await self._app(scope, receive, send_named)
        except Exception as error:
            note.fault = error
            if status is not None:
                raise AnswerCut from error
            await send_error(send_named, ServiceError(OUR_FAULT), note)
        finally:
            self._tell(scope, note, status or GONE)

    def _tell(self, scope: Scope, note: RequestNote, status: int) -> None:
        route = self._route(scope)
        self._metrics.http(route, status)
        note.log(route, status)
        if self._tracer is not None:
            self._tracer.tell(note, route, status, scope["headers"])

    def _route(self, scope: Scope) -> str:
        path = getattr(scope.get("route"), "path", OTHER_ROUTE)
        return path if path in self._routes else OTHER_ROUTE


def _has_two_lengths(scope: Scope) -> bool:
    """Whether a proxy in front may see another end of this request than we do (RFC 9112, 6.1)."""
    names = {name for name, _ in scope["headers"]}
    return {b"content-length", b"transfer-encoding"} <= names


async def send_error(send: Send, error: ServiceError, note: RequestNote, *more_headers: tuple[bytes, bytes]) -> None:
    """Answer with the error in the common form."""
    note.error_code = error.code
    body = encode_json(envelope(error, note.request_id))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more_headers]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
