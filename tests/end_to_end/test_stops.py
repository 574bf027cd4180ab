"""Stops that lie across tokens and pieces, on every route: nothing of one is sent, and nothing else is kept back."""

from collections.abc import Callable
from functools import cache
from itertools import chain

import pytest

from tests.live import Live
from tests.tiny_model import TinyShape
from tests.told import ROUTES, Fields, answer_of, choices_of, events_of, pieces_of, text_of, told

MERGED = list(range(3 + 256, TinyShape().vocabulary))
BYTE_BY_BYTE: Fields = {"banned_token_ids": MERGED, "ignore_eos": True, "logit_bias": {str(n): -100 for n in range(3)}}
"""Every token is one byte, so that every stop of two characters lies across tokens."""
NEVER = "\x00never"
Free = Callable[[str, int], str]


@pytest.fixture(scope="module")
def free_text(live: Live) -> Free:
    """What is said on a route to a seed when nothing stops it."""

    @cache
    def free(route: str, seed: int) -> str:
        return text_of(choices_of(answer_of(live, route, seed=seed, **BYTE_BY_BYTE))[0])

    return free


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("length", [1, 2, 5])
def test_nothing_of_a_stop_is_sent_and_all_before_it_is(
    route: str, seed: int, length: int, live: Live, free_text: Free
) -> None:
    """In the stream as in the whole; other stops that begin alike are held back and then sent."""
    text = free_text(route, seed)
    stop = text[40 : 40 + length]
    begins_alike = [text[place : place + 2] + NEVER for place in (5, 20, 38)]

    answer = told(live, route, seed=seed, stop=[*begins_alike, stop], **BYTE_BY_BYTE)

    assert {0: text[: text.index(stop)]} == answer.texts == answer.joined()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("held", [1, 3])
def test_what_may_begin_a_stop_is_sent_when_the_text_ends(route: str, held: int, live: Live, free_text: Free) -> None:
    text = free_text(route, 0)

    answer = told(live, route, seed=0, stop=[text[-held:] + NEVER], **BYTE_BY_BYTE)

    assert {0: text} == answer.texts == answer.joined()


@pytest.mark.parametrize("stop", [[], ["e", "a"]], ids=["to the end", "stopped"])
def test_the_lists_of_each_chunk_of_a_completion_are_of_the_same_tokens(stop: list[str], live: Live) -> None:
    """And joined they are the lists of the whole, the tokens of the stop and of broken characters included."""
    fields: Fields = {"seed": 1, "stop": stop, "logprobs": 2, "ignore_eos": True}
    (whole,) = [choice["logprobs"] for choice in answer_of(live, "/v1/completions", **fields)["choices"]]

    events = events_of(live, "/v1/completions", **fields)
    chunks = [choice["logprobs"] for choice in pieces_of("/v1/completions", events) if choice["logprobs"]]

    assert len(chunks) >= 1
    assert all(len({len(values) for values in chunk.values()}) == 1 for chunk in chunks)
    assert whole == {name: list(chain.from_iterable(chunk[name] for chunk in chunks)) for name in whole}


@pytest.mark.parametrize("stop", [[], ["e", "a"]], ids=["to the end", "stopped"])
def test_the_tokens_of_each_chunk_of_a_chat_spell_its_text(stop: list[str], live: Live) -> None:
    fields: Fields = {"seed": 1, "stop": stop, "logprobs": True, "top_logprobs": 2, "ignore_eos": True}
    (whole,) = [
        choice["logprobs"]["content"] for choice in answer_of(live, "/v1/chat/completions", **fields)["choices"]
    ]

    events = events_of(live, "/v1/chat/completions", **fields)
    chunks = [choice for choice in pieces_of("/v1/chat/completions", events) if choice["logprobs"]]

    assert whole == [token for chunk in chunks for token in chunk["logprobs"]["content"]]
    for chunk in chunks[:-1]:
        data = bytes(byte for token in chunk["logprobs"]["content"] for byte in token["bytes"])
        assert data.decode(errors="replace") == text_of(chunk)
