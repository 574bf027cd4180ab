"""A transport that lets calls pass and remembers which replica answered each. Knows headers; knows nothing of Ray."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx


@dataclass(slots=True)
class Attempt:
    """One request as it left the client, and what became of it."""

    affinity: str | None
    replica: str | None = None
    """Who answered; None where nobody did, or a proxy."""
    status: int | None = None
    broke: bool = False
    """Whether the answer ended before its end."""

    def __str__(self) -> str:
        return "broke off" if self.broke else f"status {self.status}" if self.status else "no answer"

    @property
    def failed(self) -> bool:
        return self.broke or self.status is None or self.status >= httpx.codes.BAD_REQUEST


@dataclass(slots=True)
class Witness(httpx.AsyncBaseTransport):
    """Makes the calls by another transport."""

    transport: httpx.AsyncBaseTransport = field(default_factory=httpx.AsyncHTTPTransport)
    attempts: list[Attempt] = field(default_factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        attempt = Attempt(request.headers.get("x-session-id"))
        self.attempts.append(attempt)
        answer = await self.transport.handle_async_request(request)
        attempt.replica, attempt.status = answer.headers.get("x-tane-replica"), answer.status_code
        return httpx.Response(
            answer.status_code, headers=answer.headers, stream=_Watched(answer, attempt), extensions=answer.extensions
        )

    async def aclose(self) -> None:
        await self.transport.aclose()

    def answered_by(self, affinity: str) -> str | None:
        """The replica that answered the last attempt with this header."""
        return [attempt.replica for attempt in self.attempts if attempt.affinity == affinity][-1]

    @property
    def failed(self) -> list[Attempt]:
        """Attempts that got no whole answer."""
        return [attempt for attempt in self.attempts if attempt.failed]


class _Watched(httpx.AsyncByteStream):
    def __init__(self, answer: httpx.Response, attempt: Attempt) -> None:
        self._answer = answer
        self._attempt = attempt

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            assert isinstance(self._answer.stream, httpx.AsyncByteStream), "an asynchronous transport made it"
            async for piece in self._answer.stream:
                yield piece
        except httpx.TransportError:
            self._attempt.broke = True
            raise

    async def aclose(self) -> None:
        await self._answer.aclose()
