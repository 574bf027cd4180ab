"""A tokenizer.json gives the ids that its own library makes of it, or is refused by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from model.loading import tokenizer_json
from model.loading.checkpoint import ModelFileError
from model.loading.tokenizer_json import read_tokenizer_json
from model.tokenizer import Tokenizer
from tests.tokenizer_files import LEARNED, WORDS, byte_fallback, byte_level, write_folder

TEXTS = (
    *LEARNED,
    "12 345 6789 1234567 x1y22z333",
    "It's DON'T we'LL they'd",
    "  two   three    four \t tab \n\n\n end  ",
    "HTTPServer getURL iPhone ÉCOLE ǅungla",
    "one\r\ntwo\r\n\r\nthree\r//\n",
    "é e\u0301 \u00a0\u3000 👩‍👩‍👧‍👦 مرحبا 種",
    "<tool>a<tool> <|end",
    "hello  hello <b> w<b>hello aaa",
)
characters = st.one_of(
    st.sampled_from([*"aAbBéÉ1239 \n\r\t'./-_", "'s", "'LL", "  ", "12", "種", "🌱", "\u0301", "ǅ"]),
    st.text(max_size=2),
)


def both(
    folder: Path, made: Any, settings: dict[str, Any] | None = None
) -> tuple[Tokenizer, Callable[[str], list[int]]]:
    """Ours, and the library's own ids for a text."""
    ours = Tokenizer(read_tokenizer_json(write_folder(folder, made, settings)))
    return ours, lambda text: list(made.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("name", WORDS)
def test_a_byte_level_vocabulary_gives_the_librarys_ids(name: str, tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, byte_level(name))

    @settings(max_examples=40)
    @given(text=st.lists(characters, max_size=12).map("".join))
    def agree(text: str) -> None:
        assert theirs(text) == ours.encode(text)
        assert text == ours.decode(ours.encode(text))

    agree()


@pytest.mark.parametrize("name", WORDS)
def test_texts_of_many_kinds_get_the_librarys_ids(name: str, tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, byte_level(name))

    assert [theirs(text) for text in TEXTS] == [ours.encode(text) for text in TEXTS]


@pytest.mark.parametrize("name", WORDS)
def test_a_pre_tokenizer_is_known_by_what_it_does(name: str, tmp_path: Path) -> None:
    assert name == read_tokenizer_json(write_folder(tmp_path, byte_level(name))).pre_tokenizer


def test_the_texts_tell_the_pre_tokenizers_apart(tmp_path: Path) -> None:
    found = {str([byte_level(name).pre_tokenizer.pre_tokenize_str(text) for text in TEXTS]) for name in WORDS}

    assert len(WORDS) == len(found)


def test_a_word_that_is_a_token_is_that_token_where_merges_are_ignored(tmp_path: Path) -> None:
    made = byte_level("llama-bpe", ignore_merges=True)
    said = json.loads(made.to_str())
    lost = [merge for merge in said["model"]["merges"] if "".join(merge) == "Ġthe"]
    said["model"]["merges"].remove(lost[0])
    (tmp_path / "tokenizer.json").write_text(json.dumps(said))
    vocabulary = read_tokenizer_json(tmp_path)

    assert vocabulary.ignores_merges
    assert [vocabulary.tokens.index("Ġthe")] == Tokenizer(vocabulary).encode(" the")


fallback_texts = st.lists(
    st.one_of(
        st.sampled_from(["hello", " ", "  ", "a", "aa", "w", "é", "🌱", "\n", "<s", "\x00"]), st.text(max_size=2)
    ),
    max_size=12,
).map("".join)


@pytest.mark.parametrize("style", ["prefixed", "metaspace", "plain"])
def test_a_byte_fallback_vocabulary_gives_the_librarys_ids(style: str, tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, byte_fallback(style))

    @settings(max_examples=60)
    @given(text=fallback_texts)
    def agree(text: str) -> None:
        assume("▁" not in text and not (style == "metaspace" and text.startswith(" ")))
        assert theirs(text) == ours.encode(text)

    agree()


@pytest.mark.parametrize("style", ["prefixed", "metaspace", "plain"])
def test_text_comes_back_from_a_byte_fallback_vocabulary(style: str, tmp_path: Path) -> None:
    """The library takes "▁" for a space, and its Metaspace puts none before a text that begins with one."""
    ours, _ = both(tmp_path, byte_fallback(style))

    @settings(max_examples=40)
    @given(text=st.lists(st.one_of(fallback_texts, st.sampled_from(["▁", " ", "<b>"])), max_size=4).map("".join))
    def comes_back(text: str) -> None:
        assert text == ours.decode(ours.encode(text))

    comes_back()


@pytest.mark.parametrize(("style", "expected"), [("prefixed", True), ("metaspace", True), ("plain", False)])
def test_the_space_before_a_text_is_read(style: str, expected: bool, tmp_path: Path) -> None:
    assert expected == read_tokenizer_json(write_folder(tmp_path, byte_fallback(style))).adds_space_prefix


def test_a_typed_mark_for_a_space_comes_back(tmp_path: Path) -> None:
    ours = Tokenizer(read_tokenizer_json(write_folder(tmp_path, byte_fallback("prefixed"))))

    assert "▁a▁ ▁▁" == ours.decode(ours.encode("▁a▁ ▁▁"))


def test_text_is_not_normalised(tmp_path: Path) -> None:
    """Qwen's file asks for NFC, which would change what the user wrote."""
    said = json.loads(byte_level("qwen2").to_str()) | {"normalizer": {"type": "NFC"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(said))
    ours = Tokenizer(read_tokenizer_json(tmp_path))

    assert "e\u0301" == ours.decode(ours.encode("e\u0301"))
    assert byte_level("qwen2").encode("é").ids == ours.encode("é")


def test_special_tokens_are_control_tokens_and_others_are_found_in_text(tmp_path: Path) -> None:
    vocabulary = read_tokenizer_json(write_folder(tmp_path, byte_level("gpt-2")))

    assert {"<|end|>"} == {vocabulary.tokens[i] for i in vocabulary.control_token_ids}
    assert {"<tool>"} == {vocabulary.tokens[i] for i in vocabulary.user_defined_token_ids}


def test_the_tokenizers_settings_name_its_ends_and_beginnings(tmp_path: Path) -> None:
    settings = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": False}
    vocabulary = read_tokenizer_json(write_folder(tmp_path, byte_fallback("prefixed"), settings))

    assert (1, frozenset({2}), False) == (vocabulary.bos_token_id, vocabulary.eos_token_ids, vocabulary.adds_bos)


def test_the_map_of_special_tokens_stands_in_for_the_settings(tmp_path: Path) -> None:
    write_folder(tmp_path, byte_fallback("prefixed"), {})
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<s>", "eos_token": {"content": "</s>"}}')
    vocabulary = read_tokenizer_json(tmp_path)

    assert (1, frozenset({2})) == (vocabulary.bos_token_id, vocabulary.eos_token_ids)


def test_the_post_processor_says_that_texts_begin_with_bos_where_the_settings_do_not(tmp_path: Path) -> None:
    vocabulary = read_tokenizer_json(write_folder(tmp_path, byte_fallback("plain")))

    assert (1, True) == (vocabulary.bos_token_id, vocabulary.adds_bos)


def test_ids_without_tokens_are_unused(tmp_path: Path) -> None:
    made = byte_level("qwen2")
    size = made.get_vocab_size()
    vocabulary = read_tokenizer_json(write_folder(tmp_path, made), size + 40)
    tokenizer = Tokenizer(vocabulary)

    assert frozenset(range(size, size + 40)) == vocabulary.unused_token_ids
    assert size + 40 == tokenizer.vocabulary_size
    assert "a" == tokenizer.decode([size, *tokenizer.encode("a"), size + 39])
    assert not set(tokenizer.encode(vocabulary.tokens[size])) & vocabulary.unused_token_ids


def test_gaps_between_ids_are_unused(tmp_path: Path) -> None:
    said = json.loads(byte_level("qwen2").to_str())
    said["added_tokens"][1]["id"] += 3
    (tmp_path / "tokenizer.json").write_text(json.dumps(said))

    assert 3 == len(read_tokenizer_json(tmp_path).unused_token_ids)


def test_more_tokens_than_rows_are_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, byte_level("gpt-2"))

    with pytest.raises(ModelFileError, match=r"has tokens up to id .*; the model has 300 rows"):
        read_tokenizer_json(tmp_path, 300)


def test_merges_may_be_written_as_text(tmp_path: Path) -> None:
    said = json.loads(byte_level("gpt-2").to_str())
    expected = read_tokenizer_json(write_folder(tmp_path, byte_level("gpt-2")))
    said["model"]["merges"] = [" ".join(merge) for merge in said["model"]["merges"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(said))

    assert expected == read_tokenizer_json(tmp_path)


def test_a_merge_to_a_control_token_makes_none(tmp_path: Path) -> None:
    """Converters list all ways to join pieces, those to "</s>" too; text must not become it."""
    said = json.loads(byte_fallback("plain").to_str())
    said["model"]["vocab"] |= {"</": 500, "s>": 501, "<": 502, "/": 503, ">": 504}
    said["model"]["merges"] += [["<", "/"], ["s", ">"], ["</", "s>"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(said))

    assert [500, 501] == Tokenizer(read_tokenizer_json(tmp_path)).encode("</s>")


def changed(**parts: Any) -> Callable[[dict[str, Any]], None]:
    return lambda said: said.update(parts)


def changed_model(**parts: Any) -> Callable[[dict[str, Any]], None]:
    return lambda said: said["model"].update(parts)


def changed_token(**parts: Any) -> Callable[[dict[str, Any]], None]:
    return lambda said: said["added_tokens"][0].update(parts)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (changed(something=1), "'something' is not implemented"),
        (changed(model=None), "model is missing"),
        (changed_model(type="Unigram"), "model.type is '\"Unigram\"'; supported is 'BPE'"),
        (changed_model(type="WordPiece"), "WordPiece"),
        (changed_model(something=1), "model: 'something' is not implemented"),
        (changed_model(dropout=0.1), "model.dropout is not implemented"),
        (changed_model(end_of_word_suffix="</w>"), "model.end_of_word_suffix is not implemented"),
        (changed_model(vocab=[]), "model.vocab is not an object"),
        (changed_model(vocab={"a": -1}), "model.vocab holds"),
        (changed_model(vocab={"a": True}), "model.vocab holds"),
        (changed_model(vocab={"a": 1 << 40}), "model.vocab holds"),
        (changed_model(vocab={"": 1}), "model.vocab holds"),
        (changed_model(vocab={"a": 1, "b": 1}), "the same id"),
        (changed_model(merges={}), "model.merges is not a list"),
        (changed_model(merges=["a b c"]), "entry 0 is no pair"),
        (changed_model(merges=[["a", ""]]), "entry 0 is no pair"),
        (changed_model(merges=[["a", 1]]), "entry 0 is no pair"),
        (changed_model(merges=[["a", "Q"]]), "entry 0 does not join"),
        (lambda said: said["model"]["merges"].append(said["model"]["merges"][0]), "stands there twice"),
        (changed(normalizer={"type": "NFKC"}), "normalizer .*NFKC.* is not implemented"),
        (changed(normalizer={"type": "Lowercase"}), "normalizer .*Lowercase.* is not implemented"),
        (changed(pre_tokenizer=None), "pre_tokenizer .*null.* is not implemented"),
        (changed(pre_tokenizer={"type": "Whitespace"}), "pre_tokenizer .*Whitespace.* is not implemented"),
        (changed(pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True}), "pre_tokenizer .* is not implemented"),
        (changed(pre_tokenizer={"type": "Sequence", "pretokenizers": []}), "pre_tokenizer .* is not implemented"),
        (changed(decoder=None), "decoder .*null.* is not implemented"),
        (changed(decoder={"type": "WordPiece"}), "decoder .*WordPiece.* is not implemented"),
        (changed(post_processor={"type": "BertProcessing"}), "post_processor .*BertProcessing.* is not implemented"),
        (changed(added_tokens={}), "added_tokens is not a list"),
        (changed(added_tokens=[3]), "added_tokens holds what is no object"),
        (changed_token(id=-1), "added_tokens holds an id"),
        (changed_token(id=1 << 40), "added_tokens holds an id"),
        (changed_token(content=""), "without content"),
        (changed_token(content="a"), "another id than model.vocab"),
        (changed_token(lstrip=True), "lstrip of .* is not implemented"),
        (changed_token(single_word=True), "single_word of .* is not implemented"),
    ],
)
def test_what_is_not_known_is_refused_by_name(change: Callable[[Any], None], says: str, tmp_path: Path) -> None:
    said = json.loads(byte_level("gpt-2").to_str())
    change(said)
    (tmp_path / "tokenizer.json").write_text(json.dumps(said))

    with pytest.raises(ModelFileError, match=says):
        read_tokenizer_json(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (changed(normalizer={"type": "Precompiled"}), "normalizer .*Precompiled.* is not implemented"),
        (changed(normalizer=None), "pre_tokenizer .* is not implemented"),
        (changed(pre_tokenizer={"type": "Metaspace"}), "pre_tokenizer .*Metaspace.* is not implemented"),
        (changed(decoder={"type": "Metaspace"}), "decoder .*Metaspace.* is not implemented"),
        (
            lambda said: said["post_processor"]["single"].append({"SpecialToken": {"id": "</s>"}}),
            "post_processor: .* text",
        ),
        (lambda said: said["post_processor"]["single"][0].update(SpecialToken={"id": "<x>"}), "post_processor: .*<x>"),
    ],
)
def test_what_is_not_known_of_sentencepiece_is_refused_by_name(
    change: Callable[[Any], None], says: str, tmp_path: Path
) -> None:
    said = json.loads(byte_fallback("plain").to_str())
    change(said)
    (tmp_path / "tokenizer.json").write_text(json.dumps(said))

    with pytest.raises(ModelFileError, match=says):
        read_tokenizer_json(tmp_path)


