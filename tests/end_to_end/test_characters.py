"""Characters of several bytes, on every route: sent whole, and the same text in pieces as at once."""

import pytest

from tests.live import Live
from tests.tiny_model import TinyShape
from tests.told import ROUTES, Fields, told

WRITTEN = "naïve 種は土の中で 👩‍👩‍👧‍👦 \u0301e🌱"
"""Ends with a character of four bytes."""
MERGED = list(range(3 + 256, TinyShape().vocabulary))
"""Ids of more than one byte: without them every character of several bytes comes in pieces."""


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
