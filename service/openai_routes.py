"""The routes that OpenAI's clients speak: models, completions and chats.

Knows OpenAI's paths; everything else is that of the native routes.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response

from service import sse
from service.context import Served, ServedModel
from service.exchange import begin_stream, whole_answer
from service.guard import key_id_of
from service.json_body import parse
from service.middleware import request_id_of
from service.model_description import described
from service.openai_domain import OpenAIAsked, in_words_of, read_chat, read_completion
from service.openai_responses import ChatAnswer, CompletionAnswer, OpenAIAnswer
from service.openai_schemas import ChatRequest, CompletionRequest, OpenAIBody
from service.openapi_answers import CHATTED, COMPLETED, MODEL, MODELS, answering
from service.request import Delta, Finished
from service.responses import is_long
from service.routes import documented, json_response, read_of, service_of, submit, written
from service.schemas import read

router = APIRouter(prefix="/v1")

OUR_FIELDS = (
    "sha256",
    "parameters",
    "bytes",
    "bits_per_weight",
    "recipe",
    "report",
    "evaluation",
    "draft",
    "engine",
    "reproducibility",
)
"""What a listed model has beside OpenAI's fields, as `/info` has it."""

OneBody = TypeVar("OneBody", bound=OpenAIBody)
Reader = Callable[[OneBody, ServedModel, int, str, str | None], OpenAIAsked]


class OpenAIStream:
    """The chunks of one answer."""

    def __init__(self, answer: OpenAIAnswer) -> None:
        self._answer = answer
        self._first = answer.first_chunks()

    def delta(self, delta: Delta) -> bytes:
        return self._events([self._answer.delta(delta)])

    def finished(self, event: Finished) -> bytes:
        return self._events(self._answer.last_chunks(event))

    def _events(self, chunks: list[dict[str, Any]]) -> bytes:
        """The chunks as events, after what must come first."""
        first, self._first = self._first, []
        return b"".join(map(sse.event, [*first, *chunks]))


@router.get("/models", openapi_extra=answering(MODELS))
async def list_models(request: Request) -> Response:
    """The served models."""
    service = service_of(request)
    models = [_described(served, service.started_at) for served in service.models.values()]
    return json_response({"object": "list", "data": models})


@router.get("/models/{model_id:path}", openapi_extra=answering(MODEL))
async def describe_model(request: Request, model_id: str) -> Response:
    """One served model."""
    service = service_of(request)
    return json_response(_described(service.named(model_id), service.started_at))


@router.post("/completions", openapi_extra=documented(CompletionRequest, answer=COMPLETED, streams=True))
async def complete(request: Request) -> Response:
    """Continue a prompt, as JSON or as a stream of chunks."""
    return await _answer(request, CompletionRequest, read_completion, CompletionAnswer)


@router.post("/chat/completions", openapi_extra=documented(ChatRequest, answer=CHATTED, streams=True))
async def chat(request: Request) -> Response:
    """Answer a conversation, as JSON or as a stream of chunks."""
    return await _answer(request, ChatRequest, read_chat, ChatAnswer)


async def _answer(
    request: Request, kind: type[OneBody], read_body: Reader[OneBody], form: type[OpenAIAnswer]
) -> Response:
    service = service_of(request)
    request_id = request_id_of(request.scope)

    def asked(raw: bytes) -> tuple[Served, OpenAIAsked]:
        body = read(kind, parse(raw))
        served = service.named(body.model)
        context_length, key_id = served.engine_info.context_length, key_id_of(request.scope)
        return served, read_body(body, served.model, context_length, request_id, key_id)

    served, what = await read_of(request, asked)
    with in_words_of(what.names):
        ticket = submit(request, served, what.asked.request)
    answer = form(served, what)
    if not what.asked.request.streams:
        event = await whole_answer(ticket, request.receive)
        return await written(lambda: answer.whole(event), is_long=is_long(event))
    stream = OpenAIStream(answer)
    return await begin_stream(ticket, request.receive, stream, request_id, service.settings.keep_alive_s)


def _described(served: Served, created: int) -> dict[str, Any]:
    about = described(served)
    return {
        "id": served.model.name,
        "object": "model",
        "created": created,
        "owned_by": "tane",
        **{name: about[name] for name in OUR_FIELDS},
    }
