"""From a body of OpenAI's routes to the body of `/generate` that asks for the same, and from there to a request.

Knows OpenAI's names and what they mean in ours; every rule about a value is that of `/generate`.
Always: an error names the field that the caller wrote.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from service.context import ServedModel
from service.domain import Asked, read_generate
from service.errors import InvalidField
from service.field_errors import invalid_field
from service.openai_schemas import ChatRequest, CompletionRequest, OpenAIBody, OpenAIMessage, ResponseFormat
from service.schemas import DecodingFields, GenerateRequest, read, schema, with_integers
from service.supported import CHAT_VALUES, COMPLETION_VALUES, MESSAGE_VALUES, refuse_unsupported

DEFAULT_COMPLETION_TOKENS = 16
COMPLETION_LIMITS = ("max_tokens", "max_new_tokens")
CHAT_LIMITS = ("max_completion_tokens", "max_tokens", "max_new_tokens")
"""Names of the most tokens to generate; the first one is used in errors when the caller used none."""
ROLES = {"developer": "system"}
ANY_OBJECT = {"type": "object"}

Names = Mapping[str, str]
"""From a field of `/generate` to the field that the caller wrote."""


@dataclass(frozen=True, slots=True)
class SameRequest:
    """The body of `/generate` that asks for the same, and the caller's names of its fields."""

    body: GenerateRequest
    names: Names


@dataclass(frozen=True, slots=True)
class OpenAIAsked:
    """A request, and what its answer must look like."""

    asked: Asked
    names: Names
    include_usage: bool


def read_completion(
    body: CompletionRequest, model: ServedModel, context_length: int, request_id: str, key_id: str | None = None
) -> OpenAIAsked:
    """Raises InvalidField."""
    same = same_as_completion(body)
    with in_words_of(same.names):
        asked = read_generate(same.body, model, context_length, request_id, DEFAULT_COMPLETION_TOKENS, key_id=key_id)
    return OpenAIAsked(asked, same.names, _includes_usage(body))


def read_chat(
    body: ChatRequest, model: ServedModel, context_length: int, request_id: str, key_id: str | None = None
) -> OpenAIAsked:
    """Raises InvalidField. A chat without a limit may fill the context, as OpenAI's may."""
    same = same_as_chat(body)
    with in_words_of(same.names):
        asked = read_generate(same.body, model, context_length, request_id, context_length, key_id=key_id)
    return OpenAIAsked(asked, same.names, _includes_usage(body))


def same_as_completion(body: CompletionRequest) -> SameRequest:
    """Raises InvalidField."""
    refuse_unsupported(body, COMPLETION_VALUES)
    if body.best_of is not None and body.best_of < body.n:
        raise _clash("best_of", "best_of must be at least n")
    fields, names = _shared(body, COMPLETION_LIMITS)
    prompt, place = _single(with_integers(body.prompt))
    if not isinstance(prompt, str | list) or not isinstance(next(iter(prompt), 0), str | int):
        raise invalid_field("prompt_type", ("prompt",), prompt, schema(CompletionRequest))
    if isinstance(prompt, list):
        fields["prompt_tokens"], names["prompt_tokens"] = prompt, place
    else:
        fields["prompt"] = prompt
    if body.logprobs is not None:
        fields["logprobs"] = {"top": body.logprobs}
        names["logprobs.top"] = "logprobs"
    return _same(fields, names)


def same_as_chat(body: ChatRequest) -> SameRequest:
    """Raises InvalidField."""
    refuse_unsupported(body, CHAT_VALUES)
    if body.top_logprobs and not body.logprobs:
        raise _clash("top_logprobs", "top_logprobs needs logprobs to be true")
    fields, names = _shared(body, CHAT_LIMITS)
    fields["messages"] = [_message(message, f"messages.{index}.") for index, message in enumerate(body.messages)]
    if body.logprobs:
        fields["logprobs"] = {"top": body.top_logprobs or 0}
        names["logprobs.top"] = "top_logprobs"
    if body.response_format is not None:
        _take_format(body.response_format, fields, names)
    return _same(fields, names)


