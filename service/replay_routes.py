"""`POST /replay`: run a record again and say whether the answer is still the same.

Knows HTTP; what a record is and how answers are compared is known elsewhere.
Always: a record's request is admitted, queued and cancelled as any request of `/generate`.
"""

from fastapi import APIRouter, Request, Response

from service.beside import SHORT_BODY_BYTES, read_beside
from service.context import Served, Service
from service.exchange import whole_answer
from service.guard import key_id_of
from service.json_body import parse
from service.middleware import request_id_of
from service.openapi_answers import REPLAYED
from service.replay_record import RECORD_DEPTH, Record, Replay, read_record, replay_with, within
from service.replay_schemas import ReplayOfOne, ReplayRequest
from service.responses import GenerateAnswer, is_long
from service.routes import body_of, documented, json_response, service_of, submit, written

router = APIRouter()


@router.post("/replay", openapi_extra=documented(ReplayOfOne, ReplayRequest, answer=REPLAYED))
async def replay(request: Request) -> Response:
    """Run a recorded request again and compare the answers."""
    service = service_of(request)
    request_id = request_id_of(request.scope)

    def recorded(raw: bytes) -> tuple[Served, Replay]:
        record = read_record(parse(raw, max_depth=RECORD_DEPTH))
        served = _model_for(record, service)
        return served, replay_with(record, served, request_id, key_id_of(request.scope))

    raw = await body_of(request)
    served, what = await read_beside(recorded, raw, key_id_of(request.scope))
    if what.asked is None:
        return json_response(what.refused())
    with within("request"):
        ticket = submit(request, served, what.asked.request)
    finished = await whole_answer(ticket, request.receive)
    answer = GenerateAnswer(served, what.asked)
    # A record takes as long to compare as it is.
    long = is_long(finished) or len(raw) > SHORT_BODY_BYTES
    return await written(lambda: what.result(answer.whole(finished)), is_long=long)


def _model_for(record: Record, service: Service) -> Served:
    """The model that the caller names, else the one that answered, where it is served. Raises NotFound."""
    answered: str = record.answer["model"]
    if record.asked_for is None and answered in service.models:
        return service.models[answered]
    return service.named(record.asked_for)
