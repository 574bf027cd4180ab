"""Requests that belong together get the same `x-session-id`, and nobody can read key or prompt out of it."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, cast

import httpx
import pytest

from service.affinity import HEADER, PREFIX_LENGTH, Caller
from service.client import AsyncClient, AsyncTaneClient, Client, TaneClient
from service.generate_fields import GenerateFields
from tests.service.test_client import ANSWER, SESSION, event

KEY = "canary-key"
LONG = "b" * PREFIX_LENGTH


def header_of(fields: Mapping[str, Any], api_key: str | None = KEY) -> str | None:
    return Caller(api_key).affinity(fields).get(HEADER)


TOGETHER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the same prompt": ({"prompt": "a"}, {"prompt": "a", "max_new_tokens": 3}),
    "prompts that differ late": ({"prompt": LONG + "c"}, {"prompt": LONG + "d"}),
    "turns of a session": ({"prompt": "a", "session_id": "s"}, {"prompt": "b", "session_id": "s"}),
    "a longer conversation": (
        {"messages": [{"role": "system", "content": LONG}]},
        {"messages": [{"role": "system", "content": LONG}, {"role": "user", "content": "b"}]},
    ),
    "ids that differ late": ({"prompt_tokens": [*range(400), 1]}, {"prompt_tokens": [*range(400), 2]}),
    "a resumed answer": ({"prompt": "a"}, {"prompt": "a", "resume": {"token_ids": [1]}}),
}
APART: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "prompts": ({"prompt": "a"}, {"prompt": "b"}),
    "prompts that differ at the last character that counts": ({"prompt": LONG}, {"prompt": LONG[:-1] + "c"}),
    "sessions": ({"prompt": "a", "session_id": "s"}, {"prompt": "a", "session_id": "t"}),
    "a session and a prompt": ({"prompt": "s"}, {"prompt": "a", "session_id": "s"}),
    "messages": (
        {"messages": [{"role": "user", "content": "a"}]},
        {"messages": [{"role": "user", "content": "b"}]},
    ),
    "ids": ({"prompt_tokens": [1, 23]}, {"prompt_tokens": [12, 3]}),
}


@pytest.mark.parametrize("requests", TOGETHER)
def test_what_belongs_together_has_one_header(requests: str) -> None:
    one, other = TOGETHER[requests]

    assert header_of(one) == header_of(other) is not None


@pytest.mark.parametrize("requests", APART)
def test_what_does_not_belong_together_has_two(requests: str) -> None:
    one, other = APART[requests]

    assert header_of(one) != header_of(other)


@pytest.mark.parametrize("fields", [{"prompt": "a"}, {"prompt": "a", "session_id": "s"}])
def test_another_key_has_another_header(fields: dict[str, Any]) -> None:
    headers = {header_of(fields, api_key) for api_key in (None, "one", "two")}

    assert 3 == len(headers)


def test_neither_key_nor_prompt_stands_in_a_header() -> None:
    header = header_of({"prompt": "a secret prompt"})

    assert re.fullmatch("[0-9a-f]{32}", header or "")


@pytest.mark.parametrize(
    "fields", [{}, {"prompt": ""}, {"prompt": 5}, {"messages": [{"role": "user"}, 3]}, {"prompt": None}]
)
def test_a_request_with_nothing_to_go_by_has_no_header(fields: dict[str, Any]) -> None:
    assert {} == Caller(KEY).affinity(fields)


def test_a_prompt_that_is_no_unicode_text_has_a_header_too() -> None:
    assert header_of({"prompt": "\ud800"}) is not None


class Recording:
    """Answers every call as a server would, and remembers the header of each."""

    def __init__(self) -> None:
        self.headers: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.headers.append(request.headers.get(HEADER))
        if "/sessions" in request.url.path:
            return httpx.Response(200, json=SESSION)
        if b'"stream":true' in request.content:
            return httpx.Response(200, content=event(ANSWER, 2) + event("[DONE]"))
        return httpx.Response(200, json=ANSWER)

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self)


FIELDS = cast(GenerateFields, {"prompt": "a", "session_id": "s"})


def blocking_calls(recording: Recording) -> None:
    with TaneClient("http://a.test", api_key=KEY, transport=recording.transport) as typed:
        typed.generate(**FIELDS)
        list(typed.stream(**FIELDS))
        typed.fork("s", "t")
        typed.delete_session("s")
    with Client("http://a.test", KEY, transport=recording.transport) as client:
        client.generate(**FIELDS)


def asynchronous_calls(recording: Recording) -> None:
    async def calls() -> None:
        async with AsyncTaneClient("http://a.test", api_key=KEY, transport=recording.transport) as typed:
            await typed.generate(**FIELDS)
            assert [_ async for _ in typed.stream(**FIELDS)]
            await typed.fork("s", "t")
            await typed.delete_session("s")
        async with AsyncClient("http://a.test", KEY, transport=recording.transport) as client:
            await client.generate(**FIELDS)

    asyncio.run(calls())


@pytest.mark.parametrize("calls", [blocking_calls, asynchronous_calls])
def test_every_call_about_a_session_carries_its_header(calls: Any) -> None:
    recording = Recording()

    calls(recording)

    assert [header_of(FIELDS)] * 5 == recording.headers


def test_an_attempt_after_a_fault_carries_the_same_header() -> None:
    """And an error that a proxy made, since its server has gone, is no answer of Tane."""
    recorded: list[str | None] = []
    answers = iter(
        [
            httpx.Response(500, text="Internal Server Error"),
            httpx.Response(200, content=event(ANSWER, 2) + event("[DONE]")),
        ]
    )

    def server(request: httpx.Request) -> httpx.Response:
        recorded.append(request.headers.get(HEADER))
        return next(answers)

    with Client("http://a.test", KEY, transport=httpx.MockTransport(server)) as client:
        client.generate(**FIELDS)

    assert [header_of(FIELDS)] * 2 == recorded
