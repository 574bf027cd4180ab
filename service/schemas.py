"""What callers may write in a body of our own routes: names, types, ranges, defaults and their meaning.

Knows the wire and nothing of tokens. Values whose limits depend on the model are checked in `service.domain`.
Always: a field that is not named here is an error, no value is converted, and every message leaves the value out.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.field_errors import invalid_field

SESSION_ID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"
MAX_SEED = 2**63 - 1
MAX_MESSAGES = 4096
MAX_STOPS = 16
MODELS_OWN = "the model's own, else "

Item = TypeVar("Item")
# JSON knows arrays only: a strict tuple would refuse them. The items stay strict, and the first bad one is enough.
Items = Annotated[tuple[Item, ...], Field(strict=False, fail_fast=True)]
TokenId = Annotated[int, Field(ge=0)]
StopString = Annotated[str, Field(min_length=1)]
SessionId = Annotated[str, Field(pattern=SESSION_ID_PATTERN)]
Stops = Annotated[Items[StopString], Field(max_length=MAX_STOPS)]
Bias = Annotated[float, Field(ge=-100, le=100)]
NewTokens = Annotated[int, Field(ge=1)]
ReturnCount = Annotated[int, Field(ge=1, le=16)]


class Body(BaseModel):
    """A JSON object of exactly these fields."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class ChatMessage(Body):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"] = Field(description="Who speaks.")
    content: str = Field(description="What is said; it is text only, whatever it looks like.")


class Logprobs(Body):
    """Which log-probabilities come back with each token."""

    top: int = Field(0, ge=0, le=20, description="How many of the likeliest tokens to list beside the chosen one.")
    of: Literal["model", "sampled"] = Field(
        "model", description="Of the model's own distribution, or of the one that was drawn from."
    )
    prompt: bool = Field(False, description="Also for the tokens of the prompt.")


class Constraint(Body):
    """The form that the text must have: exactly one of these."""

    json_schema: dict[str, Any] | None = Field(None, description="JSON that this schema accepts.")
    regex: str | None = Field(None, description="A text that this regular expression matches as a whole.")
    choice: Items[str] | None = Field(None, description="One of these texts.")
    grammar: str | None = Field(None, description="A text of this grammar, in llguidance's form of Lark.")


class Resume(Body):
    """Where an interrupted answer goes on."""

    token_ids: Items[TokenId] = Field(description="The generated ids that already arrived.")


class PromptFields(Body):
    """What is to be continued; one of these."""

    prompt: str | None = Field(
        None, min_length=1, description="The text to continue. Exactly one of the first three fields is needed."
    )
    prompt_tokens: Items[TokenId] | None = Field(
        None, min_length=1, description="The prompt as token ids; control tokens are allowed."
    )
    messages: Items[ChatMessage] | None = Field(
        None,
        min_length=1,
        max_length=MAX_MESSAGES,
        description="A conversation, `{role, content}` each, put into the model's chat template.",
    )


class ModelField(Body):
    """Which of the served models is asked."""

    model: str | None = Field(
        None,
        description="A served name, as `GET /v1/models` lists them.",
        json_schema_extra={"x-default": "the main model"},
    )


class DecodingFields(ModelField):
    """Fields that have the same name and meaning on every route that generates."""

    max_new_tokens: NewTokens | None = Field(
        None,
        description="Most tokens to generate. When given, the prompt and it must fit the context.",
        json_schema_extra={"x-default": "256, or what is left of the context"},
    )
    min_new_tokens: int = Field(
        0, ge=0, description="Fewest tokens before an end is allowed; at most `max_new_tokens`."
    )
    temperature: float | None = Field(
        None,
        ge=0,
        le=2,
        description="0 always takes the likeliest token; higher values spread the choice.",
        json_schema_extra={"x-default": MODELS_OWN + "1"},
    )
    top_k: int | None = Field(
        None,
        ge=0,
        le=2**31 - 1,
        description="Draw among this many of the likeliest tokens; 0 turns it off.",
        json_schema_extra={"x-default": MODELS_OWN + "0"},
    )
    top_p: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Draw among the fewest tokens whose probabilities sum to this; 1 turns it off.",
        json_schema_extra={"x-default": MODELS_OWN + "1"},
    )
    min_p: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Drop tokens less likely than this times the likeliest; 0 turns it off.",
        json_schema_extra={"x-default": MODELS_OWN + "0"},
    )
    beam_width: int = Field(1, ge=1, le=16, description="Beams to search; 1 is no beam search.")
    length_penalty: float = Field(
        0.0, ge=-2, le=5, description="A beam's score is its log-probability over its length to this power."
    )
    seed: int | None = Field(
        None,
        ge=0,
        le=MAX_SEED,
        description="The same request with the same seed gives the same text.",
        json_schema_extra={"x-default": "drawn, and returned"},
    )
    repetition_penalty: float = Field(1.0, ge=0.01, le=2, description="Above 1, seen tokens become less likely.")
    penalty_scope: Literal["generated", "all"] = Field(
        "generated", description="Whether `repetition_penalty` looks at the prompt too."
    )
    presence_penalty: float = Field(0.0, ge=-2, le=2, description="Taken from the logit of a token that was generated.")
    frequency_penalty: float = Field(
        0.0, ge=-2, le=2, description="Taken from a token's logit each time it was generated."
    )
    stop_token_ids: Items[TokenId] = Field((), max_length=64, description="Token ids that end the text.")
    ignore_eos: bool = Field(False, description="Treat the end-of-text token as any other.")
    logit_bias: dict[str, Bias] = Field(
        default_factory=dict, max_length=1024, description="Added to the logits of these token ids."
    )
    banned_token_ids: Items[TokenId] = Field((), max_length=1024, description="Token ids that are never generated.")
    constraint: Constraint | None = Field(
        None,
        description="The form that the text must have: exactly one of `json_schema`, `regex`, `choice` and `grammar`. "
        "The text always ends and conforms; what no text of `max_new_tokens` can meet is refused.",
    )
    session_id: SessionId | None = Field(
        None, description="A session to continue, or the name of a new one: its cache stays warm between turns."
    )
    use_cache: bool = Field(True, description="Whether cached work may be used and kept.")
    speculation: Literal["off", "prompt_lookup", "draft", "auto"] = Field(
        "auto", description="How tokens are guessed ahead."
    )
    deadline_ms: int | None = Field(
        None, ge=1, description="Milliseconds after which the text ends as it is, or 504 when there is none yet."
    )
    stream: bool = Field(False, description="Answer with server-sent events while the text is made.")


