"""Vocabularies of SentencePiece: ids by the definition, and text that comes back as it was."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.loading.checkpoint import ModelFileError, Vocabulary
from model.tokenizer import Tokenizer, UnencodableText
from tests.reference import sentence_pieces
from tests.tiny_vocabulary import PIECES, tiny_pieces

TAGS = ("<b>", "<br>", "\n\n", "\n\n\n", "  ", "    ", "ll", "br")
"""With overlaps, and two that are pieces to begin with."""
VOCABULARIES = {
    "with a space before": tiny_pieces(),
    "without": tiny_pieces(adds_space_prefix=False),
    "with tags": tiny_pieces([piece for piece in PIECES if piece not in ("▁▁", "ll")], user_defined=TAGS),
    "with tags, without a space": tiny_pieces(
        [piece for piece in PIECES if piece not in ("▁▁", "ll")], user_defined=TAGS, adds_space_prefix=False
    ),
}
TOKENIZERS = {name: Tokenizer(vocabulary) for name, vocabulary in VOCABULARIES.items()}
TINY = TOKENIZERS["with a space before"]
BARE = TOKENIZERS["without"]

fragments = st.sampled_from(
    [
        "a",
        "b",
        "aa",
        "ab",
        "hello",
        "he",
        " ",
        "  ",
        "   ",
        "\n",
        "\n\n",
        "<b>",
        "<br>",
        "<s>",
        "<0x41>",
        "é",
        "🌱",
        "\x00",
    ]
)
texts = st.lists(st.one_of(fragments, st.text(max_size=3)), max_size=12).map("".join)
with_marks = st.lists(st.one_of(fragments, st.just("▁"), st.text(max_size=3)), max_size=12).map("".join)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_are_those_of_the_definition(name: str) -> None:
    @settings(max_examples=60)
    @given(text=texts.filter(lambda text: "▁" not in text))
    def agree(text: str) -> None:
        assert sentence_pieces.encode(VOCABULARIES[name], text) == TOKENIZERS[name].encode(text)

    agree()


@st.composite
def random_vocabularies(draw: st.DrawFn) -> Vocabulary:
    pieces = draw(st.lists(st.text("ab▁", min_size=1, max_size=5), min_size=1, max_size=20, unique=True))
    scores = draw(st.lists(st.sampled_from([0.0, -1.0, -1.5, -2.0]), min_size=len(pieces), max_size=len(pieces)))
    return tiny_pieces(pieces, scores=scores, adds_space_prefix=draw(st.booleans()))


@settings(deadline=None, max_examples=50)
@given(vocabulary=random_vocabularies(), text=st.text("ab c", max_size=20))
def test_ids_are_those_of_the_definition_whatever_the_pieces_and_scores(vocabulary: Vocabulary, text: str) -> None:
    """Also with equal scores, with characters that are no piece, and with pieces that no training would make."""
    assert sentence_pieces.encode(vocabulary, text) == Tokenizer(vocabulary).encode(text)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_any_text_comes_back_as_it_was(name: str) -> None:
    @settings(max_examples=60)
    @given(text=with_marks)
    def comes_back(text: str) -> None:
        assert text == TOKENIZERS[name].decode(TOKENIZERS[name].encode(text))

    comes_back()


@pytest.mark.parametrize("name", VOCABULARIES)
def test_text_never_encodes_to_a_control_token(name: str) -> None:
    tokenizer = TOKENIZERS[name]

    @settings(max_examples=60)
    @given(text=st.lists(st.sampled_from(["<s>", "</s>", "<unk>", "<", "s", ">", " "]), max_size=8).map("".join))
    def never(text: str) -> None:
        assert tokenizer.control_token_ids.isdisjoint(tokenizer.encode(text))

    never()


@pytest.mark.parametrize("spelling", ["x", "h", "hello"])
def test_a_control_token_is_no_text_however_short_and_however_it_could_be_joined(spelling: str) -> None:
    pieces = [piece for piece in PIECES if piece != spelling]
    tokenizer = Tokenizer(tiny_pieces(pieces, control=("<unk>", "<s>", "</s>", spelling)))

    assert tokenizer.control_token_ids.isdisjoint(tokenizer.encode(f"{spelling} {spelling}"))


def test_the_highest_score_is_joined_first() -> None:
    low, high = tiny_pieces(["a", "b", "ab", "ba"]), tiny_pieces(["a", "b", "ba", "ab"], adds_space_prefix=False)
    low = replace(low, adds_space_prefix=False)

    assert [["ab", "a"], ["a", "ba"]] == [
        [tokenizer.token_text(i) for i in tokenizer.encode("aba")] for tokenizer in (Tokenizer(low), Tokenizer(high))
    ]


def test_a_text_begins_with_a_space_where_the_model_puts_one() -> None:
    assert [" hello"] == [TINY.token_text(i) for i in TINY.encode("hello")]
    assert ["hello"] == [BARE.token_text(i) for i in BARE.encode("hello")]


def test_no_space_is_put_before_no_text() -> None:
    assert [] == TINY.encode("")


def test_text_that_goes_on_gets_no_space() -> None:
    assert ["hello"] == [TINY.token_text(i) for i in TINY.encode_continuation("hello")]


def test_a_space_of_the_text_itself_stays_beside_the_one_that_is_put_there() -> None:
    ids = TINY.encode(" hello")

    assert b"  hello" == b"".join(map(TINY.token_bytes, ids))
    assert " hello" == TINY.decode(ids)


def test_the_first_token_of_an_answer_keeps_its_space() -> None:
    """Streams add up what tokens add, and nothing is taken off but what a prompt was given."""
    answer = TINY.encode("hello")

    assert b" hello" == b"".join(map(TINY.token_bytes, answer))
    assert "a hello" == TINY.decode([*TINY.encode("a"), *answer])


def test_the_space_is_taken_off_behind_control_tokens_too() -> None:
    assert "<s>a</s>hello" == TINY.decode([1, *TINY.encode("a"), 2, *TINY.encode("hello")])


def test_a_prompt_begins_with_bos_and_then_the_space() -> None:
    tokenizer = Tokenizer(tiny_pieces(adds_bos=True))

    assert [1, *tokenizer.encode("hello")] == tokenizer.encode_prompt("hello")


def test_the_mark_for_a_space_is_a_character_when_it_is_typed() -> None:
    """It becomes its bytes: as the space that it stands for it would come back as one."""
    ids = BARE.encode("a▁a")

    assert [b"a", b"\xe2", b"\x96", b"\x81", b"a"] == list(map(BARE.token_bytes, ids))
    assert BARE.encode("a a") != ids


def test_byte_tokens_add_their_byte() -> None:
    assert [bytes([byte]) for byte in range(256)] == [TINY.token_bytes(3 + byte) for byte in range(256)]


def test_a_byte_tokens_spelling_is_text_like_any_other() -> None:
    assert 3 + 0x41 not in BARE.encode("<0x41>")


def test_tokens_that_are_found_as_they_stand_are_the_leftmost_and_longest() -> None:
    tokenizer = TOKENIZERS["with tags, without a space"]

    assert ["<br>", "\n\n\n", "\n\n", "    ", "  ", " "] == [
        tokenizer.token_text(i) for i in tokenizer.encode("<br>" + "\n" * 5 + " " * 7)
    ]


def test_unused_tokens_are_no_text_and_add_none() -> None:
    vocabulary = tiny_pieces(unused=("wow",))
    tokenizer = Tokenizer(vocabulary)
    unused = len(vocabulary.tokens) - 1

    assert unused not in tokenizer.encode("wow")
    assert (b"", "", True) == (
        tokenizer.token_bytes(unused),
        tokenizer.decode([unused]),
        unused in tokenizer.control_token_ids,
    )


def test_unused_tokens_are_named_where_tokens_are_shown() -> None:
    """In lists of likely tokens they would all look the same without."""
    vocabulary = tiny_pieces(unused=("wow",))

    assert "wow" == Tokenizer(vocabulary).token_text(len(vocabulary.tokens) - 1)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(UnencodableText, match="character 1 is a lone surrogate"):
        TINY.encode("a\udc00")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"byte_token_ids": frozenset(range(3, 258))}, "no token for the byte 255"),
        ({"byte_token_ids": frozenset()}, "no token for the byte 0"),
        (
            {
                "user_defined_token_ids": frozenset({tiny_pieces().tokens.index("▁")}),
                "tokens": (*tiny_pieces().tokens, " "),
            },
            "SentencePiece",
        ),
    ],
)
def test_a_vocabulary_that_contradicts_itself_is_refused(change: dict[str, Any], says: str) -> None:
    vocabulary = replace(tiny_pieces(), **change)
    vocabulary = replace(vocabulary, scores=(*vocabulary.scores, 0.0)[: len(vocabulary.tokens)])

    with pytest.raises(ModelFileError, match=says):
        Tokenizer(vocabulary)
