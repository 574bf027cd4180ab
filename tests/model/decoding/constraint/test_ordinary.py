"""What people usually write is accepted and kept: regular expressions of many kinds, and schemas that are large."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from model.decoding.constraint import ConstraintCompiler, ConstraintError, ConstraintSpec
from model.loading.gguf import load_gguf
from model.tokenizer import Tokenizer
from tests.constrained import random_ids, text_of
from tests.ordinary_patterns import PATTERNS
from tests.random_schemas import Schema
from tests.tiny_vocabulary import tiny_vocabulary

TINY = Tokenizer(tiny_vocabulary())
COMPILER = ConstraintCompiler(TINY)
LETTER = {"type": "string"}


@cache
def real(path: Path) -> tuple[Tokenizer, ConstraintCompiler]:
    tokenizer = Tokenizer(load_gguf(path).vocabulary)
    return tokenizer, ConstraintCompiler(tokenizer)


@cache
def foreign(tokenizer: Tokenizer) -> tuple[int, ...]:
    """What holds more than printable ASCII and new lines: of other characters `re` and Rust disagree in places."""
    usual = bytes((0x0A, *range(0x20, 0x7F)))
    return tuple(i for i in range(tokenizer.vocabulary_size) if tokenizer.token_bytes(i).translate(None, usual))


def required(part: Schema, count: int) -> Schema:
    names = [f"property_{number}" for number in range(count)]
    return {
        "type": "object",
        "properties": dict.fromkeys(names, part),
        "required": names,
        "additionalProperties": False,
    }


LARGE: dict[str, Schema] = {
    "strings": required(LETTER, 120),
    "enums": required({"enum": ["red", "green", "blue"]}, 60),
    "nested": required(required(LETTER, 6), 6),
    "array": {"type": "array", "items": required(LETTER, 4), "minItems": 20},
    "patterns": required({"type": "string", "pattern": "([a-z]+ ){3}"}, 3),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_ordinary_pattern_is_accepted_and_kept(pattern: str) -> None:
    compiled = COMPILER.compile(ConstraintSpec.regex(pattern), foreign(TINY))
    limit = compiled.fitting(120).spelled.counts[0] + 20

    for seed in range(2):
        assert re.fullmatch(pattern, text_of(TINY, random_ids(compiled, limit, seed)))


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_ordinary_pattern_fits_60_tokens_of_the_default_model(default_model_path: Path, pattern: str) -> None:
    tokenizer, compiler = real(default_model_path)
    compiled = compiler.compile(ConstraintSpec.regex(pattern), foreign(tokenizer))

    for seed in range(5):
        assert re.fullmatch(pattern, text_of(tokenizer, random_ids(compiled, 60, seed)))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_ordinary_pattern_may_be_that_of_a_string(pattern: str) -> None:
    schema = {"type": "string", "pattern": f"^{pattern}$"}
    compiled = COMPILER.compile(ConstraintSpec.json_schema(schema))

    assert re.fullmatch(pattern, json.loads(text_of(TINY, random_ids(compiled, 200, 1))))


@pytest.mark.parametrize("name", LARGE)
def test_a_large_schema_is_accepted(name: str) -> None:
    compiled = COMPILER.compile(ConstraintSpec.json_schema(LARGE[name]))

    assert json.loads(compiled.fitting(4000).spelled.text)


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        ("grammar", "start: /[^\\n]/ start", "no_completion_found"),
        ("json_schema", {"type": "array", "minItems": 1_000_000}, "no_completion_found"),
        ("regex", "(x{1000}){1000}", "grammar_too_complex"),
    ],
)
def test_a_search_that_gave_up_says_so_and_no_more(kind: str, value: Any, code: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        COMPILER.compile(getattr(ConstraintSpec, kind)(value))

    assert code == caught.value.code
