"""`POST /logits`: what a model makes of a context before anything is chosen.

Knows HTTP and the form of the answer; the row is the engine's.
Always: the logits are those that a token there is drawn from, to the last bit on the native engine.
"""

from base64 import b64encode
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray

from service.asking import AskedLogits, ask_position
from service.context import Served
from service.exchange import whole_answer
from service.json_body import parse
from service.middleware import request_id_of
from service.openapi_answers import LOGITS
from service.responses import fingerprint, named_token
from service.routes import documented, read_of, service_of, submit, written
from service.schemas import NextLogitsRequest

router = APIRouter()


@router.post("/logits", openapi_extra=documented(NextLogitsRequest, answer=LOGITS))
async def logits(request: Request) -> Response:
    """The raw logits of the token that would come next."""
    service = service_of(request)
    request_id = request_id_of(request.scope)

    def asked(raw: bytes) -> tuple[Served, AskedLogits]:
        return ask_position(parse(raw), service, request_id)

    served, what = await read_of(request, asked)
    event = await whole_answer(submit(request, served, what.request), request.receive)
    return await written(lambda: _answer(served, what, event.logits[-1][-1]), is_long=True)


def _answer(served: Served, asked: AskedLogits, row: NDArray[np.float32]) -> dict[str, Any]:
    info = served.engine_info
    return {
        "model": served.model.name,
        "context_tokens": len(asked.request.prompt_ids),
        "vocabulary_size": len(row),
        "logits": b64encode(row.astype("<f4").tobytes()).decode("ascii"),
        "top": [
            named_token(served.model.tokenizer, token_id) | {"logit": float(row[token_id])}
            for token_id in likeliest(row, asked.top)
        ],
        "reproducibility": {
            "level": info.reproducibility_level,
            "fingerprint": fingerprint(info, constrained=False),
        },
    }


def likeliest(row: NDArray[np.float32], count: int) -> list[int]:
    """The ids of the `count` greatest logits of a row [vocabulary] that are finite: logit descending, id ascending."""
    ranked = np.argsort(-row, kind="stable")[:count]
    return [token_id for token_id in ranked.tolist() if np.isfinite(row[token_id])]
