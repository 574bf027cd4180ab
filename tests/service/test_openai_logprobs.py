"""Log-probabilities in OpenAI's two forms: tokens by name, and offsets that point into the text."""

from collections.abc import Sequence
from typing import Any

import pytest

from model.decoding.params import TokenLogprob
from model.tokenizer import Tokenizer
from service.openai_logprobs import CompletionLogprobs, chat_logprobs
from service.request import TokenRecord
from tests.fake_runtime import FakeRuntime, plain
from tests.service.door import Client
from tests.service.test_openai_chat import chunks_of as chat_chunks
from tests.service.test_openai_chat import whole as whole_chat
from tests.service.test_openai_completions import chunks_of as completion_chunks
from tests.tiny_vocabulary import END, tiny_vocabulary

TOKENIZER = Tokenizer(tiny_vocabulary())
HELLO, WORLD = TOKENIZER.encode("hello world")[0], TOKENIZER.encode(" w")[0]


def records(token_ids: Sequence[int], top: Sequence[tuple[int, float]] = ()) -> list[TokenRecord]:
    return [TokenRecord(token_id, -0.5, tuple(TokenLogprob(*one) for one in top)) for token_id in token_ids]


def offsets(text: str, token_ids: Sequence[int]) -> list[int]:
    found: list[int] = CompletionLogprobs(TOKENIZER).next(text, records(token_ids))["text_offset"]
    return found


def test_the_lists_of_a_completion_go_together() -> None:
    found = CompletionLogprobs(TOKENIZER).next("hello w", records([HELLO, WORLD]))

    assert {
        "tokens": ["hello", " w"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"hello": -0.5}, {" w": -0.5}],
        "text_offset": [0, 5],
    } == found


def test_the_chosen_token_is_among_the_likeliest_once() -> None:
    likeliest = [(WORLD, -0.1), (HELLO, -0.5)]

    (top,) = CompletionLogprobs(TOKENIZER).next("hello", records([HELLO], likeliest))["top_logprobs"]

    assert {" w": -0.1, "hello": -0.5} == top


def test_an_unlikely_token_stands_beside_the_likeliest() -> None:
    (top,) = CompletionLogprobs(TOKENIZER).next("hello", records([HELLO], [(WORLD, -0.1)]))["top_logprobs"]

    assert [" w", "hello"] == list(top)


def test_offsets_count_characters_and_not_bytes() -> None:
    assert [0, 0, 1] == offsets("éa", TOKENIZER.encode("éa"))


def test_a_part_of_a_character_points_at_it() -> None:
    assert [0, 1, 1, 1, 1, 2] == offsets("a🌱b", TOKENIZER.encode("a🌱b"))


def test_a_broken_character_counts_as_it_is_shown() -> None:
    first, *_ = TOKENIZER.encode("é")
    (letter,) = TOKENIZER.encode("a")

    assert [0, 1] == offsets("\N{REPLACEMENT CHARACTER}a", [first, letter])


def test_tokens_after_the_cut_of_a_stop_point_at_the_end_of_the_text() -> None:
    assert [0, 2, 2] == offsets("he", [HELLO, WORLD, END])


def test_a_part_of_a_character_is_named_by_its_bytes() -> None:
    found = CompletionLogprobs(TOKENIZER).next("é", records(TOKENIZER.encode("é")))

    assert ["bytes:\\xc3", "bytes:\\xa9"] == found["tokens"]


def test_a_control_token_is_named_by_its_spelling() -> None:
    assert ["<|end|>"] == CompletionLogprobs(TOKENIZER).next("", records([END]))["tokens"]


def test_offsets_go_on_over_the_pieces_of_a_text() -> None:
    logprobs = CompletionLogprobs(TOKENIZER)
    ids = TOKENIZER.encode("é")

    pieces = [
        logprobs.next("hello", records([HELLO])),
        logprobs.next("é", records(ids)),
        logprobs.next("a", records([END])),
    ]

    assert [[0], [5, 5], [6]] == [piece["text_offset"] for piece in pieces]


def test_a_token_of_a_chat_has_text_bytes_and_the_likeliest() -> None:
    (token,) = chat_logprobs(TOKENIZER, records([HELLO], [(WORLD, -0.1)]))["content"]

    assert {
        "token": "hello",
        "logprob": -0.5,
        "bytes": list(b"hello"),
        "top_logprobs": [{"token": " w", "logprob": -0.1, "bytes": list(b" w")}],
    } == token


def test_the_bytes_of_a_chats_tokens_joined_are_the_text() -> None:
    content = chat_logprobs(TOKENIZER, records(TOKENIZER.encode("a🌱é")))["content"]

    assert "a🌱é" == bytes(byte for token in content for byte in token["bytes"]).decode()


def test_a_completion_lists_as_many_as_were_asked_for_and_the_chosen_one() -> None:
    answer = Client().post("/v1/completions", {"prompt": "abc", "logprobs": 2}).json

    logprobs = answer["choices"][0]["logprobs"]
    assert ["s", "u", "n", "r", "i", "s", "e"] == logprobs["tokens"]
    assert {3} == {len(top) for top in logprobs["top_logprobs"]}


def test_a_chat_lists_as_many_as_were_asked_for() -> None:
    content = whole_chat(logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]

    assert [2] * 7 == [len(token["top_logprobs"]) for token in content]


@pytest.mark.parametrize("texts", [("sunrise",), ("s", "unr", "ise")])
def test_the_chunks_of_a_completion_say_what_the_whole_says(texts: tuple[str, ...]) -> None:
    whole = Client().post("/v1/completions", {"prompt": "abc", "seed": 1, "logprobs": 1}).json["choices"][0]["logprobs"]

    *pieces, _ = completion_chunks(FakeRuntime(plain(*texts)), logprobs=1)

    parts: list[dict[str, list[Any]]] = [piece["choices"][0]["logprobs"] for piece in pieces]
    assert whole == {name: [item for part in parts for item in part[name]] for name in whole}


def test_the_chunks_of_a_chat_say_what_the_whole_says() -> None:
    whole = whole_chat(logprobs=True, top_logprobs=1)["choices"][0]["logprobs"]["content"]

    _, *pieces, _ = chat_chunks(FakeRuntime(plain("sun", "rise")), logprobs=True, top_logprobs=1)

    assert whole == [token for piece in pieces for token in piece["choices"][0]["logprobs"]["content"]]


def test_offsets_of_several_streamed_texts_are_each_their_own() -> None:
    chunks = completion_chunks(FakeRuntime(plain("sun", "rise")), logprobs=0, n=2)

    found = [(chunk["choices"][0]["index"], chunk["choices"][0]["logprobs"]["text_offset"]) for chunk in chunks[:4]]
    assert [(0, [0, 1, 2]), (1, [0, 1, 2]), (0, [3, 4, 5, 6]), (1, [3, 4, 5, 6])] == found
