"""A load client for any server that speaks `POST /v1/completions`, Tane or another.

Knows HTTP and what one stream looked like from outside; knows nothing of terminals.
Always: every request made is one `StreamRecord`, a failed one included; no two requests of a run share a prompt.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from service.cli.load_report import LevelReport, StreamRecord, level_report
from service.event_stream import EventStreamDecoder

ServerKind = Literal["tane", "llama.cpp", "vllm", "other"]

_COMMON = (
    "apple bread bridge brother butter castle chair church cloud coffee corner cotton country daughter desert "
    "dinner doctor dream engine evening farmer father field finger fire fish flower forest friend garden glass "
    "gold grass green hand harbor heart horse hotel house island kitchen letter light machine market meadow "
    "metal milk minute mirror money moon morning mother mountain music narrow night north ocean office orange "
    "paper pencil people picture planet pocket poem queen quiet rain river road room school season shadow ship "
    "silver sister smoke snow soldier south spring square station stone storm story street sugar summer sun "
    "table teacher thunder tower train travel valley village voice water weather window winter woman wood yellow"
)
WORDS = tuple(_COMMON.split())
"""Each is one token, with its space, in usual vocabularies."""


class LoadError(Exception):
    """The server cannot be driven at all."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What a run does. Each level of `concurrency` keeps so many streams open until its requests are done."""

    url: str
    model: str | None
    concurrency: tuple[int, ...]
    requests: int | None
    """At each level; None for eight, or two for each stream where that is more."""
    prompt_tokens: int
    output_tokens: int
    seed: int
    warmup: int
    timeout_s: float
    ignore_eos: bool = True
    tane_fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the body, where the server is Tane."""

    def requests_at(self, concurrency: int) -> int:
        return self.requests or max(8, 2 * concurrency)

    @property
    def request_count(self) -> int:
        return self.warmup + sum(self.requests_at(concurrency) for concurrency in self.concurrency)


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a run found."""

    server: ServerKind
    model: str
    levels: tuple[LevelReport, ...]


async def run_load(plan: LoadPlan, on_request: Callable[[], None]) -> LoadReport:
    """Drive the server through every level. `on_request` is called as each request ends.

    Raises LoadError when the server cannot be reached or no warm-up request succeeds.
    """
    # A server may close a connection that it kept open at the very moment when it is used again; a new one for each
    # request leaves no such error, and is the same for every server.
    async with httpx.AsyncClient(
        base_url=plan.url,
        headers={"connection": "close"},
        timeout=plan.timeout_s,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        trust_env=False,
    ) as http:
        driver = _Driver(http, plan, *await _identify(http, plan.model), on_request)
        await driver.warm_up()
        levels = [await driver.level(number) for number in range(len(plan.concurrency))]
    return LoadReport(driver.server, driver.model, tuple(levels))


def prompt_of(tokens: int, name: str) -> str:
    """About so many tokens of text; another name gives another text."""
    words = random.Random(name)
    return "The" + "".join(f" {words.choice(WORDS)}" for _ in range(tokens - 1))


async def _identify(http: httpx.AsyncClient, model: str | None) -> tuple[ServerKind, str]:
    """Which server answers, and the model to ask for: the one named, else the first that it lists."""
    try:
        listing = await http.get("/v1/models")
        kind = await _kind_of(http)
    except httpx.TransportError as error:
        raise LoadError(f"{http.base_url} does not answer: {error or type(error).__name__}") from error
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


@dataclass
class _Driver:
    """Makes the requests of one run."""

    http: httpx.AsyncClient
    plan: LoadPlan
    server: ServerKind
    model: str
    on_request: Callable[[], None]

    async def warm_up(self) -> None:
        records = [await self._request(f"warmup {index}") for index in range(self.plan.warmup)]
        if records and all(record.error for record in records):
            raise LoadError(f"no warm-up request succeeded: {records[-1].error}")

    async def level(self, number: int) -> LevelReport:
        """Keep the level's streams busy until its requests are done."""
        concurrency = self.plan.concurrency[number]
        names = iter([f"{number} {index}" for index in range(self.plan.requests_at(concurrency))])
        records: list[StreamRecord] = []
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(self._keep_busy(names, records))
        return level_report(concurrency, records, time.perf_counter() - started, self.plan.output_tokens)

    async def _keep_busy(self, names: Iterator[str], records: list[StreamRecord]) -> None:
        for name in names:
            records.append(await self._request(name))

    async def _request(self, name: str) -> StreamRecord:
        body = self._body(prompt_of(self.plan.prompt_tokens, f"{self.plan.seed} {name}"))
        observed = _Observed(time.perf_counter())
        error: str | None = None
        try:
            async with self.http.stream("POST", "/v1/completions", json=body) as answer:
                if answer.is_success:
                    await observed.read(answer.aiter_bytes())
                else:
                    error = _refusal(answer.status_code, await answer.aread())
        except httpx.TimeoutException:
            error = "timeout"
        except httpx.TransportError as failure:
            error = f"connection: {type(failure).__name__}"
        self.on_request()
        return observed.record(error)

    def _body(self, prompt: str) -> dict[str, Any]:
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": self.plan.output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.plan.ignore_eos:
            body["ignore_eos"] = True
            if self.server == "vllm":
                body["min_tokens"] = self.plan.output_tokens
        if self.server == "llama.cpp":
            body["cache_prompt"] = False
        if self.server == "tane":
            body |= self.plan.tane_fields
        return body


@dataclass
class _Observed:
    """One stream as it arrives."""

    started: float
    arrivals: list[float] = field(default_factory=list)
    prompt_tokens: int | None = None
    usage_tokens: int | None = None
    error: str | None = None
    is_complete: bool = False

    async def read(self, pieces: AsyncIterator[bytes]) -> None:
        decoder = EventStreamDecoder()
        async for piece in pieces:
            now = time.perf_counter()
            for event in decoder.feed(piece):
                self._take(event.data, now)

    def _take(self, data: str, now: float) -> None:
        if data == "[DONE]":
            self.is_complete = True
            return
        try:
            self._read_chunk(json.loads(data), now)
        except (ValueError, TypeError, AttributeError, KeyError):
            self.error = "stream: not understood"

    def _read_chunk(self, chunk: dict[str, Any], now: float) -> None:
        if chunk.get("error"):
            self.error = f"stream: {_code_of(chunk)}"
        if usage := chunk.get("usage"):
            self.prompt_tokens = int(usage["prompt_tokens"])
            self.usage_tokens = int(usage["completion_tokens"])
        if any(choice.get("text") or choice.get("token_ids") for choice in chunk.get("choices") or ()):
            self.arrivals.append(now)

    def record(self, error: str | None) -> StreamRecord:
        """`error` is why the request failed before its stream ended, if it did."""
        if error is None:
            error = self.error or (None if self.is_complete else "stream: ended early")
        if error is None and not self.arrivals:
            error = "stream: no tokens"
        return StreamRecord(
            started=self.started,
            ended=time.perf_counter(),
            arrivals=tuple(self.arrivals),
            prompt_tokens=self.prompt_tokens,
            usage_tokens=self.usage_tokens,
            error=error,
        )


def _refusal(status: int, body: bytes) -> str:
    try:
        return f"http {status}: {_code_of(json.loads(body))}"
    except ValueError:
        return f"http {status}"


def _code_of(answer: Any) -> str:
    """The code or type in the usual error envelopes, else a plain word."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        return str(error.get("code") or error.get("type") or "error")
    return "error"
