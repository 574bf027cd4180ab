"""Which constraints are refused, with which code, and where the reason stands."""

from typing import Any

import pytest

from model.decoding.constraint import ConstraintCompiler, ConstraintError, ConstraintSpec
from model.decoding.constraint.spec import MAX_CHOICES, MAX_SOURCE_BYTES
from model.tokenizer import Tokenizer
from tests.random_schemas import Schema
from tests.tiny_vocabulary import tiny_vocabulary

COMPILER = ConstraintCompiler(Tokenizer(tiny_vocabulary()))


TERMINALS = "start: A9\nA0: /x/\n" + "".join(f"A{i}: {f'A{i - 1} ' * 10}\n" for i in range(1, 10))
"""A milliard letters in ten lines; in lower case they are rules."""


ENDLESS = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}


def refusal(kind: str, value: Any) -> ConstraintError:
    with pytest.raises(ConstraintError) as caught:
        COMPILER.compile(getattr(ConstraintSpec, kind)(value))
    return caught.value


def nested(depth: int) -> Schema:
    schema: Schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def with_part(part: Schema) -> Schema:
    return {"type": "object", "properties": {"a": {"anyOf": [part, {"type": "null"}]}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        ("regex", "ab(", "invalid_grammar"),
        ("regex", "(?=a)", "invalid_grammar"),
        ("regex", r"[^\s\S]", "invalid_grammar"),
        ("regex", "(x{1000}){1000}", "grammar_too_complex"),
        ("regex", "(" * 3000 + "a" + ")" * 3000, "invalid_grammar"),
        ("regex", "a" * (MAX_SOURCE_BYTES["regex"] + 1), "too_long"),
        ("json_schema", {"$ref": "#"}, "invalid_grammar"),
        ("json_schema", ENDLESS, "no_completion_found"),
        ("json_schema", nested(100), "grammar_too_complex"),
        ("json_schema", {"enum": ["x" * 50] * 2000}, "too_long"),
        ("json_schema", {"type": "string", "enum": [1]}, "invalid_grammar"),
        ("json_schema", {"type": "array", "minItems": 1_000_000}, "no_completion_found"),
        ("json_schema", {"type": "integer", "multipleOf": 1_000_003}, "grammar_too_complex"),
        ("json_schema", {"properties": {f"p{i}": {} for i in range(1001)}}, "grammar_too_complex"),
        ("choice", (), "empty"),
        ("choice", ("a", "b", "a"), "invalid_value"),
        ("choice", tuple(map(str, range(MAX_CHOICES + 1))), "too_many"),
        ("choice", ("a" * 40_000, "b" * 40_000), "too_long"),
        ("grammar", " \n", "empty"),
        ("grammar", "start: missing", "invalid_grammar"),
        ("grammar", 'start: "x', "invalid_grammar"),
        ("grammar", 'start: start "x"', "invalid_grammar"),
        ("grammar", 'start: "x" start', "grammar_too_complex"),
        ("grammar", 'start: "x"{100000}', "grammar_too_complex"),
        ("grammar", TERMINALS, "grammar_too_complex"),
        ("grammar", TERMINALS.lower(), "grammar_too_complex"),
        ("grammar", "start: " + "(" * 3000 + '"a"' + ")" * 3000, "invalid_grammar"),
        ("grammar", "x" * (MAX_SOURCE_BYTES["grammar"] + 1), "too_long"),
    ],
)  # fmt: skip
def test_a_constraint_that_cannot_be_used_is_refused(kind: str, value: Any, code: str) -> None:
    error = refusal(kind, value)

    assert (code, f"constraint.{kind}") == (error.code, error.param.removesuffix(".2"))


