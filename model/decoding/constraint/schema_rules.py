"""Which JSON schemas are refused before the grammar library sees them, and where in the schema the reason stands.

Knows JSON Schema 2020-12 and what llguidance makes of it. Always: what it makes is at least as strict as the schema, so
a keyword that it would ignore or weaken is refused by name; the work is linear in the size of the schema.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from model.decoding.constraint.errors import ConstraintError

MAX_DEPTH = 32
MAX_SUBSCHEMAS = 1000
"""Optional properties cost their square to compile."""
MAX_MULTIPLES = 2000
"""Sum of the `multipleOf`s, each without its decimal point and zeros: that many states an automaton needs."""

TYPES = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})
IN_MAPS = ("properties", "patternProperties", "$defs", "definitions")
IN_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE = ("items", "additionalProperties", "additionalItems")
_REFUSED = (
    "x-guidance",
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
)
_RULES = frozenset(
    {
        "$ref",
        "const",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "required",
        "type",
    }
)
_ANNOTATIONS = frozenset(
    {
        "$anchor",
        "$comment",
        "$id",
        "$schema",
        "$vocabulary",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "default",
        "deprecated",
        "description",
        "discriminator",
        "example",
        "examples",
        "externalDocs",
        "id",
        "readOnly",
        "title",
        "writeOnly",
        "xml",
    }
)
"""What says something to readers, and nothing about which documents are valid: of JSON Schema and of OpenAPI."""
KEYWORDS = _RULES | _ANNOTATIONS | {*IN_MAPS, *IN_LISTS, *SINGLE, *_REFUSED}
FORMATS = frozenset({"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"})
_NAME = re.compile(r"[A-Za-z0-9_$-]{1,64}")

Place = tuple[Any, str, int]
"""A subschema, its path and its depth."""


def check_schema(schema: Any, field: str, *, line: int | None = None) -> None:
    """Raise ConstraintError for the first thing that is not supported. The schema stands at `field` and `line`."""
    places: list[Place] = [(schema, field, 1)]
    count, multiples = 0, 0
    while places:
        part, path, depth = places.pop()
        count += 1
        if count > MAX_SUBSCHEMAS:
            raise ConstraintError(
                f"there are more than {MAX_SUBSCHEMAS} subschemas", code="grammar_too_complex", field=field, line=line
            )
        if depth > MAX_DEPTH:
            raise ConstraintError(
                f"subschemas are nested deeper than {MAX_DEPTH}", code="grammar_too_complex", field=field, line=line
            )
        if isinstance(part, Mapping):
            _check_part(part, path, line)
            multiples += _multiple(part, path, line)
            places.extend(reversed(list(_subschemas(part, path, depth + 1))))
    if multiples > MAX_MULTIPLES:
        raise ConstraintError(
            f"multipleOf is too large: together at most {MAX_MULTIPLES}",
            code="grammar_too_complex",
            field=field,
            line=line,
        )


def patterns_of(schema: Any, field: str) -> Iterator[tuple[str, str]]:
    """Every `pattern` in a schema that was checked and stands at `field`, and its path, in the schema's order."""
    for part, path in parts_of(schema, field):
        if "pattern" in part:
            yield part["pattern"], f"{path}.pattern"


def parts_of(schema: Any, field: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Every subschema that is an object, and its path: what stands around others before them."""
    places: list[Place] = [(schema, field, 1)]
    while places:
        part, path, depth = places.pop()
        if isinstance(part, Mapping):
            yield part, path
            places.extend(reversed(list(_subschemas(part, path, depth + 1))))


def _check_part(part: Mapping[str, Any], path: str, line: int | None) -> None:
    for keyword in _REFUSED:
        if part.get(keyword, False) is not False:
            raise ConstraintError(
                f"{keyword} is not supported", code="unsupported_value", field=f"{path}.{keyword}", line=line
            )
    _check_known(part, path, line)
    _check_reference(part, path, line)
    _check_texts(part, path, line)
    named = part.get("type", [])
    for name in [named] if isinstance(named, str) else named if isinstance(named, list) else [None]:
        if not isinstance(name, str) or name not in TYPES:
            raise ConstraintError("there is no such type", code="invalid_value", field=f"{path}.type", line=line)
    _check_least_properties(part, path, line)


def _check_known(part: Mapping[str, Any], path: str, line: int | None) -> None:
    """Extensions, named `x-…` by custom, are annotations too."""
    for keyword in part:
        if keyword not in KEYWORDS and not keyword.startswith("x-"):
            name = keyword if _NAME.fullmatch(keyword) else "?"
            raise ConstraintError(
                "there is no such keyword, or it is not supported",
                code="unsupported_value",
                field=f"{path}.{name}",
                line=line,
            )


def _check_texts(part: Mapping[str, Any], path: str, line: int | None) -> None:
    if "enum" in part and not (isinstance(part["enum"], list | tuple) and part["enum"]):
        raise ConstraintError(
            "it must be a list of at least one value", code="invalid_value", field=f"{path}.enum", line=line
        )
    if "format" in part and part["format"] not in sorted(FORMATS):
        raise ConstraintError(
            f"supported formats are {', '.join(sorted(FORMATS))}",
            code="unsupported_value",
            field=f"{path}.format",
            line=line,
        )
    if "pattern" in part and not isinstance(part["pattern"], str):
        raise ConstraintError("it must be a string", code="invalid_value", field=f"{path}.pattern", line=line)


def _check_reference(part: Mapping[str, Any], path: str, line: int | None) -> None:
    reference = part.get("$ref", "#")
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise ConstraintError(
            "only references inside the schema are followed, such as #/$defs/name",
            code="remote_reference",
            field=f"{path}.$ref",
            line=line,
        )


def _check_least_properties(part: Mapping[str, Any], path: str, line: int | None) -> None:
    """A grammar cannot see that an additional property repeats another, so it may need only one of them."""
    least, required = part.get("minProperties", 0), part.get("required", ())
    if isinstance(least, int) and isinstance(required, list | tuple) and least > len(set(map(str, required))) + 1:
        raise ConstraintError(
            "minProperties is supported up to the number of required properties and one more",
            code="unsupported_value",
            field=f"{path}.minProperties",
            line=line,
        )


def _multiple(part: Mapping[str, Any], path: str, line: int | None) -> int:
    divisor = part.get("multipleOf")
    if divisor is None:
        return 0
    if isinstance(divisor, bool) or not isinstance(divisor, int | float) or divisor <= 0:
        raise ConstraintError(
            "it must be a number above 0", code="invalid_value", field=f"{path}.multipleOf", line=line
        )
    digits = Decimal(repr(divisor)).normalize().as_tuple().digits
    return int("".join(map(str, digits))[:9])


def _subschemas(part: Mapping[str, Any], path: str, depth: int) -> Iterator[Place]:
    for keyword in IN_MAPS:
        inner = part.get(keyword)
        for name, schema in inner.items() if isinstance(inner, Mapping) else ():
            yield schema, f"{path}.{keyword}.{name if _NAME.fullmatch(name) else '?'}", depth
    for keyword in (*IN_LISTS, "items"):
        inner = part.get(keyword)
        for index, schema in enumerate(inner if isinstance(inner, list | tuple) else ()):
            yield schema, f"{path}.{keyword}.{index}", depth
    for keyword in SINGLE:
        inner = part.get(keyword)
        if isinstance(inner, Mapping):
            yield inner, f"{path}.{keyword}", depth
