"""Two real servers, connections that break anywhere, and one answer all the same."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.client import AsyncClient, Client, TaneError
from service.settings import Settings
from tests.live import live_server
from tests.slow_steps import slow_steps
from tests.tiny_model import TinyShape, write_tiny_gguf

PROMPT = "The seed lies in the ground and waits for the rain."
COMPARED = ("text", "token_ids", "finish_reason", "logprobs", "seed")
QUESTIONS: dict[str, dict[str, Any]] = {
    "drawn": {"temperature": 0.8, "max_new_tokens": 12},
    "scored": {"temperature": 0.8, "max_new_tokens": 12, "logprobs": {"top": 2, "of": "sampled"}, "top_k": 9},
    "with stops": {"temperature": 1.0, "max_new_tokens": 30, "stop": ["eb", "th", "a"], "min_new_tokens": 6},
    "several": {"temperature": 0.8, "max_new_tokens": 5, "num_return": 2},
    "in a session": {"temperature": 0.8, "max_new_tokens": 12, "session_id": "s"},
    "constrained": {"constraint": {"regex": "[a-f]{2,9}-[0-9]{1,9}"}, "temperature": 1.5},
}


class Breaking(httpx.HTTPTransport):
    """Each answer breaks off after a few events, until none is left to break."""

    def __init__(self, events: int, breaks: int) -> None:
        super().__init__()
        self._events = events
        self.breaks = breaks

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        if not self.breaks:
            return answer
        self.breaks -= 1
        return httpx.Response(answer.status_code, headers=answer.headers, stream=Cut(answer, self._events))


class Cut(httpx.SyncByteStream):
    """The first events of an answer, and then nothing any more."""

    def __init__(self, answer: httpx.Response, events: int) -> None:
        self._answer = answer
        self._events = events

    def __iter__(self) -> Iterator[bytes]:
        left = self._events
        for piece in self._answer.iter_raw():
            events = piece.split(b"\n\n")
            if len(events) > left:
                yield b"\n\n".join([*events[:left], b""])
                raise httpx.ReadError("the connection broke")
            left -= len(events) - 1
            yield piece

    def close(self) -> None:
        self._answer.close()


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    shape = TinyShape(context=512)
    model = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=shape, format="Q8_0")
    settings = {"model": str(model), "kv_cache_bytes": 16 << 20, "threads": 1}
    with live_server(Settings.load({}, settings)) as one, live_server(Settings.load({}, settings)) as other:
        yield [one.url, other.url]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("events", [1, 2, 5])
def test_an_answer_that_breaks_off_is_the_answer_of_a_calm_run(question: str, events: int, urls: list[str]) -> None:
    fields = {"prompt": PROMPT, "seed": 3, **QUESTIONS[question]}
    with Client(urls) as calm:
        expected = compared(calm.generate(**fields))
    with Client(urls, transport=(breaking := Breaking(events, breaks=3))) as client:
        answer = client.generate(**fields)

    assert expected == compared(answer)
    assert breaking.breaks < 3


def compared(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: text.get(name) for name in COMPARED} for text in answer.get("choices", [answer])]


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_pieces_are_those_of_a_calm_run(question: str, urls: list[str]) -> None:
    fields = {"prompt": PROMPT, "seed": 3, **QUESTIONS[question]}
    with Client(urls) as calm:
        expected = joined(list(calm.stream(**fields)))
    with Client(urls, transport=Breaking(1, breaks=3)) as client:
        events = list(client.stream(**fields))

    assert expected == joined(events)


def joined(events: list[dict[str, Any]]) -> dict[int, tuple[str, list[int]]]:
    """The text and the ids of each index, put together from the pieces."""
    texts: dict[int, tuple[str, list[int]]] = {}
    for event in events[:-1]:
        text, ids = texts.get(event["index"], ("", []))
        texts[event["index"]] = text + event["text"], ids + event["token_ids"]
    return texts


@pytest.mark.parametrize("stream", [False, True])
def test_ids_of_another_answer_are_refused_before_any_text(stream: bool, urls: list[str]) -> None:
    """Where it is asked how likely they were in the draw that made them."""
    sampled = {"temperature": 0.8, "top_k": 2, "logprobs": {"of": "sampled"}, "resume": {"token_ids": [40, 41, 42]}}

    answer = httpx.post(f"{urls[0]}/generate", json={"prompt": PROMPT, "seed": 3, **sampled, "stream": stream})

    assert (422, "resume_mismatch") == (answer.status_code, answer.json()["error"]["code"])


@pytest.fixture(scope="module")
def different(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Two servers of the same file whose caches round differently."""
    shape = TinyShape(context=512)
    model = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=shape, format="Q8_0")
    settings = {"model": str(model), "kv_cache_bytes": 16 << 20, "threads": 1}
    one, other = (Settings.load({}, settings | {"kv_type": kv_type}) for kv_type in ("int8", "float16"))
    with live_server(one) as first, live_server(other) as second:
        yield [first.url, second.url]


def test_a_stream_goes_on_only_where_its_bits_are_made(different: list[str]) -> None:
    fields = {"prompt": PROMPT, "seed": 3, **QUESTIONS["drawn"]}
    with Client(different[:1]) as calm:
        expected = joined(list(calm.stream(**fields)))
    with Client(different, transport=Breaking(1, breaks=1)) as client:
        events = list(client.stream(**fields))

    assert expected == joined(events)


def test_a_stream_that_no_one_can_go_on_with_is_an_error(different: list[str]) -> None:
    seen: list[dict[str, Any]] = []
    with Client(different, transport=Breaking(1, breaks=1), attempts=2) as client:
        stream = client.stream(prompt=PROMPT, seed=3, max_new_tokens=12)
        seen.append(next(stream))
        with pytest.raises(TaneError, match="fingerprint_mismatch"):
            seen.extend(stream)

    assert 1 == len(seen)


def test_an_answer_that_nobody_saw_is_one_server_s_alone(different: list[str]) -> None:
    fields = {"prompt": PROMPT, "seed": 3, **QUESTIONS["drawn"]}
    with Client(different[1]) as calm:
        expected = compared(calm.generate(**fields))
    with Client(different, transport=Breaking(1, breaks=1)) as client:  # two events may be a whole answer
        answer = client.generate(**fields)

    assert expected == compared(answer)


@pytest.mark.slow
def test_a_full_server_is_asked_again_when_it_says(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", shape=TinyShape(context=1024), format="Q8_0")
    fields: dict[str, Any] = {
        "prompt": PROMPT,
        "seed": 3,
        "max_new_tokens": 200,
        "ignore_eos": True,
        "speculation": "off",
    }

    async def together(url: str) -> list[dict[str, Any]]:
        async with AsyncClient(url) as client:
            return await asyncio.gather(*(client.generate(**fields) for _ in range(2)))

    began = time.monotonic()
    with slow_steps(0.004), live_server(Settings.load({}, {"model": str(model), "max_queue_tokens": 400})) as live:
        answers = asyncio.run(together(live.url))
        refused = live.samples()["tane_http_requests_total /generate 503"]

    assert 1 == len({answer["text"] for answer in answers})
    assert refused >= 1
    assert time.monotonic() - began >= 1
