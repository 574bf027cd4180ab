"""Characters of several bytes, on every route: sent whole, and the same text in pieces as at once."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from service.settings import Settings
from tests.live import Live, live_server
from tests.tiny_model import TinyShape, write_tiny_gguf

ROUTES = ("/generate", "/v1/completions", "/v1/chat/completions")
PROMPT = "Über den Gärten liegt Schnee. "
WRITTEN = "naïve 種は土の中で 👩‍👩‍👧‍👦 \u0301e🌱"
"""Ends with a character of four bytes."""
MERGED = list(range(3 + 256, TinyShape().vocabulary))
"""Ids of more than one byte: without them every character of several bytes comes in pieces."""
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """What a caller was told: whole texts by index, and pieces in their order."""

    texts: dict[int, str]
    pieces: list[tuple[int, str]]

    def joined(self) -> dict[int, str]:
        return {index: "".join(text for of, text in self.pieces if of == index) for index in self.texts}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=512))
    with live_server(Settings.load({}, {"model": str(path), "kv_cache_bytes": 4 << 20})) as server:
        yield server


def body_for(route: str, *, count: int = 1, **fields: Any) -> Fields:
    """The same request in the words of a route."""
    body: Fields = {"max_new_tokens": 80, "seed": 5, "temperature": 2.0, "top_p": 1.0, "top_k": 0, **fields}
    prompt: Fields = {"messages": [{"role": "user", "content": PROMPT}]} if "chat" in route else {"prompt": PROMPT}
    return {**body, **prompt, ("num_return" if route == "/generate" else "n"): count}


def piece_of(choice: Fields) -> str:
    """The text of a choice or a chunk, of any route."""
    said = choice.get("message") or choice.get("delta") or choice
    return said.get("text") or said.get("content") or ""


def choices_of(answer: Fields) -> list[Fields]:
    return answer.get("choices") or [{"index": 0, **answer}]


def whole(live: Live, route: str, **fields: Any) -> dict[int, str]:
    with live.client() as client:
        answer = client.post(route, json=body_for(route, **fields))
        assert 200 == answer.status_code, answer.text
        return {choice["index"]: piece_of(choice) for choice in choices_of(answer.json())}


def streamed(live: Live, route: str, **fields: Any) -> list[tuple[int, str]]:
    """The pieces of the texts with their index, in the order they came."""
    body = body_for(route, stream=True, **fields)
    with live.client() as client, client.stream("POST", route, json=body) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    assert "[DONE]" == lines[-1]
    events = [json.loads(line) for line in lines[:-1]]
    pieces = events[:-1] if route == "/generate" else events
    return [(choice["index"], piece_of(choice)) for piece in pieces for choice in choices_of(piece)]


def told(live: Live, route: str, **fields: Any) -> Told:
    return Told(whole(live, route, **fields), streamed(live, route, **fields))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"banned_token_ids": MERGED},
        {"banned_token_ids": MERGED, "count": 3},
        {"banned_token_ids": MERGED, "speculation": "prompt_lookup", "temperature": 0},
        {"banned_token_ids": MERGED, "beam_width": 3, "temperature": 1.0},
    ],
    ids=["usual tokens", "single bytes", "several texts", "guesses", "beams"],
)
def test_no_character_is_sent_in_pieces(route: str, fields: Fields, live: Live) -> None:
    """The model is made to write valid text: so whatever is not a character was broken on the way."""
    answer = told(live, route, constraint={"choice": [WRITTEN]}, **fields)

    assert {WRITTEN} == set(answer.texts.values())
    assert answer.texts == answer.joined()
    assert not any("\ufffd" in text for _, text in answer.pieces)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("seed", range(4))
def test_bytes_that_are_no_text_are_the_same_streamed_and_not(route: str, seed: int, live: Live) -> None:
    """Random tokens break most characters up: each part that cannot be one is U+FFFD, in the stream as in the whole."""
    answer = told(live, route, seed=seed, count=2, ignore_eos=True)

    assert any("\ufffd" in text for text in answer.texts.values())
    assert answer.texts == answer.joined()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_character_that_the_end_cuts_is_shown_as_broken(route: str, length: int, live: Live) -> None:
    """Each token begins a character of four bytes, so the last one is still waited for when the tokens are used up."""
    tokenizer = live.service.main.model.tokenizer
    (first,) = [token_id for token_id in range(tokenizer.vocabulary_size) if tokenizer.token_bytes(token_id) == b"\xf0"]

    answer = told(live, route, max_new_tokens=length, temperature=0, logit_bias={str(first): 100.0})

    assert {0: "\ufffd" * length} == answer.texts == answer.joined()
