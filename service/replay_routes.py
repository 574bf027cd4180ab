"""`POST /replay`: run a record again and say whether the answer is still the same.

Knows HTTP; what a record is and how answers are compared is known elsewhere.
Always: a record's request is admitted, queued and cancelled as any request of `/generate`.
"""

from fastapi import APIRouter, Request, Response

from service.exchange import read_beside, whole_answer
from service.json_body import parse
from service.middleware import request_id_of
from service.replay_record import RECORD_DEPTH, Replay, read_record, within
from service.replay_schemas import ReplayOfOne, ReplayRequest
from service.responses import GenerateAnswer
from service.routes import body_of, documented, json_response, service_of

router = APIRouter()


@router.post("/replay", openapi_extra=documented(ReplayOfOne, ReplayRequest))
async def replay(request: Request) -> Response:
    """Run a recorded request again and compare the answers."""
    service = service_of(request)
    request_id = request_id_of(request.scope)

    def recorded(raw: bytes) -> Replay:
        return read_record(parse(raw, max_depth=RECORD_DEPTH), service, request_id)

    raw = await body_of(request)
    what = await read_beside(recorded, raw)
    if what.asked is None:
        return json_response(what.refused())
    with within("request"):
        ticket = service.runtime.submit(what.asked.request)
    finished = await whole_answer(ticket, request.receive)
    answer = GenerateAnswer(service, what.asked).whole(finished)
    # As long as the record is, so long may it take to compare.
    return json_response(await read_beside(lambda _: what.result(answer), raw))
