"""From what a validator says about a field to what its caller is told: which field, what is wrong, what is allowed.

Knows JSON schemas; knows no validator's classes. Always: the rejected value is in no part of the answer.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from service.errors import InvalidField
from service.json_body import safe_name

Schema = Mapping[str, Any]
Place = Sequence[str | int]

_CODES = {
    "missing": "missing",
    "extra_forbidden": "unknown_field",
    "finite_number": "not_finite",
    "greater_than": "out_of_range",
    "greater_than_equal": "out_of_range",
    "less_than": "out_of_range",
    "less_than_equal": "out_of_range",
    "too_long": "too_many",
    "string_too_long": "too_long",
    "too_short": "empty",
    "string_too_short": "empty",
    "literal_error": "invalid_value",
    "string_pattern_mismatch": "invalid_value",
}
_OWN_CODES = {"role": "invalid_role", "session_id": "invalid_session_id", "type": "unsupported_value"}
"""Fields whose bad values have a code of their own."""
_LIMITS = (
    "type",
    "enum",
    "const",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "pattern",
)


def invalid_field(kind: str, place: Place, value: Any, schema: Schema) -> InvalidField:
    """`kind` is the validator's name for the problem, `place` where it is in the body that `schema` describes."""
    place = _named(place, schema)
    param = ".".join(safe_name(str(step)) if isinstance(step, str) else str(step) for step in place) or None
    code = _CODES.get(kind, "invalid_type")
    if code == "invalid_value":
        code = _OWN_CODES.get(str(place[-1]), code) if isinstance(value, str) else "invalid_type"
    if code == "unknown_field":
        parent = field_schema(schema, place[:-1])
        return InvalidField(
            f"there is no field {param}", code=code, param=param, allowed=sorted(parent.get("properties", ()))
        )
    field = field_schema(schema, place)
    return InvalidField(_message(code, param, field), code=code, param=param, allowed=limits(field))


def field_schema(schema: Schema, place: Place) -> Schema:
    """What the schema says about one place of the body; null is left out."""
    for step in place:
        if isinstance(step, int):
            schema = next((kind["items"] for kind in _kinds(schema) if "items" in kind), {})
        else:
            schema = schema.get("properties", {}).get(step) or schema.get("additionalProperties") or {}
        schema = without_null(schema)
    return schema


def _named(place: Place, schema: Schema) -> Place:
    """The place, or the object around it whose names are the caller's own: a name may be what was wrong."""
    for length in range(len(place)):
        around = field_schema(schema, place[:length])
        if isinstance(around.get("additionalProperties"), dict):
            return place[:length]
    return place


def without_null(schema: Schema) -> Schema:
    """The schema of an optional field's values; `anyOf` is left only where they are of several kinds."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind.get("type") != "null"]
    if len(kinds) > 1:
        return {**schema, "anyOf": kinds}
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return rest | dict(kinds[0]) if kinds else schema


def _kinds(schema: Schema) -> Sequence[Schema]:
    """The schemas of which a value meets one."""
    kinds: Sequence[Schema] = schema.get("anyOf") or [schema]
    return kinds


def limits(schema: Schema) -> dict[str, Any]:
    """The type and limits, in the words of JSON schema."""
    if len(kinds := _kinds(schema)) > 1:
        return {"anyOf": [limits(kind) for kind in kinds]}
    found = {name: schema[name] for name in _LIMITS if name in schema}
    if "items" in schema:
        found["items"] = limits(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = limits(schema["additionalProperties"])
    return found


def describe(schema: Schema) -> str:
    """The type and range of a field in a few words."""
    schema = without_null(schema)
    if len(kinds := _kinds(schema)) > 1:
        return ", or ".join(map(describe, kinds))
    kind = schema.get("type")
    if kind == "array":
        return _counted("list", schema.get("minItems"), schema.get("maxItems")) + _each(schema["items"])
    return _object(schema) if kind == "object" else _scalar(schema)


def _scalar(schema: Schema) -> str:
    kind = schema.get("type", "anything")
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(schema["enum"])
    if kind == "string":
        return "non-empty string" if schema.get("minLength") else "string"
    return f"{kind} {_range(schema)}".rstrip() if kind in ("integer", "number") else str(kind)


def _message(code: str, param: str | None, field: Schema) -> str:
    if param is None:
        return "the body must be a JSON object"
    if code == "missing":
        return f"{param} is needed"
    if code == "empty":
        return f"{param} must not be empty"
    if code == "not_finite":
        return f"{param} must be finite: {describe(field)}"
    pattern = f" that matches {field['pattern']}" if "pattern" in field else ""
    others = f"; {field['x-others']}" if "x-others" in field else ""
    return f"{param} must be: {describe(field)}{pattern}{others}"


def _range(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above = schema.get("exclusiveMinimum")
    if high is None:
        return f"≥ {low}" if low is not None else ""
    left = f"({above:g}" if above is not None else f"[{low}"
    return f"in {left}, {high}]"


def _counted(noun: str, low: int | None, high: int | None) -> str:
    if high is not None:
        return f"{noun} of at most {high}"
    return f"{noun} of at least {low}" if low else f"{noun} of"


def _each(items: Schema) -> str:
    names = {"string": "strings", "integer": "integers", "object": "objects"}
    kind = names.get(items.get("type", ""), "values")
    if items.get("type") == "integer":
        return f" {kind} {_range(items)}".rstrip()
    return f" non-empty {kind}" if items.get("minLength") else f" {kind}"


def _object(schema: Schema) -> str:
    if "properties" in schema:
        inner = (f"{name}: {describe(part)}" for name, part in schema["properties"].items())
        return "object {" + "; ".join(inner) + "}"
    most = schema.get("maxProperties")
    values = schema.get("additionalProperties")
    of = f" of {describe(values)}" if isinstance(values, dict) else ""
    return f"object with at most {most} entries{of}" if most else f"object{of}"
