"""From a checked body to a `GenerationRequest`: the prompt becomes ids, defaults become values, limits are applied.

Knows the model's text and limits; knows no HTTP and no engine. Slow for long prompts and for constraints: call it off
the event loop then.
Always: every field of the body ends in the request or in the parameters that are echoed, or is refused by name.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from model.chat import ChatTemplateError, Message
from model.decoding.params import DecodingParameters, LogprobOptions, Penalties, Speculation
from model.loading.checkpoint import GenerationDefaults
from model.tokenizer import UnencodableText
from service.beam_fields import check_beam_fields
from service.constraints import compile_constraint
from service.context import ServedModel
from service.errors import InvalidField
from service.request import GenerationRequest
from service.resume_fields import check_resume_fields, resumed
from service.schemas import GenerateRequest, PromptFields

DEFAULT_NEW_TOKENS = 256
MAX_STOP_BYTES = 128
MAX_EXPLAINED_TOKENS = 4096
"""An explanation takes some kilobytes, which are kept until the answer is sent."""
MAX_REASON_LENGTH = 200
DRAWN_SEED_BITS = 53
"""A drawn seed is exact as a float64, which is all that some JSON readers know."""
PROMPTS = ("prompt", "prompt_tokens", "messages")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and every effective value of its fields as the caller is told them."""

    request: GenerationRequest
    parameters: Mapping[str, Any]


def read_generate(
    body: GenerateRequest,
    model: ServedModel,
    context_length: int,
    request_id: str,
    default_new_tokens: int = DEFAULT_NEW_TOKENS,
    *,
    key_id: str | None = None,
) -> Asked:
    """A request without a limit gets `default_new_tokens`, or what is left of the context. `key_id` is who asks.

    Raises InvalidField. The caller has chosen the model by `body.model`.
    """
    check_beam_fields(body)
    check_resume_fields(body, draws=_temperature(body, model) > 0)
    _check_tokens(body, model.tokenizer.vocabulary_size)
    if body.max_new_tokens is not None and body.max_new_tokens > context_length:
        raise InvalidField(
            f"max_new_tokens must be in [1, {context_length}]",
            code="out_of_range",
            param="max_new_tokens",
            allowed={"type": "integer", "minimum": 1, "maximum": context_length},
        )
    field, prompt_ids = read_prompt(body, model)
    new_tokens = _new_tokens(body, field, len(prompt_ids), context_length, default_new_tokens)
    _check_lengths(body, new_tokens)
    constraint = (
        None if body.constraint is None else compile_constraint(body, body.constraint, model, new_tokens, key_id)
    )
    resumed_ids = () if body.resume is None else body.resume.token_ids
    check_token_ids("resume.token_ids", resumed_ids, model.tokenizer.vocabulary_size)
    request = GenerationRequest(
        id=request_id,
        prompt_ids=tuple(prompt_ids),
        parameters=_decoding(body, model, new_tokens),
        sample_count=body.num_return,
        session_id=body.session_id,
        use_cache=body.use_cache,
        deadline_s=None if body.deadline_ms is None else body.deadline_ms / 1000,
        streams=body.stream,
        constraint=constraint,
        key_id=key_id,
        resumed_ids=resumed_ids,
    )
    request = resumed(request, model)
    return Asked(request, _effective(body, request, model.name))


def _check_lengths(body: GenerateRequest, new_tokens: int) -> None:
    if body.min_new_tokens > new_tokens:
        raise InvalidField(
            f"min_new_tokens is above max_new_tokens, which is {new_tokens}",
            code="invalid_combination",
            param="min_new_tokens",
            allowed={"minimum": 0, "maximum": new_tokens},
        )
    several = "num_return" if body.beam_width == 1 else "beam_width"
    told = new_tokens * (body.num_return if body.beam_width == 1 else body.beam_width)
    if body.explain and told > MAX_EXPLAINED_TOKENS:
        raise InvalidField(
            f"explain tells of at most {MAX_EXPLAINED_TOKENS} tokens, and max_new_tokens times {several} is {told}",
            code="invalid_combination",
            param="explain",
            allowed={"max_tokens": MAX_EXPLAINED_TOKENS},
        )


