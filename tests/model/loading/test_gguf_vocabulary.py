"""Vocabularies of GGUF files: read as they stand, and written so that they are read again as the same."""

import math
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.loading.checkpoint import ModelFileError, Vocabulary
from model.loading.gguf import load_description
from model.loading.gguf_file import write_gguf_file
from model.loading.gguf_metadata import Metadata
from model.loading.gguf_reader import read_header
from model.loading.gguf_vocabulary import read_vocabulary
from model.loading.model_file import ModelFile
from model.loading.tokenizer_json import read_tokenizer_json
from model.tokenizer import Tokenizer
from tests.memory_checkpoint import memory_checkpoint
from tests.model.loading.gguf_bytes import ARRAY, F32, Draft, flag, i32s, text, texts, u32
from tests.tiny_vocabulary import PIECES, tiny_pieces, tiny_vocabulary
from tests.tokenizer_files import byte_fallback, byte_level, write_folder


def f32s(values: tuple[float, ...]) -> bytes:
    return struct.pack(f"<IIQ{len(values)}f", ARRAY, F32, len(values), *values)


BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
TOKENS = ("<unk>", "<s>", "</s>", *BYTES, "▁", "a", "▁a", "<b>", "nothing")
TYPES = (2, 3, 3, *[6] * 256, 1, 1, 1, 4, 5)
SCORES = (0.0,) * 259 + (-1.0, -2.0, -0.5, 0.0, 0.0)


def draft() -> Draft:
    """What a file of Llama 2 says about text, with less of it."""
    return Draft(
        keys=[
            ("tokenizer.ggml.model", text("llama")),
            ("tokenizer.ggml.tokens", texts(TOKENS)),
            ("tokenizer.ggml.token_type", i32s(TYPES)),
            ("tokenizer.ggml.scores", f32s(SCORES)),
            ("tokenizer.ggml.bos_token_id", u32(1)),
            ("tokenizer.ggml.eos_token_id", u32(2)),
        ],
        tensors=[],
    )


def read(draft: Draft, folder: Path) -> Vocabulary:
    file = ModelFile(draft.write(folder / "vocabulary.gguf"))
    return read_vocabulary(Metadata(file, read_header(file).metadata))


def test_a_vocabulary_of_sentencepiece_is_read_as_it_stands(tmp_path: Path) -> None:
    expected = Vocabulary(
        pre_tokenizer="",
        tokens=TOKENS,
        merges=(),
        control_token_ids=frozenset({0, 1, 2}),
        user_defined_token_ids=frozenset({262}),
        eos_token_ids=frozenset({2}),
        bos_token_id=1,
        adds_bos=True,
        form="sentencepiece",
        scores=SCORES,
        unused_token_ids=frozenset({263}),
        byte_token_ids=frozenset(range(3, 259)),
        adds_space_prefix=True,
    )

    assert expected == read(draft(), tmp_path)


@pytest.mark.parametrize(("key", "field"), [("add_space_prefix", "adds_space_prefix"), ("add_bos_token", "adds_bos")])
def test_a_file_may_say_that_nothing_is_put_before_a_text(key: str, field: str, tmp_path: Path) -> None:
    assert not getattr(read(draft().set(f"tokenizer.ggml.{key}", flag(0)), tmp_path), field)


@pytest.mark.parametrize("key", ["eot", "eom"])
def test_other_ends_of_a_text_are_ends(key: str, tmp_path: Path) -> None:
    assert frozenset({0, 2}) == read(draft().set(f"tokenizer.ggml.{key}_token_id", u32(0)), tmp_path).eos_token_ids


@pytest.mark.parametrize("key", ["merges", "pre"])
def test_what_other_forms_need_changes_nothing(key: str, tmp_path: Path) -> None:
    value = texts(("a a",)) if key == "merges" else text("default")

    assert read(draft(), tmp_path) == read(draft().set(f"tokenizer.ggml.{key}", value), tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("scores", f32s(SCORES[1:]), "has 263 entries for 264 tokens"),
        ("scores", f32s((math.nan, *SCORES[1:])), "holds a NaN or an infinity"),
        ("scores", f32s((-math.inf, *SCORES[1:])), "holds a NaN or an infinity"),
        ("scores", i32s(TYPES), "is not an array of floating-point numbers"),
        ("token_type", i32s((7, *TYPES[1:])), "holds the type 7; allowed are 1 to 6"),
        ("token_type", i32s((6, *TYPES[1:])), "calls '<unk>' a byte"),
        ("bos_token_id", u32(264), "is 264; allowed are 0 to 263"),
        ("add_space_prefix", u32(1), "is not a truth value"),
        ("model", text("t5"), "is 't5'; supported are 'gpt2', 'llama'"),
    ],
)
def test_a_vocabulary_that_is_wrong_is_refused(key: str, value: bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=f"tokenizer.ggml.{key} {says}"):
        read(draft().set(f"tokenizer.ggml.{key}", value), tmp_path)


