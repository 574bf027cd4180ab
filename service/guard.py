"""Who may come in: a key is asked for on every path that is not open, known or not, and a name that is accepted.

Plain ASGI, inside the layer that names and logs requests. Knows paths and headers; knows no bodies and no engine.
Always: what is not listed here as open is closed, with one answer whatever was wrong with a key; a request that passes
carries the id of its key, never the key.
"""

from collections.abc import MutableMapping
from typing import Any

from service.errors import NotFound, ServiceError, Unauthorized
from service.hosts import Hosts
from service.keys import KnownKeys
from service.middleware import App, Receive, Scope, Send, send_error
from service.page import FILES
from service.request_log import note_of

HEALTH_PATHS = frozenset({"/livez", "/readyz"})
"""What is answered whatever name the server is called by: who probes it knows its address alone."""
OPEN_PATHS = frozenset({*HEALTH_PATHS, *FILES})
"""What anyone may ask: whether the server lives and takes requests, and the files of the page."""
WATCHED_PATHS = frozenset({*HEALTH_PATHS, "/metrics"})
"""What the port for metrics serves: those who watch a server are answered however full the main port is."""
SCHEME = b"bearer "
CHALLENGE = (b"www-authenticate", b'Bearer realm="tane"')
"""RFC 6750, section 3."""


class Guard:
    """Lets a request through, or answers it with 401 or 421; on the port for metrics little else is served."""

    def __init__(
        self,
        app: App,
        keys: KnownKeys | None,
        metrics_port: int | None,
        hosts: Hosts | None = None,
        metrics_hosts: Hosts | None = None,
    ) -> None:
        """Without keys everyone may do everything on the main port; without hosts by any name, on each port."""
        self._app = app
        self._keys = keys
        self._metrics_port = metrics_port
        self._hosts, self._metrics_hosts = hosts, metrics_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            note_of(scope).key_id = self._key_id(scope)
        except Unauthorized as error:
            await send_error(send, error, note_of(scope), CHALLENGE)
        except ServiceError as error:
            await send_error(send, error, note_of(scope))
        else:
            await self._app(scope, receive, send)

    def _key_id(self, scope: Scope) -> str | None:
        """The id of the key that came with the request; None where none is needed.

        Raises HostRefused, Unauthorized and NotFound.
        """
        for_metrics = self._came_for_metrics(scope)
        hosts = self._metrics_hosts if for_metrics else self._hosts
        if hosts is not None and scope["path"] not in HEALTH_PATHS:
            hosts.check(value for name, value in scope["headers"] if name == b"host")
        if for_metrics:
            if scope["path"] not in WATCHED_PATHS:
                raise NotFound(f"this port serves {', '.join(sorted(WATCHED_PATHS))} alone")
            return None
        if self._keys is None or scope["path"] in OPEN_PATHS:
            return None
        key = _key_in(scope)
        key_id = None if key is None else self._keys.id_of(key)
        if key_id is None:
            raise Unauthorized("a key that this server knows is needed, in one header: Authorization: Bearer KEY")
        return key_id

    def _came_for_metrics(self, scope: Scope) -> bool:
        """Judged by the port that took the connection, which no header can change."""
        server = scope.get("server")
        return self._metrics_port is not None and server is not None and server[1] == self._metrics_port


def key_id_of(scope: MutableMapping[str, Any]) -> str | None:
    """The id of the key with which this request was let in."""
    return note_of(scope).key_id


def _key_in(scope: Scope) -> bytes | None:
    """The key of the only `Authorization: Bearer`."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(given) != 1 or given[0][: len(SCHEME)].lower() != SCHEME:
        return None
    key: bytes = given[0][len(SCHEME) :].strip(b" ")
    return key