def _check_tokens(body: GenerateRequest, vocabulary_size: int) -> None:
    for index, text in enumerate(body.stop):
        if len(text.encode("utf-8")) > MAX_STOP_BYTES:
            raise InvalidField(
                f"a stop text has at most {MAX_STOP_BYTES} bytes",
                code="too_long",
                param=f"stop.{index}",
                allowed={"max_bytes": MAX_STOP_BYTES},
            )
    check_token_ids("stop_token_ids", body.stop_token_ids, vocabulary_size)
    check_token_ids("banned_token_ids", body.banned_token_ids, vocabulary_size)
    if len(set(body.banned_token_ids).union(body.stop_token_ids)) >= vocabulary_size:
        raise InvalidField(
            "banned_token_ids must leave a token that does not end the text",
            code="invalid_combination",
            param="banned_token_ids",
        )


def check_token_ids(field: str, token_ids: Sequence[int], vocabulary_size: int) -> None:
    """Raises InvalidField for an id that the vocabulary lacks."""
    if not token_ids or max(token_ids) < vocabulary_size:
        return
    index = next(index for index, token_id in enumerate(token_ids) if token_id >= vocabulary_size)
    raise InvalidField(
        f"{field}.{index} is not a token id: there are {vocabulary_size}",
        code="out_of_range",
        param=f"{field}.{index}",
        allowed={"type": "integer", "minimum": 0, "maximum": vocabulary_size - 1},
    )


def read_prompt(body: PromptFields, model: ServedModel) -> tuple[str, Sequence[int]]:
    """The name of the field that was given, and its ids. Raises InvalidField."""
    given = [name for name in PROMPTS if getattr(body, name) is not None]
    if not given:
        raise InvalidField(
            "one of prompt, prompt_tokens and messages is needed", code="missing", param="prompt", allowed=PROMPTS
        )
    if len(given) > 1:
        raise InvalidField(
            "only one of prompt, prompt_tokens and messages may be given",
            code="invalid_combination",
            param=given[1],
            allowed=PROMPTS,
        )
    with text_errors(given[0]):
        token_ids = _encode(body, model)
    if not token_ids:
        raise InvalidField(f"{given[0]} must not be empty", code="empty", param=given[0])
    return given[0], token_ids


@contextmanager
def text_errors(field: str) -> Iterator[None]:
    """Turn what the tokenizer and the chat template refuse into InvalidField."""
    try:
        yield
    except UnencodableText as error:
        raise InvalidField(f"{field}: {error}", code="unencodable_text", param=field) from error
    except ChatTemplateError as error:
        reason = error.reason[:MAX_REASON_LENGTH]
        raise InvalidField(
            f"{field} do not fit the model's chat template: {reason}", code="chat_template_refused", param=field
        ) from error


def _encode(body: PromptFields, model: ServedModel) -> Sequence[int]:
    if body.prompt is not None:
        return model.tokenizer.encode_prompt(body.prompt)
    if body.prompt_tokens is not None:
        check_token_ids("prompt_tokens", body.prompt_tokens, model.tokenizer.vocabulary_size)
        return body.prompt_tokens
    if model.chat_template is None:
        raise _no_chat(model.chat_problem)
    return model.chat_template.encode([Message(turn.role, turn.content) for turn in body.messages or ()])


def _no_chat(problem: str | None) -> InvalidField:
    if problem is None:
        message, code = "this model has no chat template", "no_chat_template"
    else:
        message, code = f"this model's chat template cannot be used: {problem[:MAX_REASON_LENGTH]}", "bad_chat_template"
    return InvalidField(f"{message}; send prompt instead", code=code, param="messages")


def _new_tokens(body: GenerateRequest, prompt_field: str, prompt_length: int, context_length: int, default: int) -> int:
    left = context_length - prompt_length
    asked = body.max_new_tokens
    if left >= (asked or 1):
        return asked or min(default, left)
    raise InvalidField(
        f"the prompt has {prompt_length} tokens, and with max_new_tokens {asked or 1} it needs "
        f"{prompt_length + (asked or 1)}; the context holds {context_length}",
        code="context_length_exceeded",
        param=prompt_field if left < 1 else "max_new_tokens",
        allowed={"context_length": context_length, "prompt_tokens": prompt_length, "max_new_tokens": max(left, 0)},
    )


