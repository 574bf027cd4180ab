"""The document's bodies say what is refused wherever a schema can."""

from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest

from service.openai_schemas import ChatRequest, CompletionRequest
from service.openapi_bodies import EXAMPLES, body_schema
from service.replay_schemas import ReplayRequest
from service.schemas import Body, GenerateRequest

CHAT = {"messages": [{"role": "user", "content": "a"}]}
PROMPT = {"prompt": "a"}
CONFORM: list[tuple[type[Body], Mapping[str, Any]]] = [
    (GenerateRequest, PROMPT),
    (GenerateRequest, {"prompt": None, "prompt_tokens": [1]}),
    (GenerateRequest, PROMPT | {"constraint": {"regex": "a"}, "logit_bias": {"5": 1}}),
    (ChatRequest, CHAT | {"tool_choice": "none", "modalities": ["text"]}),
    (CompletionRequest, PROMPT | {"echo": False}),
]
DO_NOT: list[tuple[type[Body], Mapping[str, Any]]] = [
    (GenerateRequest, {}),
    (GenerateRequest, PROMPT | {"prompt_tokens": [1]}),
    (GenerateRequest, PROMPT | {"constraint": {}}),
    (GenerateRequest, PROMPT | {"constraint": {"regex": "a", "choice": ["a"]}}),
    (GenerateRequest, PROMPT | {"logit_bias": {"x": 1}}),
    (ChatRequest, CHAT | {"tools": [{}]}),
    (ChatRequest, {"messages": [{"role": "user", "content": "a", "name": "b"}]}),
    (CompletionRequest, PROMPT | {"suffix": "a"}),
    (ReplayRequest, {"request": PROMPT, "answer": {}}),
]


@pytest.mark.parametrize(("kind", "body"), CONFORM)
def test_a_body_that_is_served_conforms(kind: type[Body], body: Mapping[str, Any]) -> None:
    jsonschema.validate(body, body_schema(kind))


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_conforms(kind: type[Body]) -> None:
    jsonschema.validate(EXAMPLES[kind], body_schema(kind))


@pytest.mark.parametrize(("kind", "body"), DO_NOT)
def test_a_body_that_is_refused_for_its_form_does_not(kind: type[Body], body: Mapping[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body, body_schema(kind))
