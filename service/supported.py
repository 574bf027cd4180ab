"""Fields that take only some of their values yet, and the refusal of the others.

Always: a field leaves these tables when every value of its type is served.
"""

from collections.abc import Mapping
from typing import Any

from service.errors import InvalidField

GENERATE_VALUES: Mapping[str, tuple[Any, ...]] = {
    "beam_width": (1,),
    "length_penalty": (0,),
    "constraint": (None,),
    "resume": (None,),
}
"""Fields of `/generate` that take only some of their values yet."""

COMPLETION_VALUES: Mapping[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "echo": (None, False),
    "logprobs": (None,),
    "suffix": (None,),
    "repetition_penalty": (None, 1),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
}
"""The same for `/v1/completions`."""


def refuse_unsupported(body: object, values: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise InvalidField for the first field whose value this server does not serve yet."""
    for path, allowed in values.items():
        value: Any = body
        for name in path.split("."):
            value = getattr(value, name) if value is not None else allowed[0]
        if value not in allowed:
            raise InvalidField(
                f"this value of {path} is not supported yet", code="unsupported_value", param=path, allowed=allowed
            )
