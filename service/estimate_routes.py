"""`POST /estimate`: what a request of `/generate` would cost and hear if it were made now.

Knows HTTP; prices and refusals are the ledger's. Always: nothing is accepted, queued or counted; a body that
`/generate` would not understand gets the same error here.
"""

from typing import Any

from fastapi import APIRouter, Request, Response

from service.admission import Quote
from service.asking import ask_generate
from service.context import Served
from service.domain import Asked
from service.errors import envelope
from service.guard import key_id_of
from service.json_body import parse
from service.middleware import request_id_of
from service.openapi_answers import ESTIMATE
from service.request import GenerationRequest
from service.routes import documented, json_response, read_of, service_of
from service.schemas import GenerateRequest

router = APIRouter()


@router.post("/estimate", openapi_extra=documented(GenerateRequest, answer=ESTIMATE))
async def estimate(request: Request) -> Response:
    """Price a request of `/generate` without making it."""
    service = service_of(request)
    request_id = request_id_of(request.scope)

    def asked(raw: bytes) -> tuple[Served, Asked]:
        return ask_generate(parse(raw), service, request_id, key_id_of(request.scope))

    served, what = await read_of(request, asked)
    return json_response(_answer(served, what.request, served.runtime.quote(what.request)))


def _answer(served: Served, request: GenerationRequest, quote: Quote) -> dict[str, Any]:
    refusal = quote.refusal
    return {
        "model": served.model.name,
        "prompt_tokens": len(request.prompt_ids),
        "max_generated_tokens": request.sample_count * request.tokens_left,
        "cache_positions": quote.cache_positions,
        "cache_bytes": quote.cache_positions * served.engine_info.kv_bytes_per_token,
        "expected_wait_s": quote.expected_wait_s,
        "status": 200 if refusal is None else refusal.status,
        "retry_after_s": None if refusal is None else refusal.retry_after_s,
        "error": None if refusal is None else envelope(refusal, request.id)["error"],
    }