@pytest.mark.parametrize(
    ("part", "code", "place"),
    [
        ({"$ref": "https://example.org/a.json"}, "remote_reference", "$ref"),
        ({"$ref": "file:///etc/passwd"}, "remote_reference", "$ref"),
        ({"type": "nope"}, "invalid_value", "type"),
        ({"type": ["string", "nope"]}, "invalid_value", "type"),
        ({"type": "array", "uniqueItems": True}, "unsupported_value", "uniqueItems"),
        ({"not": {"type": "string"}}, "unsupported_value", "not"),
        ({"x-guidance": {"lenient": True}}, "unsupported_value", "x-guidance"),
        ({"type": "object", "minProperties": 3}, "unsupported_value", "minProperties"),
        ({"type": "integer", "multipleOf": 0}, "invalid_value", "multipleOf"),
        ({"type": "string", "format": "color"}, "unsupported_value", "format"),
        ({"type": "string", "format": "unknown"}, "unsupported_value", "format"),
        ({"type": "string", "pattern": "ab("}, "invalid_grammar", "pattern"),
        ({"type": "string", "pattern": r"\bfoo"}, "unsupported_value", "pattern"),
        ({"type": "string", "pattern": "(x{1000}){1000}"}, "grammar_too_complex", "pattern"),
        ({"type": "string", "pattern": 7}, "invalid_value", "pattern"),
        ({"enum": []}, "invalid_value", "enum"),
        ({"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 5}]}, "invalid_grammar", "oneOf"),
        ({"type": "string", "nullable": True}, "unsupported_value", "nullable"),
        ({"type": "string", "minlength": 3}, "unsupported_value", "minlength"),
    ],
)
def test_a_refused_part_of_a_schema_is_named_by_its_path(part: Schema, code: str, place: str) -> None:
    error = refusal("json_schema", with_part(part))

    assert (code, f"constraint.json_schema.properties.a.anyOf.0.{place}") == (error.code, error.param)


def test_a_property_may_have_the_name_of_a_refused_keyword() -> None:
    schema = {"type": "object", "properties": {"not": {"type": "null"}, "if": {"const": "not"}}, "required": ["not"]}

    COMPILER.compile(ConstraintSpec.json_schema(schema))


def test_a_name_that_is_not_fit_to_be_repeated_is_left_out_of_the_path() -> None:
    error = refusal("json_schema", {"properties": {"<script>": {"not": {}}}})

    assert "constraint.json_schema.properties.?.not" == error.param


@pytest.mark.parametrize(
    ("kind", "value", "position"),
    [
        ("regex", "ab(", (1, 3)),
        ("regex", "abc(?=a)", (1, 4)),
        ("grammar", 'start: first second\nfirst: "a"\nsecond: missing\n', (3, 9)),
        ("grammar", 'start: "a" <|end|>', (1, 12)),
        ("grammar", '// text\n%llguidance {"allow_invalid_utf8": true}\nstart: /.*/', (2, 1)),
        ("grammar", 'start: a\na[max_tokens=3]: /x*/', (2, 3)),
    ],
)  # fmt: skip
def test_the_position_of_what_is_wrong_is_told(kind: str, value: str, position: tuple[int, int]) -> None:
    error = refusal(kind, value)

    assert position == (error.line, error.column)
    assert f"line {position[0]}, column {position[1]}" in str(error)


def test_what_a_grammar_only_says_in_quotes_is_not_refused() -> None:
    COMPILER.compile(ConstraintSpec.grammar('start: "<max_tokens=3>" /<b>[a-z]+/ // <|end|>\n'))


def test_a_schema_inside_a_grammar_keeps_the_rules_of_schemas() -> None:
    error = refusal("grammar", 'start: "a"\n  | %json {"$ref": "http://example.org/b"}')

    assert ("remote_reference", "constraint.grammar.$ref", 2) == (error.code, error.param, error.line)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("regex", "canary7f3a("),
        ("json_schema", {"type": "string", "format": "canary7f3a"}),
        ("json_schema", {"type": "canary7f3a"}),
        ("json_schema", {"$ref": "#/$defs/canary7f3a"}),
        ("json_schema", {"$ref": "canary7f3a"}),
        ("grammar", 'start: canary7f3a "canary7f3a"'),
        ("grammar", 'start: %json {"type": "string", "pattern": "canary7f3a("}'),
        ("choice", ("canary7f3a", "canary7f3a")),
    ],
)
def test_a_refused_value_is_never_repeated(kind: str, value: Any) -> None:
    assert "7f3a" not in str(refusal(kind, value))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("regex", "(a+)+b"),
        ("regex", "foo**"),
        ("regex", ""),
        ("regex", "^a$"),
        ("regex", "a\nb/c"),
        ("regex", r"(?s).*END"),
        ("regex", r"\S+@\S+"),
        ("regex", "|".join(f"word{i}" for i in range(1500))),
        ("json_schema", {}),
        ("json_schema", nested(20)),
        ("json_schema", {"type": "string", "pattern": "[0-9]{3}"}),
        ("json_schema", {"type": "string", "minLength": 800}),
        ("json_schema", {"enum": [f"value {i}" for i in range(3000)]}),
        ("json_schema", {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(200)}}),
        ("json_schema", {"type": "array", "items": {"$ref": "#"}}),
        ("choice", ("",)),
        ("choice", ('a"b\\\n', "é\x01\u2028", "<|end|>")),
        ("grammar", 'start: "x" start | "y"'),
        ("grammar", 'start: start start | "x"'),
        ("grammar", "%import common.NUMBER\nstart: NUMBER"),
    ],
)
def test_an_odd_constraint_that_can_be_met_is_accepted(kind: str, value: Any) -> None:
    compiled = COMPILER.compile(getattr(ConstraintSpec, kind)(value))

    assert 1100 > compiled.begin(1100).left - 1 >= 0


