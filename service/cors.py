"""Which pages of other origins may call this server from a browser (Fetch standard, section 3.3).

Outermost, so that every answer, errors of any kind too, can be read by a page that may call. Plain ASGI.
Always: a preflight request is answered here, with a request id, and in the common form where it is refused.
"""

from collections.abc import Sequence
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from service.errors import OriginRefused, envelope
from service.middleware import App, new_request_id
from service.sse import encode_json

METHODS = ("GET", "POST", "DELETE")
EXPOSED = ("x-request-id", "retry-after", "x-tane-fingerprint")


class CrossOrigin(CORSMiddleware):
    """Adds the headers that a browser asks for. No cookies are used, so credentials are never allowed."""

    def __init__(self, app: App, origins: Sequence[str]) -> None:
        super().__init__(
            app, allow_origins=origins, allow_methods=METHODS, allow_headers=("*",), expose_headers=EXPOSED
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        request_id = new_request_id()
        if response.status_code != HTTPStatus.OK:
            error = OriginRefused("this origin, method or header is not allowed", allowed={"methods": METHODS})
            body = encode_json(envelope(error, request_id))
            response = Response(body, error.status, {"vary": response.headers["vary"]}, "application/json")
        response.headers["x-request-id"] = request_id
        return response
