"""A scripted server of /v1/completions, and of /generate with sessions, as an ASGI application."""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Send = Callable[[Any], Any]


def chunk(text: str = "", **fields: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "text": text}], **fields}).encode() + b"\n\n"


def usage(prompt_tokens: int, completion_tokens: int) -> bytes:
    counts = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return b"data: " + json.dumps({"choices": [], "usage": counts}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def turn(prompt_tokens: int, cached_tokens: int) -> tuple[bytes, ...]:
    """A stream of /generate of two tokens."""
    pieces = [{"index": 0, "text": text, "token_ids": [5]} for text in "ab"]
    counts = {"prompt_tokens": prompt_tokens, "generated_tokens": 2, "cached_tokens": cached_tokens}
    whole = {"text": "ab", "token_ids": [5, 5], "usage": counts}
    return (*(b"data: " + json.dumps(each).encode() + b"\n\n" for each in (*pieces, whole)), DONE)


PLAIN = (chunk("a"), chunk("b"), chunk("c"), usage(7, 3), DONE)


@dataclass
class CompletionsFake:
    """Answers with the next of `scripts`, or with `stream` when they are used up, and remembers every body."""

    paths: dict[str, Any] = field(default_factory=dict)
    """What else it answers: JSON by path. Any other path is 404."""
    stream: tuple[bytes, ...] = PLAIN
    scripts: deque[tuple[int, tuple[bytes, ...]]] = field(default_factory=deque)
    refuses_listing: bool = False
    """Whether /v1/models wants another key."""
    delay_s: float = 0.0
    waits_for: int = 0
    """How many completions must run at once before the first is answered."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Of every completion that is answered."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of every request."""
    affinities: list[str | None] = field(default_factory=list)
    """What stood in the header `x-session-id` of each completion."""
    keys: set[str | None] = field(default_factory=set)
    """What stood in the header `authorization`."""
    ports: list[int] = field(default_factory=list)
    """The client's port of each completion."""
    running: int = 0
    most_running: int = 0

    async def __call__(self, scope: dict[str, Any], receive: Callable[[], Any], send: Send) -> None:
        path = scope["path"]
        self.requests.append((scope["method"], path))
        self.keys.add(next((value.decode() for name, value in scope["headers"] if name == b"authorization"), None))
        if self.refuses_listing and path == "/v1/models":
            await self._send(send, 401, (b"{}",))
        elif path in self.paths:
            await self._send(send, 200, (json.dumps(self.paths[path]).encode(),))
        elif path in ("/v1/completions", "/generate"):
            self.ports.append(scope["client"][1])
            sent = dict(scope["headers"]).get(b"x-session-id")
            self.affinities.append(sent and sent.decode())
            self.bodies.append(json.loads(await self._body(receive)))
            await self._complete(send)
        else:
            await self._send(send, 404, (b"",))

    async def _complete(self, send: Send) -> None:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(self.delay_s)
        while self.most_running < self.waits_for:
            await asyncio.sleep(0.005)
        await self._send(send, *(self.scripts.popleft() if self.scripts else (200, self.stream)), self.headers)
        self.running -= 1

    @staticmethod
    async def _body(receive: Callable[[], Any]) -> bytes:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        return body

    @staticmethod
    async def _send(
        send: Send, status: int, pieces: tuple[bytes, ...], headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class CurrentFake:
    """An ASGI application that stands for another, so that each test can have a fresh one behind one socket."""

    def __init__(self) -> None:
        self.fake = CompletionsFake()

    async def __call__(self, scope: dict[str, Any], receive: Callable[[], Any], send: Send) -> None:
        await self.fake(scope, receive, send)
