"""One server under load, Tane or another: which it is, and what each request to it looked like from outside.

Knows HTTP; knows nothing of levels or terminals.
Always: every request is one `StreamRecord`, a failed one included; the key is sent and never told.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import httpx

from service.affinity import HEADER, Caller
from service.cli.load_plan import LoadPlan, Question, Target
from service.cli.load_report import StreamRecord
from service.cli.load_stream import ObservedStream, refusal

ServerKind = Literal["tane", "llama.cpp", "vllm", "other"]
REPLICA = "x-tane-replica"
"""The header in which one of several servers behind a router names itself."""


class LoadError(Exception):
    """The server cannot be driven at all."""


@asynccontextmanager
async def connected(target: Target, plan: LoadPlan) -> AsyncIterator["LoadClient"]:
    """Find out which server answers, and ask it until the block ends. Raises LoadError."""
    # A server may close a connection that it kept open at the very moment when it is used again; a new one for each
    # request leaves no such error, and is the same for every server.
    caller = Caller(target.api_key)
    async with httpx.AsyncClient(
        base_url=target.url,
        headers={"connection": "close", **caller.headers},
        timeout=plan.timeout_s,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        trust_env=False,
    ) as http:
        kind, model = await _identify(http, target.model)
        if plan.has_sessions and kind != "tane":
            raise LoadError(f"{target.url} has no POST /generate with session_id, which sessions need: it is no Tane")
        yield LoadClient(http, plan, kind, model, caller)


@dataclass(frozen=True)
class LoadClient:
    """Asks one server."""

    http: httpx.AsyncClient
    plan: LoadPlan
    kind: ServerKind
    model: str
    caller: Caller

    async def ask(self, question: Question, due: float | None = None) -> StreamRecord:
        """`due` is when the request should have begun; what it waited since then counts as its time."""
        observed = ObservedStream(time.perf_counter() if due is None else due, question.output_tokens)
        is_turn = question.session_id is not None
        route = "/generate" if is_turn else "/v1/completions"
        body = self._turn(question) if is_turn else self._completion(question)
        headers = self.caller.affinity(body)
        error = replica = None
        try:
            async with self.http.stream("POST", route, json=body, headers=headers) as answer:
                replica = answer.headers.get(REPLICA)
                if answer.is_success:
                    await observed.read(answer.aiter_bytes())
                else:
                    error = refusal(answer.status_code, await answer.aread())
        except httpx.TimeoutException:
            error = "timeout"
        except httpx.DecodingError:
            error = "stream: not understood"
        except httpx.TransportError as failure:
            error = f"connection: {type(failure).__name__}"
        return replace(observed.record(error), affinity=headers.get(HEADER), replica=replica)

    async def forget(self, session_id: str) -> None:
        """Delete a session; one that never came to be is not missed."""
        try:
            headers = self.caller.affinity({"session_id": session_id})
            await self.http.delete(f"/sessions/{session_id}", params={"model": self.model}, headers=headers)
        except httpx.RequestError as failure:
            reason = type(failure).__name__
            raise LoadError(f"{self.http.base_url} keeps the session {session_id}: {reason}") from failure

    def _turn(self, question: Question) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": question.prompt,
            "max_new_tokens": question.output_tokens,
            "temperature": 0,
            "stream": True,
            "session_id": question.session_id,
            **({"ignore_eos": True} if self.plan.ignore_eos else {}),
            **self.plan.tane_fields,
        }

    def _completion(self, question: Question) -> dict[str, Any]:
        body = {
            "model": self.model,
            "prompt": question.prompt,
            "max_tokens": question.output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.plan.ignore_eos:
            body["ignore_eos"] = True
            if self.kind == "vllm":
                body["min_tokens"] = question.output_tokens
        if self.kind == "llama.cpp":
            body["cache_prompt"] = self.plan.shared_prefix > 0
        if self.kind == "tane":
            body |= self.plan.tane_fields
        return body


async def _identify(http: httpx.AsyncClient, model: str | None) -> tuple[ServerKind, str]:
    """Which server answers, and the model to ask for: the one named, else the first that it lists."""
    try:
        listing = await http.get("/v1/models")
        kind = await _kind_of(http)
    except httpx.RequestError as error:
        raise LoadError(f"{http.base_url} does not answer: {error or type(error).__name__}") from error
    if model is None and listing.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise LoadError(f"{http.base_url} refuses the key, or wants one: set TANE_API_KEY")
    return kind, model or _first_model(listing)


async def _kind_of(http: httpx.AsyncClient) -> ServerKind:
    if _is_tane(await http.get("/info")):
        return "tane"
    if (await http.get("/props")).is_success:
        return "llama.cpp"
    if (await http.get("/version")).is_success:
        return "vllm"
    return "other"


def _is_tane(info: httpx.Response) -> bool:
    try:
        return bool(info.json()["name"] == "tane")
    except (ValueError, KeyError, TypeError):
        return False


def _first_model(listing: httpx.Response) -> str:
    try:
        return str(listing.json()["data"][0]["id"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise LoadError("the server lists no models at /v1/models; name one with --model") from error
