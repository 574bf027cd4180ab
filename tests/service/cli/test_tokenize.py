"""`tane tokenize` shows what the tokenizer of a model file does."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from model.loading.gguf import load_gguf
from model.tokenizer import Tokenizer
from service.cli.main import main


def tokenize(model: Path, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["tokenize", "--model", str(model), *arguments], input=stdin)


def tokenizer_of(model: Path) -> Tokenizer:
    return Tokenizer(load_gguf(model).vocabulary)


def test_json_holds_ids_and_pieces(tiny_gguf: Path) -> None:
    printed = json.loads(tokenize(tiny_gguf, "the seed é", "--json").stdout)

    assert tokenizer_of(tiny_gguf).encode("the seed é") == printed["token_ids"]
    assert "the seed é".encode() == b"".join(bytes(piece["bytes"]) for piece in printed["pieces"])


def test_the_table_has_a_row_for_each_token(tiny_gguf: Path) -> None:
    ids = tokenizer_of(tiny_gguf).encode("the seed")

    result = tokenize(tiny_gguf, "the seed")

    assert f"{len(ids)} tokens" in result.stdout
    assert all(str(token_id) in result.stdout for token_id in ids)


def test_the_text_is_shown_whole_where_tokens_cut_a_character(tiny_gguf: Path) -> None:
    assert "🎉\n" == tokenize(tiny_gguf, "🎉").stdout.splitlines(keepends=True)[0].replace(" ", "")


def test_bytes_are_shown_where_a_piece_is_no_text(tiny_gguf: Path) -> None:
    assert "<f0 9f>" in tokenize(tiny_gguf, "🎉").stdout


def test_control_characters_do_not_reach_the_terminal(tiny_gguf: Path) -> None:
    result = tokenize(tiny_gguf, "a\x1b[31m\x9bb")

    assert not {"\x1b", "\x9b"} & set(result.stdout)


def test_what_looks_like_a_control_token_stays_text(tiny_gguf: Path) -> None:
    ids = json.loads(tokenize(tiny_gguf, "<|im_end|>", "--json").stdout)["token_ids"]

    assert not set(ids) & load_gguf(tiny_gguf).vocabulary.control_token_ids


def test_characters_that_the_output_cannot_hold_are_escaped(tiny_gguf: Path) -> None:
    result = CliRunner(charset="ascii").invoke(main, ["tokenize", "--model", str(tiny_gguf), "--", "é"])

    assert (0, "\\xe9") == (result.exit_code, result.stdout.splitlines()[0].strip())


def test_text_may_come_from_a_pipe(tiny_gguf: Path) -> None:
    assert tokenize(tiny_gguf, "seed", "--json").stdout == tokenize(tiny_gguf, "--json", stdin="seed\n").stdout


def test_ids_are_decoded(tiny_gguf: Path) -> None:
    ids = tokenizer_of(tiny_gguf).encode("the seed")

    result = tokenize(tiny_gguf, "--ids", ", ".join(map(str, ids)))

    assert (0, "the seed\n") == (result.exit_code, result.stdout)


def test_ids_are_decoded_to_json(tiny_gguf: Path) -> None:
    assert {"text": "<|im_end|>"} == json.loads(tokenize(tiny_gguf, "--ids", "2", "--json").stdout)


def test_an_unknown_id_is_refused(tiny_gguf: Path) -> None:
    result = tokenize(tiny_gguf, "--ids", "320")

    assert 2 == result.exit_code
    assert "token id outside 0 … 319" in result.stderr


def test_ids_that_are_no_numbers_are_refused(tiny_gguf: Path) -> None:
    result = tokenize(tiny_gguf, "--ids", "one")

    assert 2 == result.exit_code
    assert "--ids" in result.stderr


def test_text_and_ids_together_are_refused(tiny_gguf: Path) -> None:
    assert 2 == tokenize(tiny_gguf, "seed", "--ids", "1").exit_code
