"""A small client library, blocking or asynchronous: calls to one server with typed answers (`TaneClient`), and
answers from any of several servers, as they are written, that survive the loss of one (`Client`).

Knows HTTP; knows nothing of models and of the server's inside. The values are those of `service.answers`. `model` is
the name of a served model, and None the main one.
Always: a call returns what a server answered or raises TaneError; a stream ends in its whole answer or raises.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

import httpx

from service import calls
from service.affinity import Caller
from service.answers import Completion, Delta, Response, TaneError
from service.calls import Call, StreamReader, error_of, transport_errors
from service.failover import ATTEMPTS, Pursuit, Servers
from service.generate_fields import GenerateFields
from service.replay import record_of
from service.replay_call import Replay
from service.replay_call import replay as replay_call
from service.request import SessionInfo

__all__ = [
    "AsyncClient",
    "AsyncTaneClient",
    "Client",
    "Completion",
    "Delta",
    "GenerateFields",
    "Replay",
    "Response",
    "TaneClient",
    "TaneError",
    "record_of",
]

Answer = TypeVar("Answer")
DEFAULT_URL = "http://127.0.0.1:8000"
CONNECT_S = 5.0


def _limits(silence_s: float | None) -> httpx.Timeout:
    return httpx.Timeout(silence_s, connect=CONNECT_S)


class _Blocking:
    """What is closed after use."""

    _http: httpx.Client

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Asynchronous:
    """The same for asyncio."""

    _http: httpx.AsyncClient

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class TaneClient(_Blocking):
    """Blocking calls. Use it as a context manager, or close() it. `timeout` is seconds of silence.

    `api_key` is sent with every call. Raises ValueError for one that no header can hold.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        timeout: float | None = 600.0,
        *,
        api_key: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._caller = Caller(api_key)
        self._http = httpx.Client(
            base_url=base_url, headers=self._caller.headers, timeout=_limits(timeout), transport=transport
        )

    def generate(self, **fields: Unpack[GenerateFields]) -> Response:
        return self._answer(calls.generate(fields))

    def stream(self, **fields: Unpack[GenerateFields]) -> Generator[Delta | Response, None, None]:
        """Deltas as they are made, then the whole response. Closing the generator cancels the request."""
        reader = StreamReader()
        body, headers = {**fields, "stream": True}, self._caller.affinity(fields)
        with transport_errors(), self._http.stream("POST", "/generate", json=body, headers=headers) as answer:
            if answer.is_error:
                answer.read()
                raise error_of(answer)
            for piece in answer.iter_bytes():
                yield from reader.values(piece)
            reader.check_complete()

    def replay(self, record: Mapping[str, Any], *, model: str | None = None) -> Replay:
        """Run a record again and compare; `record_of(fields, response.raw)` makes one. None: as whoever answered."""
        return self._answer(replay_call(record, model))

    def tokenize(self, text: str, *, model: str | None = None) -> list[int]:
        return self._answer(calls.tokenize(text, model))

    def detokenize(self, token_ids: Sequence[int], *, model: str | None = None) -> str:
        return self._answer(calls.detokenize(token_ids, model))

    def sessions(self, *, model: str | None = None) -> list[SessionInfo]:
        return self._answer(calls.sessions(model))

    def fork(self, session_id: str, new_session_id: str, *, model: str | None = None) -> SessionInfo:
        """A second session that continues from where the first stands."""
        return self._answer(calls.fork(session_id, new_session_id, model))

    def delete_session(self, session_id: str, *, model: str | None = None) -> None:
        self._answer(calls.delete_session(session_id, model))

    def info(self) -> dict[str, Any]:
        return self._answer(calls.info())

    def _answer(self, call: Call[Answer]) -> Answer:
        headers = self._caller.affinity(call.about)
        with transport_errors():
            return call.result(self._http.request(call.method, call.path, json=call.body, headers=headers))


