"""From plain values to what a served model is asked: text, logits, tokens. What routes and callers in process share.

Knows bodies and models; knows no HTTP and no engine. Slow for long texts and for constraints.
Always: what is refused is refused by name, with InvalidField or NotFound.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from model.decoding.params import DecodingParameters
from service.context import Served, Service
from service.domain import Asked, check_token_ids, read_generate, read_prompt, text_errors
from service.errors import InvalidField
from service.request import GenerationRequest, LogitsOf
from service.responses import named_token
from service.schemas import (
    DetokenizeRequest,
    GenerateRequest,
    LogitsRequest,
    NextLogitsRequest,
    PromptFields,
    TokenizeRequest,
    read,
)

NOTHING_NEW = DecodingParameters(max_new_tokens=0, seed=0)


def ask_generate(value: Any, service: Service, request_id: str, key_id: str | None = None) -> tuple[Served, Asked]:
    """The model that a body of `/generate` asks, and what it asks for."""
    body = read(GenerateRequest, value)
    served = service.named(body.model)
    context_length = served.engine_info.context_length
    return served, read_generate(body, served.model, context_length, request_id, key_id=key_id)


@dataclass(frozen=True, slots=True)
class AskedLogits:
    """A request for the logits after a context, and how many of the likeliest tokens are to be named."""

    request: GenerationRequest
    top: int


def ask_logits(value: Any, service: Service, request_id: str) -> tuple[Served, GenerationRequest]:
    """The model whose raw logits are asked for, and the request that brings them and generates nothing."""
    body = read(LogitsRequest, value)
    served = service.named(body.model)
    return served, _reading(body, (), "all" if body.all_positions else "last", served, request_id)


def ask_position(value: Any, service: Service, request_id: str) -> tuple[Served, AskedLogits]:
    """The model that a body of `/logits` asks, and what it asks for."""
    body = read(NextLogitsRequest, value)
    served = service.named(body.model)
    resumed_ids = () if body.resume is None else body.resume.token_ids
    check_token_ids("resume.token_ids", resumed_ids, served.model.tokenizer.vocabulary_size)
    return served, AskedLogits(_reading(body, resumed_ids, "last", served, request_id), body.top)


def _reading(
    body: PromptFields, after: Sequence[int], of: LogitsOf, served: Served, request_id: str
) -> GenerationRequest:
    """A request that reads the prompt and what follows it, and generates nothing. Raises InvalidField."""
    field, prompt_ids = read_prompt(body, served.model)
    context_ids = (*prompt_ids, *after)
    context_length = served.engine_info.context_length
    if len(context_ids) > context_length:
        beside = f" and resume.token_ids {len(after)}" if after else ""
        raise InvalidField(
            f"the prompt has {len(prompt_ids)} tokens{beside}; the context holds {context_length}",
            code="context_length_exceeded",
            param=field if len(prompt_ids) > context_length else "resume.token_ids",
            allowed={"context_length": context_length, "prompt_tokens": len(prompt_ids)},
        )
    return GenerationRequest(request_id, context_ids, NOTHING_NEW, logits=of)


def encode(value: Any, service: Service) -> list[int]:
    """The token ids of a text, from a body of `/tokenize`."""
    body = read(TokenizeRequest, value)
    tokenizer = service.named(body.model).model.tokenizer
    with text_errors("text"):
        return tokenizer.encode(body.text)


def decode(value: Any, service: Service) -> dict[str, Any]:
    """The text of token ids, and what each is where that is wanted, from a body of `/detokenize`."""
    body = read(DetokenizeRequest, value)
    served = service.named(body.model)
    tokenizer, most = served.model.tokenizer, served.engine_info.context_length
    check_token_ids("token_ids", body.token_ids, tokenizer.vocabulary_size)
    if body.tokens and len(body.token_ids) > most:
        raise InvalidField(
            f"token_ids has {len(body.token_ids)} ids; with tokens it may have as many as the context holds, {most}",
            code="too_many",
            param="token_ids",
            allowed={"max_items": most},
        )
    named = {"tokens": [named_token(tokenizer, token_id) for token_id in body.token_ids]} if body.tokens else {}
    return {"text": tokenizer.decode(body.token_ids), **named}
