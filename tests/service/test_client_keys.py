"""Both clients send their key with every call, and show it nowhere."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from service.client import AsyncTaneClient, TaneClient
from tests.service.test_client import ANSWER, STREAM, FakeServer
from tests.serving import serving


@dataclass
class Answering:
    """Lets the fake server answer what was asked for: a stream or a whole answer."""

    fake: FakeServer
    asked: int = 0

    async def __call__(self, scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        streams = self.asked % 2
        self.asked += 1
        self.fake.answers(*(STREAM if streams else [ANSWER]))
        await self.fake(scope, receive, send)


async def all_calls_of(url: str, api_key: str | None) -> None:
    """A call and a stream of each client."""
    with TaneClient(url, api_key=api_key) as client:
        client.generate(prompt="abc")
        list(client.stream(prompt="abc"))
    async with AsyncTaneClient(url, api_key=api_key) as client_too:
        await client_too.generate(prompt="abc")
        async for _ in client_too.stream(prompt="abc"):
            pass


@pytest.mark.parametrize(("api_key", "expected"), [("secret", b"Bearer secret"), (None, None)])
def test_every_call_carries_the_key(api_key: str | None, expected: bytes | None) -> None:
    fake = FakeServer()
    with serving(Answering(fake)) as url:
        asyncio.run(all_calls_of(url, api_key))

    assert [expected] * 4 == fake.authorizations


@pytest.mark.parametrize("client", [TaneClient, AsyncTaneClient])
@pytest.mark.parametrize("api_key", ["", "canary 7", "canary\n", "canaryé"])
def test_what_can_be_no_key_is_refused_without_being_shown(client: type[Any], api_key: str) -> None:
    with pytest.raises(ValueError, match="api_key must be printable ASCII") as refused:
        client("http://127.0.0.1:1", api_key=api_key)

    assert "canary" not in str(refused.value)