class AsyncTaneClient(_Asynchronous):
    """The same calls for asyncio. Use it as an async context manager, or await aclose()."""

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        timeout: float | None = 600.0,
        *,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._caller = Caller(api_key)
        self._http = httpx.AsyncClient(
            base_url=base_url, headers=self._caller.headers, timeout=_limits(timeout), transport=transport
        )

    async def generate(self, **fields: Unpack[GenerateFields]) -> Response:
        return await self._answer(calls.generate(fields))

    async def stream(self, **fields: Unpack[GenerateFields]) -> AsyncGenerator[Delta | Response, None]:
        """Deltas as they are made, then the whole response. Closing the generator cancels the request."""
        reader = StreamReader()
        body, headers = {**fields, "stream": True}, self._caller.affinity(fields)
        with transport_errors():
            async with self._http.stream("POST", "/generate", json=body, headers=headers) as answer:
                if answer.is_error:
                    await answer.aread()
                    raise error_of(answer)
                async for piece in answer.aiter_bytes():
                    for item in reader.values(piece):
                        yield item
                reader.check_complete()

    async def replay(self, record: Mapping[str, Any], *, model: str | None = None) -> Replay:
        """Run a record again and compare; `record_of(fields, response.raw)` makes one. None: as whoever answered."""
        return await self._answer(replay_call(record, model))

    async def tokenize(self, text: str, *, model: str | None = None) -> list[int]:
        return await self._answer(calls.tokenize(text, model))

    async def detokenize(self, token_ids: Sequence[int], *, model: str | None = None) -> str:
        return await self._answer(calls.detokenize(token_ids, model))

    async def sessions(self, *, model: str | None = None) -> list[SessionInfo]:
        return await self._answer(calls.sessions(model))

    async def fork(self, session_id: str, new_session_id: str, *, model: str | None = None) -> SessionInfo:
        """A second session that continues from where the first stands."""
        return await self._answer(calls.fork(session_id, new_session_id, model))

    async def delete_session(self, session_id: str, *, model: str | None = None) -> None:
        await self._answer(calls.delete_session(session_id, model))

    async def info(self) -> dict[str, Any]:
        return await self._answer(calls.info())

    async def _answer(self, call: Call[Answer]) -> Answer:
        headers = self._caller.affinity(call.about)
        with transport_errors():
            return call.result(await self._http.request(call.method, call.path, json=call.body, headers=headers))


class Client(_Blocking):
    """Blocking calls to servers of the same models, any of which may go away.

    An answer that breaks off goes on at the next server, after the tokens that have come; the whole is the one that a
    server alone would have given. A refusal that passes is waited out as `Retry-After` says, up to `attempts` in a row.
    Use it as a context manager, or close() it. `timeout` is seconds of silence.
    """

    def __init__(
        self,
        base_urls: str | Sequence[str],
        api_key: str | None = None,
        *,
        timeout: float | None = 600.0,
        attempts: int = ATTEMPTS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._servers = Servers(base_urls, api_key, attempts)
        self._http = httpx.Client(headers=self._servers.headers, timeout=_limits(timeout), transport=transport)

    def generate(self, **fields: Unpack[GenerateFields]) -> dict[str, Any]:
        """The whole answer of `POST /generate`. Raises TaneError."""
        *_, answer = self._follow(self._servers.pursue(fields, shows=False))
        return answer

    def stream(self, **fields: Unpack[GenerateFields]) -> Generator[dict[str, Any], None, None]:
        """The events of the server's stream: deltas, then the whole answer. Raises TaneError."""
        return self._follow(self._servers.pursue(fields))

    def _follow(self, pursuit: Pursuit) -> Generator[dict[str, Any], None, None]:
        while not pursuit.is_over:
            try:
                yield from self._attempt(pursuit)
            except TaneError as error:
                time.sleep(pursuit.wait_after(error))
        self._servers.note(pursuit)

    def _attempt(self, pursuit: Pursuit) -> Generator[dict[str, Any], None, None]:
        url, headers = self._servers.url_of(pursuit), pursuit.headers
        with transport_errors(), self._http.stream("POST", url, json=pursuit.body(), headers=headers) as answer:
            if answer.is_error:
                answer.read()
                raise error_of(answer)
            pursuit.begins(answer.headers)
            for piece in answer.iter_bytes():
                yield from pursuit.events(piece)
            pursuit.check_complete()


class AsyncClient(_Asynchronous):
    """The same for asyncio. Use it as an async context manager, or await aclose()."""

    def __init__(
        self,
        base_urls: str | Sequence[str],
        api_key: str | None = None,
        *,
        timeout: float | None = 600.0,
        attempts: int = ATTEMPTS,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._servers = Servers(base_urls, api_key, attempts)
        self._http = httpx.AsyncClient(headers=self._servers.headers, timeout=_limits(timeout), transport=transport)

    async def generate(self, **fields: Unpack[GenerateFields]) -> dict[str, Any]:
        """The whole answer of `POST /generate`. Raises TaneError."""
        return [event async for event in self._follow(self._servers.pursue(fields, shows=False))][-1]

    def stream(self, **fields: Unpack[GenerateFields]) -> AsyncGenerator[dict[str, Any], None]:
        """The events of the server's stream: deltas, then the whole answer. Raises TaneError."""
        return self._follow(self._servers.pursue(fields))

    async def _follow(self, pursuit: Pursuit) -> AsyncGenerator[dict[str, Any], None]:
        while not pursuit.is_over:
            try:
                async for event in self._attempt(pursuit):
                    yield event
            except TaneError as error:
                await asyncio.sleep(pursuit.wait_after(error))
        self._servers.note(pursuit)

    async def _attempt(self, pursuit: Pursuit) -> AsyncGenerator[dict[str, Any], None]:
        url, headers = self._servers.url_of(pursuit), pursuit.headers
        with transport_errors():
            async with self._http.stream("POST", url, json=pursuit.body(), headers=headers) as answer:
                if answer.is_error:
                    await answer.aread()
                    raise error_of(answer)
                pursuit.begins(answer.headers)
                async for piece in answer.aiter_bytes():
                    for event in pursuit.events(piece):
                        yield event
                pursuit.check_complete()
