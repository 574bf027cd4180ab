"""Formats of JSON strings that are narrower here than in the grammar library, as regular expressions.

Always: each is a part of what RFC 3339 and RFC 1123 allow. Left out is what common readers refuse and the library's own
grammar lets pass: the year 0, leap seconds, lower-case letters in a time, days that a month does not have, and host
names of more than 253 characters.
"""

from collections.abc import Mapping
from typing import Any

from model.decoding.constraint.example import without_controls
from model.decoding.constraint.schema_rules import IN_LISTS, IN_MAPS, SINGLE

_YEAR = r"(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP_YEAR = (
    r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"  # 2024, and 2000 but not 1900
)
_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_DATE = rf"(?:{_YEAR}-{_DAY}|{_LEAP_YEAR}-02-29)"
_HOUR_MINUTE = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_HOUR_MINUTE}:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:Z|[+-]{_HOUR_MINUTE})"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,60}[A-Za-z0-9])?"

PATTERNS: Mapping[str, str] = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "hostname": rf"^{_LABEL}(?:\.{_LABEL}){{0,3}}$",
}


def with_patterns(schema: Any) -> Any:
    """The schema, with these formats as patterns. One that has a pattern beside its format stays as it is."""
    if not isinstance(schema, dict):
        return schema
    parts = {keyword: _with_patterns(keyword, part) for keyword, part in schema.items()}
    named = schema.get("format")
    if isinstance(named, str) and named in PATTERNS and "pattern" not in schema:
        del parts["format"]
        parts["pattern"] = PATTERNS[named]
    if isinstance(pattern := parts.get("pattern"), str):
        parts["pattern"] = without_controls(pattern)
    return parts


def _with_patterns(keyword: str, part: Any) -> Any:
    """What stands at one keyword of a schema."""
    if keyword in IN_MAPS and isinstance(part, dict):
        rename = without_controls if keyword == "patternProperties" else str
        return {rename(name): with_patterns(schema) for name, schema in part.items()}
    if keyword in (*IN_LISTS, *SINGLE) and isinstance(part, list):
        return [with_patterns(schema) for schema in part]
    return with_patterns(part) if keyword in SINGLE else part