class GenerateRequest(DecodingFields, PromptFields):
    """The body of `POST /generate`."""

    num_return: ReturnCount = Field(1, description="How many texts to return; they share the work of the prompt.")
    stop: Stops = Field(
        (),
        description="The text ends before the first of these; each has at most 128 bytes.",
    )
    logprobs: Logprobs | None = Field(
        None,
        description="Return log-probabilities: `top` more per token, `of` the model or of what was sampled; with "
        "`prompt` also those of the prompt, which is then computed whole.",
    )
    resume: Resume | None = Field(None, description="Go on after token ids that already arrived.")
    explain: bool = Field(
        False,
        description="Return how each token was chosen: entropy, the number drawn, and what each stage left. Of a beam "
        "search, every step: which beams lived on, from which they came, and which ended.",
    )


class LogitsRequest(ModelField, PromptFields):
    """What a caller in process asks for the raw logits of a prompt."""

    all_positions: bool = Field(False, description="Of every position of the prompt, not of the last alone.")


class NextLogitsRequest(ModelField, PromptFields):
    """The body of `POST /logits`."""

    resume: Resume | None = Field(None, description="Token ids that follow the prompt, as `/generate` takes them.")
    top: int = Field(0, ge=0, le=100, description="How many of the likeliest tokens to name.")


class TokenizeRequest(ModelField):
    """The body of `POST /tokenize`."""

    text: str = Field(description="The text to encode, text only.")


class DetokenizeRequest(ModelField):
    """The body of `POST /detokenize`."""

    token_ids: Items[TokenId] = Field(description="The ids to decode; control tokens are written out.")
    tokens: bool = Field(False, description="Tell also what each token adds to an answer, in bytes.")


class ForkRequest(ModelField):
    """The body of `POST /sessions/{session_id}/fork`."""

    session_id: SessionId = Field(description="The name of the new session.")


Read = TypeVar("Read", bound=Body)


def read(kind: type[Read], value: Any) -> Read:
    """The JSON value as this kind of body. Raises InvalidField for the first thing that is wrong."""
    try:
        return _validated(kind, value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise invalid_field(first["type"], first["loc"], first["input"], schema(kind)) from None


def _validated(kind: type[Read], value: Any) -> Read:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        if not any(each["type"] == "int_type" and _is_whole(each["input"]) for each in error.errors(include_url=False)):
            raise
    return kind.model_validate(with_integers(value))


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def with_integers(value: Any) -> Any:
    """The same JSON value: 5.0 is the number 5, and some programs write every number so."""
    if isinstance(value, dict):
        return {name: with_integers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [with_integers(item) for item in value]
    return int(value) if _is_whole(value) else value


@cache
def schema(kind: type[Body]) -> Mapping[str, Any]:
    """The JSON schema of a body, whole: nothing in it refers to elsewhere."""
    document = kind.model_json_schema()
    definitions = document.pop("$defs", {})
    whole: dict[str, Any] = _inlined(document, definitions)
    return whole


def _inlined(part: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_inlined(item, definitions) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        name = part["$ref"].rsplit("/", 1)[-1]
        return _inlined(definitions[name] | {k: v for k, v in part.items() if k != "$ref"}, definitions)
    return {key: _inlined(value, definitions) for key, value in part.items()}
