"""The native routes: generate, tokenize, information, health and metrics.

Knows HTTP and where each answer comes from; decides nothing about fields, tokens or the engine.
Always: a request is accepted or refused before any status line is sent.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from service import __version__, sse
from service.answers import FINGERPRINT
from service.asking import ask_generate, decode, encode
from service.beside import in_time, read_beside, write_beside
from service.context import Served, Service, Ticket
from service.domain import Asked
from service.errors import Draining, InvalidField, Overloaded
from service.exchange import begin_stream, whole_answer
from service.guard import key_id_of
from service.json_body import parse, read_body
from service.middleware import request_id_of
from service.model_description import described
from service.openapi_answers import DECODED, GENERATED, INFO, LIVE, READY, TOKEN_IDS, Schema, answering
from service.openapi_bodies import body_schema, example_of
from service.request import Delta, Finished, GenerationRequest
from service.request_log import NotedTicket, note_of
from service.responses import GenerateAnswer, is_long
from service.schemas import Body, DetokenizeRequest, GenerateRequest, TokenizeRequest

NOT_IN_INFO = {
    "model",
    "variant",
    "draft",
    "cache_folder",
    "keys_file",
    "insecure",
    "host",
    "port",
    "metrics_port",
    "cors_origin",
    "allowed_host",
    "engine",
    "max_queue_tokens",
    "otlp_endpoint",
}
"""Settings that are paths and addresses, or that `engine` shows as they took effect."""
BESIDE_THE_MODEL = ("draft", "engine", "reproducibility")
"""What `/info` tells of the main model beside `model`."""

Read = TypeVar("Read")

router = APIRouter()


def json_response(value: Any, status: int = 200) -> Response:
    return Response(sse.encode_json(value), status, media_type="application/json")


async def written(write: Callable[[], Any], *, is_long: bool) -> Response:
    """The JSON value that `write` makes, as an answer."""
    body = await write_beside(lambda: sse.encode_long_json(write()), is_long=is_long)
    return Response(body, media_type="application/json")


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def body_of(request: Request) -> bytes:
    """The raw body, unless there is no memory for it.

    Raises what `read_body` raises, RequestTimeout, Overloaded, and InvalidField for a model named elsewhere.
    """
    if "model" in request.query_params:
        raise InvalidField("model stands in the body of this route, not in the query", param="model")
    service = service_of(request)
    service.memory.check()
    limit = service.settings.max_body_bytes
    key_id = key_id_of(request.scope)
    body = await in_time(read_body(request.headers, request.receive, limit, service.arriving, key_id))
    service.memory.check()
    return body


async def read_of(request: Request, read: Callable[[bytes], Read]) -> Read:
    """What `read` makes of the raw body. Raises what it, `body_of` and `read_beside` raise."""
    raw = await body_of(request)
    return await read_beside(read, raw, key_id_of(request.scope))


def submit(request: Request, served: Served, asked: GenerationRequest) -> Ticket:
    """Accept what a route was asked for, and have its end noted. Raises what `Runtime.submit` raises."""
    note = note_of(request.scope)
    note.accept(served.model.name, asked)
    return NotedTicket(served.runtime.submit(replace(asked, key_id=note.key_id)), note)


def documented(*bodies: type[Body], answer: Schema, status: int = 200, streams: bool = False) -> dict[str, Any]:
    """What OpenAPI says of a body that is read by hand and has one of these forms, and of what it is answered with."""
    forms = [body_schema(body) for body in bodies]
    form = forms[0] if len(forms) == 1 else {"anyOf": forms}
    media = {"schema": form} | ({"example": example} if (example := example_of(bodies[0])) else {})
    body = {"requestBody": {"required": True, "content": {"application/json": media}}}
    return body | answering(answer, status=status, streams=streams)


class GenerateStream:
    """The events of `/generate`: an id counts the tokens of that index so far."""

    def __init__(self, answer: GenerateAnswer) -> None:
        self._answer = answer

    def delta(self, delta: Delta) -> bytes:
        return sse.event(self._answer.delta(delta), delta.sent)

    def finished(self, event: Finished) -> bytes:
        return sse.long_event(self._answer.whole(event))


@router.post("/generate", openapi_extra=documented(GenerateRequest, answer=GENERATED, streams=True))
async def generate(request: Request) -> Response:
    """Continue a prompt, as JSON or as a stream of events."""
    service = service_of(request)
    request_id = request_id_of(request.scope)

    def asked(raw: bytes) -> tuple[Served, Asked]:
        return ask_generate(parse(raw), service, request_id, key_id_of(request.scope))

    served, what = await read_of(request, asked)
    ticket = submit(request, served, what.request)
    answer = GenerateAnswer(served, what)
    if not what.request.streams:
        event = await whole_answer(ticket, request.receive)
        whole = await written(lambda: answer.whole(event), is_long=is_long(event))
        return _fingerprinted(whole, answer)
    form = GenerateStream(answer)
    stream = await begin_stream(ticket, request.receive, form, request_id, service.settings.keep_alive_s)
    return _fingerprinted(stream, answer)


def _fingerprinted(response: Response, answer: GenerateAnswer) -> Response:
    """Whoever joins pieces of several servers' answers must know beforehand whether they go together."""
    response.headers[FINGERPRINT] = answer.fingerprint
    return response


@router.post("/tokenize", openapi_extra=documented(TokenizeRequest, answer=TOKEN_IDS))
async def tokenize(request: Request) -> Response:
    """The token ids of a text."""
    service = service_of(request)
    return json_response({"token_ids": await read_of(request, lambda raw: encode(parse(raw), service))})


@router.post("/detokenize", openapi_extra=documented(DetokenizeRequest, answer=DECODED))
async def detokenize(request: Request) -> Response:
    """The text of token ids, and where that is wanted what each of them adds to an answer."""
    service = service_of(request)
    decoded = await read_of(request, lambda raw: decode(parse(raw), service))
    return await written(lambda: decoded, is_long="tokens" in decoded)


@router.get("/info", openapi_extra=answering(INFO))
async def info(request: Request) -> Response:
    """The models, their engines and the limits of this server; what stands at the top is of the main one."""
    service = service_of(request)
    models = [described(served) for served in service.models.values()]
    main = models[0]
    return json_response(
        {
            "name": "tane",
            "version": __version__,
            "model": {name: value for name, value in main.items() if name not in BESIDE_THE_MODEL},
            **{name: main[name] for name in BESIDE_THE_MODEL},
            "models": models,
            "settings": service.settings.model_dump(exclude=NOT_IN_INFO),
        }
    )


@router.get("/livez", openapi_extra=answering(LIVE))
async def livez(request: Request) -> Response:
    """Whether every engine moves."""
    hung = [name for name, served in service_of(request).models.items() if not served.runtime.is_live]
    if hung:
        raise Overloaded(f"the engine of {', '.join(hung)} does not move", code="not_live")
    return json_response({"status": "live"})


@router.get("/readyz", openapi_extra=answering(READY))
async def readyz(request: Request) -> Response:
    """Whether every model accepts requests, and there is memory for them."""
    service = service_of(request)
    if service.is_draining:
        raise Draining("the server is stopping")
    service.memory.check()
    missing = [name for name, served in service.models.items() if not served.runtime.is_ready]
    if missing:
        raise Overloaded(f"{', '.join(missing)} cannot take requests", code="not_ready")
    return json_response({"status": "ready"})


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """The numbers for Prometheus."""
    return Response(service_of(request).metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")
