"""An error never repeats what it refuses: a value may be a secret, or a text that forges a line of a log."""

from typing import Any

import pytest

from service.schemas import GenerateRequest
from tests.service.test_generate_fields import error_of, with_field


@pytest.mark.parametrize("value", ["canary-7f3a", ["canary-7f3a"], {"canary-7f3a": 1}])
@pytest.mark.parametrize("name", [*GenerateRequest.model_fields, "<canary-7f3a>"])
def test_a_refused_value_is_never_repeated(name: str, value: Any) -> None:
    fields = {**with_field(name, value), "seed": -1} if name != "seed" else with_field(name, value)

    error = error_of(fields)

    assert "7f3a" not in f"{error.message} {error.allowed}"
