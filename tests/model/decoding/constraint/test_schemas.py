"""Documents drawn at random from a schema's masks, against an independent validator."""

import json
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from model.decoding.constraint import ConstraintCompiler, ConstraintError, ConstraintSpec
from model.decoding.constraint.formats import PATTERNS
from model.loading.gguf import load_gguf
from model.tokenizer import Tokenizer
from tests.constrained import random_ids, text_of
from tests.hostile_constraints import HOSTILE
from tests.random_schemas import Schema, random_schema
from tests.tiny_vocabulary import tiny_vocabulary

TINY = Tokenizer(tiny_vocabulary())
TINY_COMPILER = ConstraintCompiler(TINY)
LIMIT = 1500


@cache
def real_tokenizer(path: Path) -> Tokenizer:
    return Tokenizer(load_gguf(path).vocabulary)


@cache
def real_compiler(path: Path) -> ConstraintCompiler:
    return ConstraintCompiler(real_tokenizer(path))


def check(schema: Schema, text: str) -> None:
    """Raises ValidationError, formats included."""
    Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(json.loads(text))


def least(compiler: ConstraintCompiler, schema: Schema) -> int:
    """The smallest limit, by halving: what fits a limit fits a larger one."""
    compiled = compiler.compile(ConstraintSpec.json_schema(schema))
    low, high = 0, 4000
    while low + 1 < high:
        middle = (low + high) // 2
        try:
            compiled.fitting(middle)
        except ConstraintError:
            low = middle
        else:
            high = middle
    return high


@pytest.mark.parametrize("seed", range(24))
def test_random_bytes_fill_random_schemas(seed: int) -> None:
    schema = random_schema(seed)
    compiled = TINY_COMPILER.compile(ConstraintSpec.json_schema(schema))
    # Far more than the least, so that most of the text is drawn and not forced.
    limit = compiled.fitting(4000).spelled.counts[0] + 60

    ids = random_ids(compiled, limit, seed)

    assert len(ids) <= limit
    check(schema, text_of(TINY, ids))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(start, start + 20) for start in range(0, 200, 20)], ids=str)
def test_200_random_schemas_each_give_a_valid_document(default_model_path: Path, seeds: range) -> None:
    tokenizer, compiler = real_tokenizer(default_model_path), real_compiler(default_model_path)
    for seed in seeds:
        schema = random_schema(seed)
        compiled = compiler.compile(ConstraintSpec.json_schema(schema))
        shortest = compiled.fitting(LIMIT).spelled.counts[0]
        for limit in (shortest, shortest + 5, shortest + 200):
            ids = random_ids(compiled.renewed(), limit, seed)
            assert len(ids) <= limit
            check(schema, text_of(tokenizer, ids))


@pytest.mark.parametrize("format", PATTERNS)
def test_a_format_with_a_pattern_of_its_own_is_valid_for_others(format: str) -> None:
    schema = {"type": "string", "format": format}
    compiled = TINY_COMPILER.compile(ConstraintSpec.json_schema(schema))

    for seed in range(10):
        check(schema, text_of(TINY, random_ids(compiled, 300, seed)))


@pytest.mark.parametrize(
    ("format", "text", "valid"),
    [
        ("date", "2024-02-29", True),
        ("date", "2000-02-29", True),
        ("date", "1900-02-29", False),
        ("date", "2023-02-29", False),
        ("date", "2024-04-31", False),
        ("date", "0000-01-01", False),
        ("time", "23:59:59.5+01:30", True),
        ("time", "23:59:60Z", False),
        ("date-time", "2024-12-31T00:00:00Z", True),
        ("date-time", "2024-12-31 00:00:00Z", False),
        ("hostname", "a-b.example", True),
        ("hostname", "a-.example", False),
    ],
)
def test_dates_and_names_are_those_that_exist(format: str, text: str, valid: bool) -> None:
    constraint = TINY_COMPILER.compile(ConstraintSpec.json_schema({"type": "string", "format": format})).begin(100)
    drafts = TINY.encode(json.dumps(text))

    assert valid is (len(drafts) == constraint.accepts(drafts))


def test_a_documents_whitespace_is_bounded() -> None:
    constraint = TINY_COMPILER.compile(ConstraintSpec.json_schema({"type": "object"})).begin(100)

    assert constraint.accepts(TINY.encode('{\n  "a": 1\n}')) == len(TINY.encode('{\n  "a": 1\n}'))
    assert constraint.accepts(TINY.encode("{" + "\n" * 9)) < len(TINY.encode("{" + "\n" * 9))


def test_the_order_of_properties_is_the_schemas() -> None:
    properties = {"z": {"const": 1}, "a": {"const": 2}}
    ordered = TINY_COMPILER.compile(
        ConstraintSpec.json_schema(
            {"type": "object", "properties": properties, "required": ["a", "z"], "additionalProperties": False}
        )
    )

    assert ["z", "a"] == list(json.loads(text_of(TINY, random_ids(ordered, 60, 1))))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_constraint_is_compiled_or_refused(name: str) -> None:
    """After bounded work: how long that takes is measured by `python -m tests.bench.constraints`."""
    kind, value = HOSTILE[name]
    spec = getattr(ConstraintSpec, kind)(value)

    with suppress(ConstraintError):
        assert TINY_COMPILER.compile(spec).begin(4000).mask().any()


@pytest.mark.parametrize("seed", range(3))
def test_the_least_limit_is_met(seed: int) -> None:
    schema = random_schema(seed)
    limit = least(TINY_COMPILER, schema)
    compiled = TINY_COMPILER.compile(ConstraintSpec.json_schema(schema))

    check(schema, text_of(TINY, random_ids(compiled, limit, seed)))


def test_a_format_counts_wherever_a_schema_stands_and_nowhere_else() -> None:
    day = {"type": "string", "format": "date"}
    schema = {
        "type": "object",
        "properties": {"default": day, "format": {"const": {"format": "date"}}, "days": {"items": day, "minItems": 1}},
        "required": ["default", "format", "days"],
        "additionalProperties": False,
    }
    constraint = TINY_COMPILER.compile(ConstraintSpec.json_schema(schema)).begin(300)
    start = '{"default":"2023-02-2'

    assert len(TINY.encode(start)) + 1 == constraint.accepts(TINY.encode(start + "8"))
    assert len(TINY.encode(start)) == constraint.accepts(TINY.encode(start + "9"))
    assert constraint.accepts(TINY.encode('{"default":"2023-02-28","format":{"format":"date"}')) == len(
        TINY.encode('{"default":"2023-02-28","format":{"format":"date"}')
    )


@pytest.mark.parametrize(
    "class_", ['[^"]', r"[^\\]", r'[^"\\]', r'[^"\n]', r'[^\]"]', r"[\x00-!#-\U0010ffff]", "[^a]", r'["\n]', "[a-z]"]
)
@pytest.mark.parametrize("character", ['"', "\\", "b", "]"])
def test_a_class_of_a_pattern_means_the_same_inside_a_string(class_: str, character: str) -> None:
    schema = {"type": "string", "pattern": f"^x{class_}y$"}
    constraint = TINY_COMPILER.compile(ConstraintSpec.json_schema(schema)).begin(100)
    drafts = TINY.encode(json.dumps(f"x{character}y"))

    assert (re.fullmatch(class_, character) is not None) is (len(drafts) == constraint.accepts(drafts))