@contextmanager
def in_words_of(names: Names) -> Iterator[None]:
    """Turn what is refused under names of `/generate` into the same under the caller's."""
    try:
        yield
    except InvalidField as error:
        raise _renamed(error, names) from error


def _shared(body: OpenAIBody, limits: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, str]]:
    """What both routes have, as fields of `/generate` and their names."""
    if body.stream_options is not None and not body.stream:
        raise _clash("stream_options", "stream_options needs stream to be true")
    given = [name for name in limits if getattr(body, name) is not None]
    if len(given) > 1:
        raise _clash(given[1], f"only one of {' and '.join(given)} may be given")
    limit = given[0] if given else limits[0]
    fields = {name: getattr(body, name) for name in DecodingFields.model_fields if name in body.model_fields_set}
    fields |= {"max_new_tokens": getattr(body, limit), "num_return": body.n, "stop": body.stop}
    return fields, {"max_new_tokens": limit, "num_return": "n"}


def _same(fields: Mapping[str, Any], names: Names) -> SameRequest:
    with in_words_of(names):
        return SameRequest(read(GenerateRequest, fields), names)


def _single(prompt: Any) -> tuple[Any, str]:
    """The one prompt, and where it stands."""
    if not isinstance(prompt, list) or not prompt or not isinstance(prompt[0], str | list):
        return prompt, "prompt"
    if len(prompt) > 1:
        raise InvalidField(
            "several prompts in one request are not supported; send a request for each",
            code="unsupported_value",
            param="prompt",
            allowed={"max_prompts": 1},
        )
    return prompt[0], "prompt.0"


def _message(message: OpenAIMessage, place: str) -> dict[str, str]:
    refuse_unsupported(message, MESSAGE_VALUES, place)
    if message.content is None:
        raise InvalidField(f"{place}content is needed", code="missing", param=place + "content")
    text = "".join(part.text for part in message.content)
    return {"role": ROLES.get(message.role, message.role), "content": text}


def _take_format(form: ResponseFormat, fields: dict[str, Any], names: dict[str, str]) -> None:
    """Write down the constraint that a response format means."""
    if form.type == "json_schema" and form.json_schema is None:
        raise InvalidField(
            "response_format.json_schema is needed with type json_schema",
            code="missing",
            param="response_format.json_schema",
        )
    if form.type != "json_schema" and form.json_schema is not None:
        raise _clash("response_format.json_schema", "response_format.json_schema needs type json_schema")
    if form.type == "text":
        return
    if fields.get("constraint") is not None:
        raise _clash("response_format", "only one of constraint and response_format may be given")
    names["constraint"] = names["constraint.json_schema"] = "response_format"
    fields["constraint"] = {"json_schema": ANY_OBJECT}
    if form.json_schema is not None:
        fields["constraint"] = {"json_schema": form.json_schema.schema_}
        names["constraint.json_schema"] = "response_format.json_schema.schema"


def _includes_usage(body: OpenAIBody) -> bool:
    return body.stream_options is not None and body.stream_options.include_usage


def _clash(param: str, message: str) -> InvalidField:
    return InvalidField(message, code="invalid_combination", param=param)


def _renamed(error: InvalidField, names: Names) -> InvalidField:
    """The error under the caller's names; of several that fit, the longest one is meant."""
    longest_first = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))

    def written(text: str) -> str:
        return re.sub(rf"(?<![\w.])({longest_first})(?!\w)", lambda match: names[match[0]], text)

    allowed = error.allowed
    if isinstance(allowed, Mapping):
        limit = names["max_new_tokens"]
        allowed = {limit if name == "max_new_tokens" else name: value for name, value in allowed.items()}
    return InvalidField(
        written(error.message), code=error.code, param=error.param and written(error.param), allowed=allowed
    )