def test_equal_constraints_are_equal_once_compiled() -> None:
    spec = ConstraintSpec.regex("a+")

    assert COMPILER.compile(spec) == COMPILER.compile(ConstraintSpec.regex("a+"))
    assert COMPILER.compile(spec) != COMPILER.compile(ConstraintSpec.regex("a*"))
    assert COMPILER.compile(spec) != COMPILER.compile(spec, (5,))


def test_the_innermost_part_that_nothing_fits_is_named() -> None:
    schema = {"type": "object", "properties": {"a": {"minLength": 5, "maxLength": 2, "type": "string"}}}

    error = refusal("json_schema", schema | {"required": ["a"]})

    assert ("invalid_grammar", "constraint.json_schema.properties.a") == (error.code, error.param)


def test_a_column_is_inside_the_pattern() -> None:
    error = refusal("json_schema", with_part({"type": "string", "pattern": "[a-z]+ab("}))

    assert (1, 9) == (error.line, error.column)


@pytest.mark.parametrize("pattern", [r"\bfoo\b", r"\w+\b \w+", r"a\Bb"])
def test_word_boundaries_are_refused_as_such(pattern: str) -> None:
    error = refusal("regex", pattern)

    assert ("unsupported_value", "constraint.regex", None) == (error.code, error.param, error.column)
    assert "word boundaries" in str(error)


def test_a_keyword_that_expects_a_number_is_named() -> None:
    assert "'minLength'" in str(refusal("json_schema", {"type": "string", "minLength": "x"}))


def test_a_schema_as_libraries_write_it_is_accepted() -> None:
    """With titles, defaults, examples, discriminators and the rest that changes no document."""
    cat = {
        "type": "object",
        "title": "Cat",
        "properties": {"kind": {"const": "cat", "title": "Kind", "type": "string", "default": "cat"}},
        "required": ["kind"],
        "additionalProperties": False,
    }
    dog = {
        "type": "object",
        "title": "Dog",
        "properties": {"kind": {"const": "dog", "title": "Kind", "type": "string"}},
        "required": ["kind"],
        "additionalProperties": False,
    }
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.org/pet.json",
        "$defs": {"Cat": cat, "Dog": dog},
        "title": "Pet",
        "description": "An animal.",
        "type": "object",
        "properties": {
            "pet": {
                "anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
                "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}},
            },
            "since": {"type": "string", "format": "date", "examples": ["2020-02-02"], "deprecated": True},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "readOnly": True},
            "key": {"type": "string", "writeOnly": True, "$comment": "secret", "x-order": 3},
        },
        "required": ["pet", "since", "note", "key"],
        "additionalProperties": False,
    }

    assert COMPILER.compile(ConstraintSpec.json_schema(schema)).fitting(400)
