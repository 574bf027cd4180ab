"""The routes that OpenAI's clients and common load clients speak: models, and completions in their plain form.

Knows OpenAI's names; everything else is that of the native routes.
"""

from typing import Any

from fastapi import APIRouter, Request, Response

from service import sse
from service.context import Service
from service.domain import Asked, completion_error, read_completion
from service.errors import InvalidField, NotFound
from service.exchange import begin_stream, read_beside, whole_answer
from service.json_body import parse
from service.middleware import request_id_of
from service.openai_responses import CompletionAnswer
from service.request import Delta, Finished
from service.routes import body_of, documented, json_response, service_of
from service.schemas import CompletionRequest, read

router = APIRouter(prefix="/v1")


class CompletionStream:
    """The chunks of `/v1/completions`."""

    def __init__(self, answer: CompletionAnswer) -> None:
        self._answer = answer

    def delta(self, delta: Delta) -> bytes:
        return sse.event(self._answer.delta(delta))

    def finished(self, event: Finished) -> bytes:
        return b"".join(sse.event(chunk) for chunk in self._answer.last_chunks(event))


@router.get("/models")
async def list_models(request: Request) -> Response:
    """The served models."""
    return json_response({"object": "list", "data": [_model(service_of(request))]})


@router.get("/models/{model_id:path}")
async def describe_model(request: Request, model_id: str) -> Response:
    """One served model."""
    service = service_of(request)
    if model_id != service.model.name:
        raise NotFound("there is no such model", code="model_not_found", allowed=[service.model.name])
    return json_response(_model(service))


@router.post("/completions", openapi_extra=documented(CompletionRequest))
async def complete(request: Request) -> Response:
    """Continue a prompt, as JSON or as a stream of chunks."""
    service = service_of(request)
    request_id = request_id_of(request.scope)

    def asked(raw: bytes) -> tuple[Asked, bool]:
        body = read(CompletionRequest, parse(raw))
        what = read_completion(body, service.model, service.engine_info.context_length, request_id)
        return what, body.stream_options is not None and body.stream_options.include_usage

    try:
        what, include_usage = await read_beside(asked, await body_of(request))
        ticket = service.runtime.submit(what.request)
    except InvalidField as error:
        raise completion_error(error) from error
    answer = CompletionAnswer(service, what, include_usage=include_usage)
    if not what.request.streams:
        return json_response(answer.whole(await whole_answer(ticket, request.receive)))
    form = CompletionStream(answer)
    return await begin_stream(ticket, request.receive, form, request_id, service.settings.keep_alive_s)


def _model(service: Service) -> dict[str, Any]:
    return {"id": service.model.name, "object": "model", "created": service.started_at, "owned_by": "tane"}
