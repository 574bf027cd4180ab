"""What callers may write in a body of OpenAI's routes: OpenAI's fields, and ours beside them under our names.

Knows the wire alone; `service.openai_domain` says what each field means. A field that both have is defined once, in
`service.schemas`.
Always: null is the same as leaving a field out, and a field that is not named here is an error.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from service.schemas import MAX_MESSAGES, Body, DecodingFields, Items, NewTokens, ReturnCount, Stops, StopString

CHANGES_NOTHING = "Accepted, and changes nothing."
NOT_SERVED = "Not served; refused by name."


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _as_parts(value: Any) -> Any:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


StopOrStops = Annotated[Stops, BeforeValidator(_as_list, json_schema_input_type=StopString | Stops)]
TextOrIds = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": 1},
            ]
        }
    ),
]
"""A text, its token ids, or a list of one of these. It is `GenerateRequest` that judges it."""


class NullableBody(Body):
    """A JSON object whose null values are left out, as OpenAI's clients mean them."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = {field.alias or name for name, field in cls.model_fields.items()}
        return {name: item for name, item in value.items() if item is not None or name not in known}


class TextPart(NullableBody):
    """A piece of a message."""

    type: Literal["text"] = Field(
        description="Images, audio and files are not served.",
        json_schema_extra={"x-others": "images, audio and files are not served"},
    )
    text: str = Field(description="What is said; it is text only, whatever it looks like.")


Parts = Annotated[Items[TextPart], BeforeValidator(_as_parts, json_schema_input_type=str | Items[TextPart])]


class OpenAIMessage(NullableBody):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"] = Field(
        description="Who speaks; developer is the same as system."
    )
    content: Parts | None = Field(None, description="A text, or text parts that are joined as they stand.")
    name: Any = Field(None, description=NOT_SERVED)
    refusal: Any = Field(None, description=NOT_SERVED)
    audio: Any = Field(None, description=NOT_SERVED)
    annotations: Any = Field(None, description=NOT_SERVED)
    function_call: Any = Field(None, description=NOT_SERVED)
    tool_calls: Any = Field(None, description=NOT_SERVED)
    tool_call_id: Any = Field(None, description=NOT_SERVED)


class JsonSchemaFormat(NullableBody):
    """A JSON schema with OpenAI's data about it."""

    name: str = Field(description=CHANGES_NOTHING)
    schema_: dict[str, Any] = Field(alias="schema", description="The JSON schema that the answer conforms to.")
    strict: bool | None = Field(None, description="Accepted; the answer always conforms.")
    description: str | None = Field(None, description=CHANGES_NOTHING)


class ResponseFormat(NullableBody):
    """The form of a chat's answer."""

    type: Literal["text", "json_object", "json_schema"] = Field(description="`json_object` is any JSON object.")
    json_schema: JsonSchemaFormat | None = Field(None, description="Needed with type `json_schema`, and only there.")


class StreamOptions(NullableBody):
    """What else a stream carries."""

    include_usage: bool = Field(False, description="End with a chunk that counts the tokens.")
    include_obfuscation: bool = Field(False, description=NOT_SERVED)


class OpenAIBody(DecodingFields, NullableBody):
    """What both routes take."""

    max_new_tokens: NewTokens | None = Field(None, description="`max_tokens`, by its name in `/generate`.")
    max_tokens: NewTokens | None = Field(None, description="Most tokens to generate.")
    n: ReturnCount = Field(1, description="How many texts to return; they share the work of the prompt.")
    stop: StopOrStops = Field((), description="A text, or a list of texts, before which the answer ends.")
    stream_options: StreamOptions | None = Field(None, description="Only with `stream`.")
    user: Any = Field(None, description=CHANGES_NOTHING)
    store: Any = Field(None, description=CHANGES_NOTHING)
    metadata: Any = Field(None, description=CHANGES_NOTHING)
    service_tier: Any = Field(None, description=CHANGES_NOTHING)
    safety_identifier: Any = Field(None, description=CHANGES_NOTHING)
    prompt_cache_key: Any = Field(None, description=CHANGES_NOTHING)
    prompt_cache_retention: Any = Field(None, description=CHANGES_NOTHING)
    prompt_cache_options: Any = Field(None, description=CHANGES_NOTHING)


class CompletionRequest(OpenAIBody):
    """The body of `POST /v1/completions`."""

    prompt: TextOrIds = Field(description="The text to continue, or its token ids; one prompt in a request.")
    logprobs: int | None = Field(
        None, ge=0, le=5, description="Return log-probabilities: of each token, and of so many of the likeliest."
    )
    best_of: int | None = Field(None, ge=1, description=NOT_SERVED)
    echo: bool = Field(False, description=NOT_SERVED)
    suffix: str | None = Field(None, description=NOT_SERVED)


class ChatRequest(OpenAIBody):
    """The body of `POST /v1/chat/completions`."""

    messages: Items[OpenAIMessage] = Field(
        min_length=1, max_length=MAX_MESSAGES, description="The conversation, put into the model's chat template."
    )
    max_completion_tokens: NewTokens | None = Field(
        None,
        description="Most tokens to generate; `max_tokens` is its older name.",
        json_schema_extra={"x-default": "what is left of the context"},
    )
    logprobs: bool = Field(False, description="Whether log-probabilities are returned.")
    top_logprobs: int | None = Field(
        None, ge=0, le=20, description="How many of the likeliest tokens to list with each; only with `logprobs`."
    )
    response_format: ResponseFormat | None = Field(None, description="The form that the answer must have.")
    parallel_tool_calls: Any = Field(None, description=CHANGES_NOTHING)
    tools: Any = Field(None, description=NOT_SERVED)
    tool_choice: Any = Field(None, description=NOT_SERVED)
    functions: Any = Field(None, description=NOT_SERVED)
    function_call: Any = Field(None, description=NOT_SERVED)
    modalities: Any = Field(None, description="Only text is served.")
    audio: Any = Field(None, description=NOT_SERVED)
    prediction: Any = Field(None, description=NOT_SERVED)
    web_search_options: Any = Field(None, description=NOT_SERVED)
    reasoning_effort: Any = Field(None, description=NOT_SERVED)
    verbosity: Any = Field(None, description=NOT_SERVED)
    moderation: Any = Field(None, description=NOT_SERVED)
