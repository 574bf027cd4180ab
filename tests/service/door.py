"""Calls into the app without a socket: whole answers, and streams whose reader may go away."""

import asyncio
import json
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from service.app import create_app
from service.context import Service
from tests.fake_runtime import FakeRuntime, make_service

JSON = {"content-type": "application/json"}


@dataclass(slots=True)
class Answer:
    """What the app sent."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error, after a check that the envelope is whole."""
        error: dict[str, Any] = self.json["error"]
        assert {"type", "code", "message", "param", "allowed", "request_id"} == set(error)
        assert self.headers["x-request-id"] == error["request_id"]
        return error


class Client:
    """One app, called as an HTTP server would call it."""

    def __init__(self, runtime: FakeRuntime | None = None, *, service: Service | None = None) -> None:
        self.service = service or make_service(runtime)
        self.app = create_app(self.service)

    def request(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = {}) -> Answer:
        return asyncio.run(self.call(method, path, body, headers))

    def post(self, path: str, body: Any, headers: Mapping[str, str] = JSON) -> Answer:
        """`body` is sent as it stands when it is bytes, else as JSON."""
        return self.request("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), headers)

    def get(self, path: str) -> Answer:
        return self.request("GET", path)

    def delete(self, path: str) -> Answer:
        return self.request("DELETE", path)

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] = {},
        *,
        complete_body: bool = True,
        leaves_when: Callable[[Answer], bool] = lambda answer: False,
        on_send: Callable[[Answer], None] = lambda answer: None,
    ) -> Answer:
        """The client goes away as soon as `leaves_when` holds, which is asked after the body and each message."""
        answer = Answer()
        gone = asyncio.Event()
        messages = [{"type": "http.request", "body": body, "more_body": not complete_body}]

        async def receive() -> MutableMapping[str, Any]:
            if messages:
                return messages.pop()
            if leaves_when(answer):
                gone.set()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            _note(answer, message)
            on_send(answer)
            if leaves_when(answer):
                gone.set()
            await asyncio.sleep(0)

        await self.app(_scope(method, path, headers), receive, send)
        return answer


def _note(answer: Answer, message: MutableMapping[str, Any]) -> None:
    assert not answer.complete
    if message["type"] == "http.response.start":
        assert answer.status is None
        answer.status = message["status"]
        answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
    else:
        answer.body += message.get("body", b"")
        answer.complete = not message.get("more_body", False)


def _scope(method: str, target: str, headers: Mapping[str, str]) -> dict[str, Any]:
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
