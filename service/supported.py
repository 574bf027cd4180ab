"""Fields that take only some of their values, and the refusal of the others.

Always: bodies of OpenAI's routes become a `GenerateRequest` first, all of whose fields are served; so what stands here
is a field that it lacks. It leaves its table when every value of its type is served.
"""

import json
from collections.abc import Mapping
from typing import Any

from service.errors import InvalidField

Values = Mapping[str, tuple[Any, ...]]

COMPLETION_VALUES: Values = {
    "best_of": (None, 1),
    "echo": (False,),
    "suffix": (None,),
    "stream_options.include_obfuscation": (False,),
}
"""Fields that `/v1/completions` alone has."""

CHAT_VALUES: Values = {
    "tools": (None,),
    "tool_choice": (None, "none"),
    "functions": (None,),
    "function_call": (None, "none"),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "web_search_options": (None,),
    "reasoning_effort": (None, "none"),
    "verbosity": (None,),
    "moderation": (None,),
    "stream_options.include_obfuscation": (False,),
}
"""Fields that `/v1/chat/completions` alone has."""

MESSAGE_VALUES: Values = {
    "name": (None,),
    "refusal": (None,),
    "audio": (None,),
    "annotations": (None, []),
    "function_call": (None,),
    "tool_calls": (None, []),
    "tool_call_id": (None,),
}
"""Fields of one of its messages."""


def refuse_unsupported(body: object, values: Values, place: str = "") -> None:
    """Raise InvalidField for the first field whose value is not served; `place` stands before its name."""
    for path, allowed in values.items():
        value: Any = body
        for name in path.split("."):
            value = getattr(value, name) if value is not None else allowed[0]
        if value not in allowed:
            raise InvalidField(
                f"{place}{path} is {_served(allowed)}",
                code="unsupported_value",
                param=place + path,
                allowed=allowed,
            )


def _served(allowed: tuple[Any, ...]) -> str:
    """What is said of a field that takes these values; one that stands for its absence is no value."""
    values = [json.dumps(value) for value in allowed if value not in (None, False, [])]
    return f"served only as {' or '.join(values)}" if values else "not served"