@pytest.mark.parametrize(("style", "is_refused"), [("prefixed", True), ("metaspace", False), ("plain", False)])
def test_added_tokens_that_are_found_behind_spaces_alone_are_refused(
    style: str, is_refused: bool, tmp_path: Path
) -> None:
    made = byte_fallback(style)
    made.add_tokens([AddedToken("<c>", normalized=True)])
    finds = "<c>" in made.encode("hello<c>", add_special_tokens=False).tokens
    write_folder(tmp_path, made)

    assert is_refused == (not finds)
    if is_refused:
        with pytest.raises(ModelFileError, match="added_tokens: normalized of '<c>' is not implemented"):
            read_tokenizer_json(tmp_path)
    else:
        read_tokenizer_json(tmp_path)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"eos_token": "<none>"}, "lacks '<none>', the eos_token"),
        ({"eos_token": 3}, "eos_token is no token"),
        ({"add_eos_token": True}, "add_eos_token is not implemented"),
        ({"add_bos_token": 1}, "add_bos_token is not a truth value"),
        ({"add_bos_token": True}, "bos_token is missing"),
        ({"add_prefix_space": True}, "add_prefix_space of tokenizer_config.json is not implemented"),
    ],
)
def test_settings_that_are_not_implemented_are_refused(settings: dict[str, Any], says: str, tmp_path: Path) -> None:
    write_folder(tmp_path, byte_level("gpt-2"), settings)

    with pytest.raises(ModelFileError, match=says):
        read_tokenizer_json(tmp_path)


def test_a_beginning_that_is_not_bos_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, byte_fallback("plain"), {"bos_token": "</s>"})

    with pytest.raises(ModelFileError, match="another token than bos_token"):
        read_tokenizer_json(tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not valid JSON"),
        (b"\xff", "is not valid JSON"),
        (b"[" * 100_000, "nests too deeply"),
        (b'{"model": 1, "model": 2}', "a key occurs twice"),
        (b'{"model": NaN}', "is not valid JSON"),
        (b'{"model": "\\ud800"}', "is not valid JSON"),
        (b"[]", "is not an object"),
    ],
)
def test_what_is_no_usable_json_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)

    with pytest.raises(ModelFileError, match=says):
        read_tokenizer_json(tmp_path)


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_json, "MAX_TOKENIZER_BYTES", 10)
    write_folder(tmp_path, byte_level("gpt-2"))

    with pytest.raises(ModelFileError, match="bytes long; allowed are 10"):
        read_tokenizer_json(tmp_path)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"tokenizer\.json: cannot be opened"):
        read_tokenizer_json(tmp_path)
