"""The schemas of bodies as the OpenAPI document has them: what is refused wherever it can be said is said.

Knows JSON schemas and which values are served; knows no web framework. Always: a body that the server takes conforms;
what depends on the model, and how some fields go together, no schema says.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from service.openai_schemas import ChatRequest, CompletionRequest
from service.replay_schemas import ReplayRequest
from service.schemas import Body, DetokenizeRequest, GenerateRequest, TokenizeRequest, schema
from service.supported import CHAT_VALUES, COMPLETION_VALUES, MESSAGE_VALUES, Values

ONE_OF: Sequence[tuple[str, ...]] = (
    ("prompt", "prompt_tokens", "messages"),
    ("json_schema", "regex", "choice", "grammar"),
)
"""Fields of one object of which exactly one is given. A record whose request says otherwise is one that is refused,
and `POST /replay` tells so."""
NEEDED: Mapping[type[Body], str] = {ReplayRequest: "answer.choices"}
"""What another form of the same body is without."""
EXAMPLES: Mapping[type[Body], Mapping[str, Any]] = {
    GenerateRequest: {"prompt": "The seed lies in the ground", "max_new_tokens": 16, "seed": 7},
    TokenizeRequest: {"text": "The seed lies in the ground"},
    DetokenizeRequest: {"token_ids": [5, 6, 7]},
    CompletionRequest: {"prompt": "The seed lies in the ground", "max_tokens": 16, "seed": 7},
    ChatRequest: {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "seed": 7},
}
TOKEN_ID = r"^(0|[1-9][0-9]{0,9})$"
SERVED: Mapping[type[Body], Values] = {
    CompletionRequest: COMPLETION_VALUES,
    ChatRequest: {**CHAT_VALUES, **{f"messages.{path}": values for path, values in MESSAGE_VALUES.items()}},
}
"""Fields of which some values alone are served."""


def example_of(kind: type[Body]) -> dict[str, Any] | None:
    """A body that any server takes, where one is known."""
    example = EXAMPLES.get(kind)
    return None if example is None else dict(example)


def body_schema(kind: type[Body]) -> dict[str, Any]:
    """The JSON schema of a body, whole. Nothing of it is shared."""
    whole: dict[str, Any] = _told(schema(kind), excluding=not issubclass(kind, ReplayRequest))
    for path, values in SERVED.get(kind, {}).items():
        _narrow(whole, path.split("."), values)
    if kind in NEEDED:
        around, _, name = NEEDED[kind].partition(".")
        part = whole["properties"][around]
        part["required"] = [*part["required"], name]
        part["properties"][name]["not"] = {"type": "null"}
    return whole


def _told(part: Any, *, excluding: bool) -> Any:
    """A copy that says what the names in a table of tokens are and, if they are, that fields are `excluding`."""
    if isinstance(part, list):
        return [_told(item, excluding=excluding) for item in part]
    if not isinstance(part, Mapping):
        return part
    told = {name: _told(item, excluding=excluding) for name, item in part.items()}
    properties = part.get("properties", {})
    for names in ONE_OF:
        if excluding and set(names) <= properties.keys():
            told["oneOf"] = [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]
    if "logit_bias" in properties:
        for each in (told["properties"]["logit_bias"], *told["properties"]["logit_bias"].get("anyOf", ())):
            if each.get("type") == "object":
                each["propertyNames"] = {"pattern": TOKEN_ID}
    return told


def _narrow(part: dict[str, Any], path: Sequence[str], values: tuple[Any, ...]) -> None:
    for each in (part, *part.get("anyOf", ())):
        items = each.get("items", each)
        inner = items.get("properties", {}).get(path[0])
        if inner is None:
            continue
        if len(path) > 1:
            _narrow(inner, path[1:], values)
        else:
            inner["enum"] = list(values)
