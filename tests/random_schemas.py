"""JSON schemas of ordinary kinds, drawn with a seed: objects, arrays, enums, formats, numbers, unions, references."""

import random
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]

FORMATS = ("date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
PATTERNS = (r"^[A-Z]{2}-\d{3,5}$", r"^(red|green|blue)( dark)?$", r"^[a-z]+(_[a-z]+)*$", r"[0-9]{3}", r"^\S+@\S+$")
WORDS = (
    "name",
    "id",
    "created_at",
    "tags",
    "price",
    "e-mail",
    "größe",
    "is active",
    "x",
    "children",
    'quo"te',
    "count",
)


def random_schema(seed: int) -> Schema:
    """An object at the top, its parts at most three deep; one in four refers to a definition, one in six is wide, and
    one in six holds a long array."""
    rng = random.Random(seed)
    schema = _object(rng, 3)
    if seed % 6 == 4:
        schema = _wide(rng)
    if seed % 6 == 5:
        schema["properties"]["rows"] = {"type": "array", "items": _row(rng), "minItems": rng.randint(5, 10)}
        schema["required"] = [*schema.get("required", ()), "rows"]
    if rng.random() < 0.25:
        schema["properties"]["ref"] = {"$ref": "#/$defs/part"}
        schema["required"] = [*schema.get("required", ()), "ref"]
        schema["$defs"] = {"part": _any(rng, 1)}
    return schema


def _any(rng: random.Random, depth: int) -> Schema:
    simple = (_string, _string, _format, _pattern, _integer, _number, _enum, _constant, _plain)
    deep = (_object, _array, _union, _nullable)
    kinds: tuple[Callable[[random.Random, int], Schema], ...] = simple + (deep if depth else ())
    return rng.choice(kinds)(rng, depth - 1)


def _object(rng: random.Random, depth: int) -> Schema:
    names = rng.sample(WORDS, rng.randint(1, 5))
    schema: Schema = {"type": "object", "properties": {name: _any(rng, depth - 1) for name in names}}
    if required := [name for name in names if rng.random() < 0.6]:
        schema["required"] = required
    if rng.random() < 0.7:
        schema["additionalProperties"] = rng.choice((False, False, {"type": "integer"}))
    return schema


def _wide(rng: random.Random) -> Schema:
    """Many required properties, each simple."""
    names = [f"{rng.choice(WORDS)} {number}" for number in range(rng.randint(20, 40))]
    return {
        "type": "object",
        "properties": {name: rng.choice((_string, _enum, _integer, _pattern))(rng, 0) for name in names},
        "required": names,
        "additionalProperties": False,
    }


def _row(rng: random.Random) -> Schema:
    names = rng.sample(WORDS, 4)
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}


def _array(rng: random.Random, depth: int) -> Schema:
    least = rng.randint(0, 3)
    schema: Schema = {"type": "array", "items": _any(rng, depth)}
    if least:
        schema["minItems"] = least
    if rng.random() < 0.5:
        schema["maxItems"] = least + rng.randint(0, 3)
    if rng.random() < 0.2:
        schema |= {"prefixItems": [_any(rng, 0), _any(rng, 0)]}
        schema["maxItems"] = max(2, schema.get("maxItems", 2))
    return schema


def _union(rng: random.Random, depth: int) -> Schema:
    return {"anyOf": [_any(rng, depth) for _ in range(rng.randint(2, 3))]}


def _nullable(rng: random.Random, depth: int) -> Schema:
    return {"type": [rng.choice(("string", "integer", "boolean")), "null"], "description": "May be missing."}


def _string(rng: random.Random, depth: int) -> Schema:
    schema: Schema = {"type": "string"}
    least = rng.choice((0, 0, 1, 5, 40))
    if least:
        schema["minLength"] = least
    if rng.random() < 0.3:
        schema["maxLength"] = least + rng.randint(0, 10)
    return schema


def _format(rng: random.Random, depth: int) -> Schema:
    return {"type": "string", "format": rng.choice(FORMATS)}


def _pattern(rng: random.Random, depth: int) -> Schema:
    return {"type": "string", "pattern": rng.choice(PATTERNS)}


def _integer(rng: random.Random, depth: int) -> Schema:
    schema: Schema = {"type": "integer"}
    if rng.random() < 0.5:
        least = rng.randint(-1000, 1000)
        schema |= {"minimum": least, "maximum": least + rng.randint(0, 5000)}
    elif rng.random() < 0.3:
        schema["multipleOf"] = rng.choice((2, 5, 10, 7))
    return schema


def _number(rng: random.Random, depth: int) -> Schema:
    if rng.random() < 0.5:
        return {"type": "number"}
    return {"type": "number", "exclusiveMinimum": rng.choice((0, -2.5)), "maximum": rng.choice((1, 99.75, 1000))}


def _enum(rng: random.Random, depth: int) -> Schema:
    values: list[Any] = [f"{rng.choice(WORDS)} {number}" for number in range(rng.choice((1, 3, 8, 200)))]
    return {"enum": [*values, *rng.choice(((), (None,), (1, 2.5), (True,)))]}


def _constant(rng: random.Random, depth: int) -> Schema:
    return {"const": rng.choice(("fixed", 7, True, None, 'with "quotes" and \\ and\nlines'))}


def _plain(rng: random.Random, depth: int) -> Schema:
    return {"type": rng.choice(("boolean", "null"))}
