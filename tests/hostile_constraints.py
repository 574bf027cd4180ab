"""Constraints that take most compilers very long, or for ever."""

from typing import Any

HOSTILE: dict[str, tuple[str, Any]] = {
    "nested_plus": ("regex", "(a+)+b"),
    "double_star": ("regex", "foo**"),
    "counted": ("regex", "(x{1000}){1000}"),
    "counted_less": ("regex", "(x{30}){1000}"),
    "exponential": ("regex", "(a|b)*a(a|b){24}"),
    "alternation": ("regex", "|".join(f"{i * 7919 % 100_003:08d}" for i in range(1700))),
    "cycle": ("json_schema", {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
    "endless": ("json_schema", {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
    "pattern": ("json_schema", {"type": "string", "pattern": "(x{1000}){1000}"}),
    "properties": ("json_schema", {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(999)}}),
    "long": ("json_schema", {"type": "string", "minLength": 100_000}),
    "rules": ("grammar", "start: a9\na0: /x/\n" + "".join(f"a{i}: {f'a{i - 1} ' * 10}\n" for i in range(1, 10))),
    "terminals": ("grammar", "start: A9\nA0: /x/\n" + "".join(f"A{i}: {f'A{i - 1} ' * 10}\n" for i in range(1, 10))),
    "choices": ("choice", tuple(f"{i} {'word ' * 10}" for i in range(1000))),
}
