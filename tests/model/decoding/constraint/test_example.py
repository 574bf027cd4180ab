"""The shortest text of a regular expression, read off its syntax."""

import re

import pytest

from model.decoding.constraint.example import MAX_CHARACTERS, example_of
from tests.ordinary_patterns import PATTERNS


def text(pattern: str) -> str:
    example = example_of(pattern)
    assert example is not None
    return example.text


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_ordinary_patterns_example_matches(pattern: str) -> None:
    assert re.fullmatch(pattern, text(pattern))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", ""),
        ("abc|x|y", "x"),
        ("a{3}b?c+?", "aaac"),
        ("foo**", "fo"),
        (r"^\Aa$\z", "a"),
        (r"(?i)(?P<name>ab)(?:c){2,}", "abcc"),
        (r"[]x]", "]"),
        (r"[^a\]A]", "1"),
        (r"\x41\u00e9\n", "Aé\n"),
        ("(?s).", "a"),
    ],
)
def test_the_shortest_text_is_read(pattern: str, expected: str) -> None:
    assert expected == text(pattern)


@pytest.mark.parametrize(
    "pattern", ["(", "a)", "*", "a{b", "[a", "(?=a)", r"\p{L}", r"\bfoo", "[a-z&&[^b]]", "(?x) a", "(" * 99 + ")" * 99]
)
def test_what_is_not_known_is_not_guessed(pattern: str) -> None:
    assert example_of(pattern) is None


def test_a_text_that_is_too_long_is_counted_and_not_made() -> None:
    example = example_of("((x{1000}){1000}){1000}")

    assert example is not None
    assert (10**9, "") == (example.size, example.text)


def test_a_short_alternative_of_a_long_one_is_made() -> None:
    assert "y" == text(f"(x{{{MAX_CHARACTERS}}}){{9}}|y")
