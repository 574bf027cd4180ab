"""One POST against a scripted socket: what arrives when, and how each way to fail is told."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from service.cli.http_answer import BrokenAnswer
from service.cli.http_post import Answered, Target, post

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def posted(serve: Serve, take: Callable[[bytes], None], silence_s: float = 5.0) -> Answered:
    """The outcome of one POST to a socket where `serve` answers; the server must see the connection end."""

    async def run() -> Answered:
        closed = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await serve(reader, writer)
            try:
                await reader.read()
            except ConnectionError:
                pass
            finally:
                writer.close()
                closed.set()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            try:
                return await post(Target(host, port), b"POST / HTTP/1.1\r\n\r\n", take, silence_s=silence_s)
            finally:
                await asyncio.wait_for(closed.wait(), 5)

    return asyncio.run(run())


def saying(*pieces: bytes, pause_s: float = 0.0) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(pause_s)

    return serve


def test_the_body_of_a_success_is_handed_on_as_it_arrives() -> None:
    came: list[tuple[bytes, float]] = []

    answered = posted(saying(HEAD + b"a", b"b", pause_s=0.05), lambda piece: came.append((piece, time.monotonic())))

    (first, first_at), (second, second_at) = came
    assert (Answered(200, b""), b"a", b"b") == (answered, first, second)
    assert second_at - first_at > 0.02


def test_the_body_of_a_refusal_is_returned() -> None:
    took: list[bytes] = []

    answered = posted(saying(HEAD.replace(b"200 OK", b"503 Busy") + b"no"), took.append)

    assert (Answered(503, b"no"), []) == (answered, took)


def test_silence_is_a_timeout_however_much_came_before() -> None:
    began = time.monotonic()

    with pytest.raises(TimeoutError):
        posted(saying(HEAD, b"a", pause_s=0.03), lambda piece: None, silence_s=0.06)

    assert time.monotonic() - began >= 0.09


def test_a_connection_that_ends_early_is_a_broken_answer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"a")
        writer.close()

    with pytest.raises(BrokenAnswer):
        posted(serve, lambda piece: None)


def test_what_the_taker_raises_ends_the_exchange() -> None:
    def refuse(piece: bytes) -> None:
        raise ValueError("not that")

    with pytest.raises(ValueError, match="not that"):
        posted(saying(HEAD + b"ab"), refuse)


def test_nobody_there_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="Connect call failed"):
        asyncio.run(post(Target("127.0.0.1", 1), b"", lambda piece: None, silence_s=5.0))
