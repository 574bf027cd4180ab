"""From Python's values to those that JSON has, so that a caller in process is judged as one over HTTP is.

Knows JSON and numpy; knows no fields. Always: what comes out could have been a request's body, or InvalidField names
the place that could not.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from service.errors import InvalidField
from service.json_body import MAX_DEPTH, check_strings, safe_name


def plain_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Lists for tuples and arrays, Python's numbers for numpy's, and names for integers that are names."""
    plain: dict[str, Any] = _plain(fields, "", MAX_DEPTH)
    check_strings(plain, "")
    return plain


def _plain(value: Any, place: str, depth: int) -> Any:
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if not depth:
        raise InvalidField(
            f"{place} is nested deeper than {MAX_DEPTH}",
            code="too_deep",
            param=place,
            allowed={"max_depth": MAX_DEPTH},
        )
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist(), place, depth - 1)
    if isinstance(value, Mapping):
        return {_name(name, place): _plain(item, _inner(place, name), depth - 1) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, _inner(place, index), depth - 1) for index, item in enumerate(value)]
    raise InvalidField(f"{place} is of a type that JSON has not", code="invalid_type", param=place)


def _name(name: Any, place: str) -> str:
    """The names of `logit_bias` are token ids."""
    if isinstance(name, str):
        return name
    if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
        return str(name)
    raise InvalidField(f"the names in {place} must be strings", code="invalid_type", param=place)


def _inner(place: str, step: Any) -> str:
    return f"{place}.{safe_name(str(step))}".lstrip(".")
