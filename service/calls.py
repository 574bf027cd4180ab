"""What a client sends to a Tane server, and how the JSON that comes back is read.

Knows the shape of answers; opens no connection. Always: an answer becomes its value or a TaneError.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import httpx

from service.answers import Completion, Delta, Response, TaneError
from service.event_stream import EventStreamDecoder
from service.generate_fields import GenerateFields
from service.request import CacheReport, SessionInfo, SpeculationReport, Timings, Usage

Answer = TypeVar("Answer")
Item = TypeVar("Item")
DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[Any], Answer]
    body: Mapping[str, Any] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    """The fields that tell which requests this one belongs with."""

    def result(self, answer: httpx.Response) -> Answer:
        if answer.is_error:
            raise error_of(answer)
        with unexpected_shape(answer.status_code):
            return self.read(answer.json() if answer.content else None)


def generate(request: GenerateFields) -> Call[Response]:
    return Call("POST", "/generate", read_response, {**request}, request)


def tokenize(text: str, model: str | None) -> Call[list[int]]:
    body = {"text": text, **_chosen(model)}
    return Call("POST", "/tokenize", lambda answer: list(answer["token_ids"]), body)


def detokenize(token_ids: Sequence[int], model: str | None) -> Call[str]:
    body = {"token_ids": list(token_ids), **_chosen(model)}
    return Call("POST", "/detokenize", lambda answer: str(answer["text"]), body)


def sessions(model: str | None) -> Call[list[SessionInfo]]:
    path = "/sessions" + _query(model)
    return Call("GET", path, lambda answer: [known(SessionInfo, one) for one in answer["sessions"]])


def fork(session_id: str, new_session_id: str, model: str | None) -> Call[SessionInfo]:
    path = f"/sessions/{quote(session_id, safe='')}/fork"
    body = {"session_id": new_session_id, **_chosen(model)}
    return Call("POST", path, lambda answer: known(SessionInfo, answer), body, {"session_id": session_id})


def delete_session(session_id: str, model: str | None) -> Call[None]:
    path = f"/sessions/{quote(session_id, safe='')}{_query(model)}"
    return Call("DELETE", path, lambda answer: None, about={"session_id": session_id})


def _chosen(model: str | None) -> dict[str, str]:
    return {} if model is None else {"model": model}


def _query(model: str | None) -> str:
    return "" if model is None else f"?{urlencode({'model': model})}"


def info() -> Call[dict[str, Any]]:
    return Call("GET", "/info", dict)


def read_response(answer: Mapping[str, Any]) -> Response:
    """Raises KeyError or TypeError for anything but the answer of `POST /generate`."""
    choices = answer.get("choices") or [{"index": 0, **answer}]
    return Response(
        id=answer["id"],
        model=answer["model"],
        completions=tuple(_completion(choice) for choice in choices),
        seed=answer["seed"],
        parameters=answer["parameters"],
        usage=known(Usage, answer["usage"]),
        cache=known(CacheReport, answer["cache"]),
        timings=known(Timings, answer["timings"]),
        reproducibility=answer["reproducibility"],
        raw=answer,
        prompt_logprobs=_optional_tuple(answer.get("prompt_logprobs")),
        stopped=answer.get("stopped"),
        speculation=known(SpeculationReport, answer.get("speculation", {})),
    )


class EventReader:
    """The events out of the bytes of one stream, as the server wrote them."""

    def __init__(self) -> None:
        self._events = EventStreamDecoder()
        self.complete = False
        """Whether the whole response has come."""

    def feed(self, piece: bytes) -> Iterator[tuple[dict[str, Any], str]]:
        """Each event with its id. Raises TaneError when the stream carries an error, after what came before it."""
        for event in self._events.feed(piece):
            if event.data != DONE:
                yield self._item(event.data), event.id

    def _item(self, data: str) -> dict[str, Any]:
        with unexpected_shape(200):
            item: dict[str, Any] = json.loads(data)
            if "error" in item:
                raise _named(200, item["error"])
            self.complete = self.complete or "usage" in item
            return item

    def check_complete(self) -> None:
        """To be called when the bytes have ended. Raises TaneError when the response never came."""
        if not self.complete:
            raise TaneError(200, "stream_interrupted", "the stream ended before its response")


class StreamReader(EventReader):
    """The deltas and the closing response out of the bytes of one stream."""

    def values(self, piece: bytes) -> Iterator[Delta | Response]:
        """As `feed`."""
        for item, event_id in self.feed(piece):
            with unexpected_shape(200):
                value = read_response(item) if "usage" in item else _delta(item, int(event_id))
            yield value


@contextmanager
def transport_errors() -> Iterator[None]:
    """Turn the transport's failures into TaneError."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise TaneError(None, "timeout", "the server was silent for too long") from error
    except httpx.TransportError as error:
        raise TaneError(None, "connection_failed", str(error) or type(error).__name__) from error


def error_of(answer: httpx.Response) -> TaneError:
    """The error that an answer's body names, or one made from its status when the body is something else."""
    retry_after = answer.headers.get("retry-after", "")
    retry_after_s = int(retry_after) if retry_after.isdecimal() else None
    request_id = answer.headers.get("x-request-id")
    try:
        return _named(answer.status_code, answer.json()["error"], request_id, retry_after_s)
    except (ValueError, KeyError, TypeError, AttributeError):
        code = f"http_{answer.status_code}"
        message = answer.reason_phrase or "the server answered with an error"
        return TaneError(answer.status_code, code, message, request_id=request_id, retry_after_s=retry_after_s)


def _named(
    status: int, error: Mapping[str, Any], request_id: str | None = None, retry_after_s: int | None = None
) -> TaneError:
    return TaneError(
        status,
        error["code"],
        error["message"],
        error.get("param"),
        error.get("request_id") or request_id,
        type=error.get("type"),
        allowed=error.get("allowed"),
        retry_after_s=retry_after_s,
    )


@contextmanager
def unexpected_shape(status: int) -> Iterator[None]:
    """Raise TaneError for an answer that cannot be read as one of Tane's."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TaneError(status, "unexpected_answer", "the answer is not of the form Tane gives") from error


def _completion(choice: Mapping[str, Any]) -> Completion:
    return Completion(
        index=choice["index"],
        text=choice["text"],
        token_ids=tuple(choice["token_ids"]),
        finish_reason=choice["finish_reason"],
        logprobs=_optional_tuple(choice.get("logprobs")),
        explain=_optional_tuple(choice.get("explain")),
        logprob=choice.get("logprob"),
        score=choice.get("score"),
    )


def _delta(item: Mapping[str, Any], sent: int) -> Delta:
    return Delta(
        index=item["index"],
        text=item["text"],
        token_ids=tuple(item["token_ids"]),
        logprobs=_optional_tuple(item.get("logprobs")),
        sent=sent,
        explain=_optional_tuple(item.get("explain")),
    )


def _optional_tuple(values: Sequence[Item] | None) -> tuple[Item, ...] | None:
    return None if values is None else tuple(values)


def known(kind: type[Answer], values: Mapping[str, Any]) -> Answer:
    """The value made of those fields that this version of the client knows."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in names})
