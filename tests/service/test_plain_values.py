"""What Python callers write is judged as its JSON would be."""

from typing import Any

import numpy as np
import pytest

from service.errors import InvalidField
from service.plain_values import plain_values


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ((1, 2), [1, 2]),
        (np.array([3, 4], dtype=np.int32), [3, 4]),
        (np.int64(7), 7),
        (np.float64(0.5), 0.5),
        ({5: -1.0, "6": 1.0}, {"5": -1.0, "6": 1.0}),
        ({np.int64(5): -1.0}, {"5": -1.0}),
        ({"choice": ("a", "b")}, {"choice": ["a", "b"]}),
        (None, None),
        (True, True),
    ],
)
def test_values_become_those_of_json(given: Any, plain: Any) -> None:
    assert {"field": plain} == plain_values({"field": given})


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("given", "code", "param"),
    [
        (b"bytes", "invalid_type", "field"),
        ({"a": {1, 2}}, "invalid_type", "field.a"),
        ([object()], "invalid_type", "field.0"),
        ({None: 1}, "invalid_type", "field"),
        ({True: 1}, "invalid_type", "field"),
        ("half \ud800", "invalid_unicode", "field"),
        (["half \ud800"], "invalid_unicode", "field.0"),
        (cyclic(), "too_deep", ".".join(["field", *["0"] * 31])),
    ],
)
def test_what_json_has_not_is_refused_by_its_place(given: Any, code: str, param: str) -> None:
    with pytest.raises(InvalidField) as raised:
        plain_values({"field": given})

    assert (code, param) == (raised.value.code, raised.value.param)
