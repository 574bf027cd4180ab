"""The routes of sessions: what each model keeps warm under a name.

Knows HTTP; what a session is and may do is known to the engine.
Always: a name is one of a single model's sessions, and of those of the key that asks.
"""

import secrets
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response

from service.context import Served
from service.errors import InvalidField, NotFound, SessionBusy, SessionExists
from service.guard import key_id_of
from service.json_body import parse
from service.openapi_answers import SESSION, SESSIONS, answering
from service.request import CommandAnswer, DeleteSession, DescribeSession, ForkSession, ListSessions, SessionCommand
from service.routes import body_of, documented, json_response, service_of
from service.schemas import ForkRequest, ModelField, read, schema

IN_THE_QUERY: dict[str, Any] = {
    "parameters": [
        {
            "name": "model",
            "in": "query",
            "description": schema(ModelField)["properties"]["model"]["description"],
            "schema": {"type": "string"},
        }
    ]
}
"""What OpenAPI says of a query that is read by hand."""

router = APIRouter()


@router.get("/sessions", openapi_extra=IN_THE_QUERY | answering(SESSIONS))
async def list_sessions(request: Request) -> Response:
    """Every session, longest unused first."""
    answer = await _command(_named_in_query(request), ListSessions(_command_id(), key_id_of(request.scope)))
    return json_response({"sessions": [asdict(session) for session in answer.sessions]})


@router.get("/sessions/{session_id}", openapi_extra=IN_THE_QUERY | answering(SESSION))
async def describe_session(request: Request, session_id: str) -> Response:
    """One session."""
    command = DescribeSession(_command_id(), session_id, key_id_of(request.scope))
    return json_response(_only(await _command(_named_in_query(request), command)))


@router.delete("/sessions/{session_id}", status_code=204, openapi_extra=IN_THE_QUERY)
async def delete_session(request: Request, session_id: str) -> Response:
    """Forget a session and what the cache holds of it alone."""
    await _command(_named_in_query(request), DeleteSession(_command_id(), session_id, key_id_of(request.scope)))
    return Response(status_code=204)


@router.post(
    "/sessions/{session_id}/fork", status_code=201, openapi_extra=documented(ForkRequest, answer=SESSION, status=201)
)
async def fork_session(request: Request, session_id: str) -> Response:
    """A second session that stands where the first one stands."""
    body = read(ForkRequest, parse(await body_of(request)))
    served = service_of(request).named(body.model)
    command = ForkSession(_command_id(), session_id, body.session_id, key_id_of(request.scope))
    answer = await _command(served, command)
    return json_response(_only(answer), 201)


def _named_in_query(request: Request) -> Served:
    """The model whose sessions are meant. Raises NotFound, and InvalidField for a query that says anything else."""
    given = request.query_params
    query = read(ModelField, dict(given))
    if len(given.multi_items()) > 1:
        raise InvalidField("model may be given once", code="repeated_field", param="model")
    return service_of(request).named(query.model)


def _command_id() -> str:
    return secrets.token_hex(16)


async def _command(served: Served, command: SessionCommand) -> CommandAnswer:
    answer = await served.runtime.command(command)
    match answer.problem:
        case None:
            return answer
        case "session_not_found":
            raise NotFound("there is no such session", code="session_not_found", param="session_id")
        case "session_busy":
            raise SessionBusy("the session is generating; try again when it has ended", param="session_id")
        case "session_exists":
            raise SessionExists("there is a session of that name already", param="session_id")


def _only(answer: CommandAnswer) -> dict[str, Any]:
    (session,) = answer.sessions
    return asdict(session)