def _decoding(body: GenerateRequest, model: ServedModel, new_tokens: int) -> DecodingParameters:
    # Beams draw nothing: what the model's own defaults say of drawing is not theirs.
    defaults = model.defaults if body.beam_width == 1 else GenerationDefaults()
    asked = body.logprobs
    temperature = _temperature(body, model)
    logprobs = None if asked is None else LogprobOptions(asked.top, asked.of, asked.prompt)
    return DecodingParameters(
        max_new_tokens=new_tokens,
        seed=secrets.randbits(DRAWN_SEED_BITS) if body.seed is None else body.seed,
        min_new_tokens=body.min_new_tokens,
        temperature=temperature,
        top_k=int(_first(body.top_k, defaults.top_k, 0)),
        top_p=_first(body.top_p, defaults.top_p, 1.0),
        min_p=_first(body.min_p, defaults.min_p, 0.0),
        stop=body.stop,
        stop_token_ids=body.stop_token_ids,
        ignore_eos=body.ignore_eos,
        logprobs=logprobs,
        penalties=Penalties(body.repetition_penalty, body.penalty_scope, body.presence_penalty, body.frequency_penalty),
        logit_bias=_logit_bias(body.logit_bias, model.tokenizer.vocabulary_size),
        banned_token_ids=tuple(sorted(set(body.banned_token_ids))),
        speculation=_speculation(body, model, temperature),
        explain=body.explain,
        beam_width=body.beam_width,
        length_penalty=body.length_penalty,
    )


def _temperature(body: GenerateRequest, model: ServedModel) -> float:
    return _first(body.temperature, model.defaults.temperature, 1.0) if body.beam_width == 1 else 1.0


def _speculation(body: GenerateRequest, model: ServedModel, temperature: float) -> Speculation:
    """How tokens are guessed ahead for this request. Raises InvalidField for a way that it names and cannot have."""
    if body.speculation == "off" or (body.speculation == "auto" and body.beam_width > 1):
        return "off"
    allowed = ["off", "auto"]
    if temperature > 0 and not model.repeats_bits:
        problem = "is available only at temperature 0 on this server's op set"
    elif body.speculation == "draft" and model.draft is None:
        problem = "needs a draft model, which --draft gives the main model"
        allowed = ["off", "prompt_lookup", "auto"]
    else:
        return body.speculation
    if body.speculation == "auto":
        return "off"
    raise InvalidField(
        f"speculation {body.speculation} {problem}",
        code="invalid_combination",
        param="speculation",
        allowed=allowed,
    )


def _logit_bias(bias: Mapping[str, float], vocabulary_size: int) -> tuple[tuple[int, float], ...]:
    """(id, bias), ids ascending. Raises InvalidField."""
    if not all(_is_token_id(name, vocabulary_size) for name in bias):
        raise InvalidField(
            f"the names in logit_bias must be token ids below {vocabulary_size}",
            code="out_of_range",
            param="logit_bias",
            allowed={"keys": {"type": "integer", "minimum": 0, "maximum": vocabulary_size - 1}},
        )
    return tuple(sorted((int(name), value) for name, value in bias.items()))


def _is_token_id(name: str, vocabulary_size: int) -> bool:
    """Whether it is an id as JSON writes a number: no sign, no leading zero, no other script's digits."""
    is_short = len(name) <= len(str(vocabulary_size))
    return is_short and name.isascii() and name.isdecimal() and name == str(int(name)) and int(name) < vocabulary_size


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)


def _effective(body: GenerateRequest, request: GenerationRequest, model_name: str) -> Mapping[str, Any]:
    decoding = request.parameters
    # To a search 0 and 1 are one: it draws nothing.
    temperature = decoding.temperature if body.beam_width == 1 else _first(body.temperature, decoding.temperature)
    return body.model_dump(exclude=set(PROMPTS)) | {
        "model": model_name,
        "max_new_tokens": decoding.max_new_tokens,
        "temperature": temperature,
        "top_k": decoding.top_k,
        "top_p": decoding.top_p,
        "min_p": decoding.min_p,
        "seed": decoding.seed,
        "speculation": decoding.speculation,
    }
