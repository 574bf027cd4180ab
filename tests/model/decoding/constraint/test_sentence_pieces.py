"""Constraints over a vocabulary of SentencePiece: "▁" is a space, byte tokens are bytes, and no space is put first."""

import json
import re
from typing import Any

import pytest

from model.decoding.constraint import ConstraintCompiler, ConstraintSpec
from model.tokenizer import Tokenizer
from tests.constrained import allowed_ids, random_ids, text_of
from tests.tiny_vocabulary import tiny_pieces

VOCABULARY = tiny_pieces(user_defined=("<b>", "\n\n"), unused=("nothing",))
TOKENIZER = Tokenizer(VOCABULARY)
COMPILER = ConstraintCompiler(TOKENIZER)
EOS = 2


def texts_of(spec: ConstraintSpec, limit: int = 40) -> list[str]:
    compiled = COMPILER.compile(spec)
    drawn = [random_ids(compiled, limit, seed) for seed in range(12)]
    return [text_of(TOKENIZER, ids) for ids in drawn]


@pytest.mark.parametrize("pattern", [r"hello( w[a-c]{1,3})*", r"[é種 🌱]{1,4}", r"( *<b>\n\n){1,2}", r"[▁ ]{2,6}"])
def test_random_texts_match_a_regular_expression(pattern: str) -> None:
    assert all(re.fullmatch(pattern, text) for text in texts_of(ConstraintSpec.regex(pattern)))


def test_random_texts_are_documents_of_a_schema() -> None:
    schema: dict[str, Any] = {"properties": {"a b": {"enum": ["hello a", "é▁"]}}, "required": ["a b"]}
    schema |= {"type": "object", "additionalProperties": False}

    found = {json.loads(text)["a b"] for text in texts_of(ConstraintSpec.json_schema(schema), 80)}

    assert {"hello a", "é▁"} == found


def test_a_text_begins_as_the_constraint_says_and_with_no_space() -> None:
    """The space that the model puts before texts stands before the prompt, which the answer goes on from."""
    texts = ("hello a", "hello w", " hello")

    assert set(texts) == set(texts_of(ConstraintSpec.choice(texts)))


def test_a_choice_is_spelled_as_text_that_goes_on() -> None:
    ids = random_ids(COMPILER.compile(ConstraintSpec.choice(("hello hello",))), 20, 0)

    assert [*TOKENIZER.encode_continuation("hello hello"), EOS] == ids


def test_a_mask_allows_a_piece_and_the_byte_that_mean_the_same() -> None:
    constraint = COMPILER.compile(ConstraintSpec.regex("[ab] ?c")).begin(10)
    allowed = set(allowed_ids(constraint.mask()))

    assert {VOCABULARY.tokens.index(each) for each in ("a", "b", "<0x61>", "<0x62>")} == allowed


def test_control_and_unused_tokens_are_never_allowed() -> None:
    constraint = COMPILER.compile(ConstraintSpec.regex(r"(.|\n)*")).begin(10)

    assert {EOS} == set(allowed_ids(constraint.mask())) & TOKENIZER.control_token_ids
