"""What a caller may ask of a text's form, checked before any grammar library sees it.

Knows sizes and the features that are refused; knows no tokens. Always: a message names the place and the problem, and
repeats nothing of the value but the names of keywords.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from model.decoding.constraint.errors import ConstraintError
from model.decoding.constraint.schema_rules import check_schema

ConstraintKind = Literal["json_schema", "regex", "choice", "grammar"]

MAX_SOURCE_BYTES: Mapping[ConstraintKind, int] = {
    "json_schema": 64 << 10,
    "regex": 16 << 10,
    "choice": 64 << 10,
    "grammar": 64 << 10,
}
MAX_CHOICES = 1024

# What may stand between two pieces of JSON: a space, or a new line with its indentation. Without a bound a model may
# write nothing else.
JSON_WHITESPACE = r" |\n {0,32}"

_LARK_TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"|/(?![/*])(?:[^/\\\n]|\\.)+/|//[^\n]*|#[^\n]*')
"""What stands in a Lark grammar and is no syntax: strings, regular expressions and comments."""
_LARK_REFUSED = (
    (re.compile(r"<"), "control tokens cannot be named: they add nothing to the text"),
    (re.compile(r"%llguidance\b"), "%llguidance options are not supported"),
    (re.compile(r"\b(?:max_tokens|stop|suffix|temperature|stop_capture)\s*="), "this attribute is not supported"),
)


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    """One constraint in its canonical form: equal specs compile to the same grammar."""

    kind: ConstraintKind
    source: str | tuple[str, ...]
    """The schema as compact JSON with keys in their order, which is the order of properties; a regular expression; a
    Lark grammar; or the texts to choose from."""

    @property
    def source_bytes(self) -> int:
        texts = self.source if isinstance(self.source, tuple) else (self.source,)
        return sum(len(text.encode()) for text in texts)

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any]) -> "ConstraintSpec":
        """Raises ConstraintError for a schema that is too large or holds what is not supported."""
        source = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        _check_size("json_schema", len(source.encode()))
        check_schema(schema, "json_schema")
        return cls("json_schema", source)

    @classmethod
    def regex(cls, pattern: str) -> "ConstraintSpec":
        """The whole text matches. Raises ConstraintError for a pattern that is too long."""
        _check_size("regex", len(pattern.encode()))
        return cls("regex", pattern)

    @classmethod
    def choice(cls, texts: tuple[str, ...]) -> "ConstraintSpec":
        """Raises ConstraintError for no text, for too many, and for one that stands twice."""
        if not texts:
            raise ConstraintError("there must be a text to choose", code="empty", field="choice")
        if len(texts) > MAX_CHOICES:
            raise ConstraintError(f"there are more than {MAX_CHOICES} texts", code="too_many", field="choice")
        _check_size("choice", sum(len(text.encode()) for text in texts))
        seen: set[str] = set()
        for index, text in enumerate(texts):
            if text in seen:
                raise ConstraintError("the same text stands before", code="invalid_value", field=f"choice.{index}")
            seen.add(text)
        return cls("choice", texts)

    @classmethod
    def grammar(cls, lark: str) -> "ConstraintSpec":
        """Raises ConstraintError for a grammar that is too large, or whose language depends on more than its text."""
        _check_size("grammar", len(lark.encode()))
        if not lark.strip():
            raise ConstraintError("there must be a rule named start", code="empty", field="grammar")
        _check_lark(lark)
        return cls("grammar", lark)


def _check_size(kind: ConstraintKind, size: int) -> None:
    most = MAX_SOURCE_BYTES[kind]
    if size > most:
        raise ConstraintError(f"it has more than {most} bytes", code="too_long", field=kind)


def _check_lark(lark: str) -> None:
    bare = _LARK_TEXT.sub(lambda match: " " * len(match[0]), lark)
    for pattern, problem in _LARK_REFUSED:
        if found := pattern.search(bare):
            line, column = _position(lark, found.start())
            raise ConstraintError(problem, code="unsupported_value", field="grammar", line=line, column=column)
    for found in re.finditer(r"%json\s*", bare):
        try:
            schema, _ = json.JSONDecoder().raw_decode(lark, found.end())
        except (ValueError, RecursionError):
            continue  # the library says where
        line, _ = _position(lark, found.start())
        check_schema(schema, "grammar", line=line)


def _position(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset, both from 1."""
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1