def test_scores_are_needed(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"tokenizer\.ggml\.scores is missing"):
        read(draft().remove("tokenizer.ggml.scores"), tmp_path)


@pytest.mark.parametrize(
    ("name", "expected"), [("llama-bpe", True), ("tekken", True), ("qwen2", False), ("gpt-2", False)]
)
def test_whether_merges_are_ignored_is_known_by_the_pre_tokenizer(name: str, expected: bool, tmp_path: Path) -> None:
    keys = [
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text(name)),
        ("tokenizer.ggml.tokens", texts(("<end>", "a", "b", "ab"))),
        ("tokenizer.ggml.token_type", i32s((3, 1, 1, 1))),
        ("tokenizer.ggml.merges", texts(("a b",))),
        ("tokenizer.ggml.bos_token_id", u32(0)),
    ]

    assert expected == read(Draft(keys=keys, tensors=[]), tmp_path).ignores_merges


def rewritten(vocabulary: Vocabulary, folder: Path) -> Vocabulary:
    """The vocabulary after it was written into a file without weights and read again."""
    checkpoint = memory_checkpoint()
    config = replace(checkpoint.config, vocabulary_size=len(vocabulary.tokens))
    path = folder / "written.gguf"
    path.unlink(missing_ok=True)
    write_gguf_file(path, replace(checkpoint, vocabulary=vocabulary, config=config), {})
    return load_description(path)[1].vocabulary


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"adds_bos": True},
        {"adds_space_prefix": False},
        {"user_defined": ("<b>", "\n\n")},
        {"unused": ("nothing",)},
        {"scores": [-0.1 * i for i in range(len(PIECES))]},
    ],
)
def test_a_vocabulary_of_sentencepiece_is_written_and_read_again_as_the_same(
    change: dict[str, Any], tmp_path: Path
) -> None:
    written = tiny_pieces(**change)
    single = struct.unpack(f"<{len(written.scores)}f", struct.pack(f"<{len(written.scores)}f", *written.scores))
    vocabulary = replace(written, scores=single)

    assert vocabulary == rewritten(vocabulary, tmp_path)


@pytest.mark.parametrize("name", ["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "default"])
@pytest.mark.parametrize("ignores_merges", [False, True])
def test_a_byte_level_vocabulary_is_written_and_read_again_as_the_same(
    name: str, ignores_merges: bool, tmp_path: Path
) -> None:
    vocabulary = tiny_vocabulary(pre_tokenizer=name, user_defined=("<tool>",), bos_token_id=1)
    vocabulary = replace(vocabulary, ignores_merges=ignores_merges, eos_token_ids=frozenset({0, 1, 2}))

    assert vocabulary == rewritten(vocabulary, tmp_path)


@pytest.mark.parametrize("style", ["prefixed", "metaspace", "plain"])
def test_a_byte_fallback_vocabulary_is_written_and_read_again_as_the_same(style: str, tmp_path: Path) -> None:
    made = byte_fallback(style)
    vocabulary = read_tokenizer_json(write_folder(tmp_path, made), made.get_vocab_size() + 3)

    assert vocabulary == rewritten(vocabulary, tmp_path)


def test_a_padded_vocabulary_is_written_and_read_again_as_the_same(tmp_path: Path) -> None:
    vocabulary = read_tokenizer_json(write_folder(tmp_path, byte_level("qwen2")), 512)

    assert vocabulary == rewritten(vocabulary, tmp_path)
    assert Tokenizer(vocabulary).encode("The seed") == Tokenizer(rewritten(vocabulary, tmp_path)).encode("The seed")


def test_more_ends_than_a_file_can_name_are_refused(tmp_path: Path) -> None:
    vocabulary = replace(tiny_vocabulary(), eos_token_ids=frozenset({0, 1, 2, 3}))

    with pytest.raises(ModelFileError, match="4 ids end a text; a GGUF file names 3 at most"):
        rewritten(vocabulary, tmp_path)
