"""A model in this process: what `POST /generate` answers, and raw logits, without HTTP.

Knows the names of calls and of errors; what may be asked, what is answered and how it is computed is that of the
server. `model` in a call is the name of a served model, and None the main one.
Always: every call may be made from any thread, also beside others and inside a running event loop; the bits are those
that a server with the same settings gives.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, Unpack
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from service.answers import TaneError
from service.asking import ask_generate, ask_logits, decode, encode
from service.background import CLOSED, Background
from service.context import Service, Ticket
from service.domain import Asked
from service.errors import BadJson, Draining, InvalidField, NotFound, ServiceError, envelope
from service.generate_fields import GenerateFields
from service.middleware import new_request_id
from service.plain_values import plain_values
from service.request import Delta, Failed, Finished
from service.responses import GenerateAnswer, failure
from service.settings import Settings, SettingsError
from service.sse import encode_json
from service.startup import build_service

__all__ = ["Events", "InvalidValue", "Tane", "TaneError"]

OF_A_SERVER = frozenset(
    {
        "host",
        "port",
        "keys_file",
        "insecure",
        "metrics_port",
        "key_requests",
        "key_tokens_per_minute",
        "key_cache_share",
        "cors_origin",
        "allowed_host",
        "max_body_bytes",
        "drain_s",
        "lame_duck_s",
        "max_connections",
        "keep_alive_s",
        "log_level",
        "log_format",
        "otlp_endpoint",
    }
)
"""Settings that nothing here would look at."""


class InvalidValue(TaneError, ValueError):
    """A value that the caller can mend: `type`, `code`, `message`, `param` and `allowed` say what the server would."""


class Tane:
    """A model that is loaded and answers until `close()`, the end of a `with` block, or the end of the process.

    `model` is a GGUF file or a model's folder; None is the default model, pulled when missing. `settings` are those of
    `tane serve` that concern models (`threads`, `kv_cache_bytes`, `draft`, …); what is not given comes from the
    environment as it does there. Raises InvalidValue for settings, and ModelFileError or PullError for the model.
    """

    def __init__(self, model: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        self._open: Service | None = build_service(_settings({"model": model, **settings}))
        self._background = Background(self._open)
        self._finalizer = finalize(self, self._background.close_soon)
        self._finalizer.atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what still runs and give the memory back. May be called again."""
        self._background.close()
        self._open = None

    def generate(self, prompt: str | None = None, /, **fields: Unpack[GenerateFields]) -> dict[str, Any]:
        """The answer of `POST /generate` to these fields. Raises InvalidValue, and TaneError for what fails later."""
        with _errors() as request_id:
            served, asked = self._asked(prompt, fields, request_id)
            event = self._background.finish(served, asked.request)
            if isinstance(event, Failed):
                raise failure(event)
            return _as_json(GenerateAnswer(served, asked).whole(event))

    def chat(self, messages: Sequence[Mapping[str, str]], /, **fields: Unpack[GenerateFields]) -> dict[str, Any]:
        """`generate` for a conversation, `{role, content}` each."""
        fields["messages"] = messages
        return self.generate(**fields)

    def stream(self, prompt: str | None = None, /, **fields: Unpack[GenerateFields]) -> "Events":
        """The events of the stream of `POST /generate`: pieces of text, then the whole answer.

        The request runs from here on. Raises InvalidValue, and TaneError when it is refused.
        """
        with _errors() as request_id:
            served, asked = self._asked(prompt, fields, request_id, stream=True)
            return Events(self, self._background.begin(served, asked.request), GenerateAnswer(served, asked))

    def logits(
        self,
        prompt: str | None = None,
        /,
        *,
        prompt_tokens: Sequence[int] | NDArray[np.integer[Any]] | None = None,
        messages: Sequence[Mapping[str, str]] | None = None,
        model: str | None = None,
        all_positions: bool = False,
    ) -> NDArray[np.float32]:
        """The model's raw logits after the prompt, [vocabulary]; or after each of its tokens, [tokens, vocabulary].

        Those that a first token would be drawn from, before bias, penalties and temperature. Every row of
        `all_positions` is held in memory. Raises InvalidValue, and TaneError for what fails later.
        """
        given = {"prompt": prompt, "prompt_tokens": prompt_tokens, "messages": messages, "model": model}
        fields = {name: value for name, value in given.items() if value is not None}
        with _errors() as request_id:
            body = plain_values(fields | {"all_positions": all_positions})
            served, request = ask_logits(body, self._service, request_id)
            event = self._background.finish(served, request)
            if isinstance(event, Failed):
                raise failure(event)
            rows = event.logits[0] if len(event.logits) == 1 else np.concatenate(event.logits)
            return rows if all_positions else rows[-1]

    def tokenize(self, text: str, *, model: str | None = None) -> list[int]:
        """The token ids of a text. Raises InvalidValue."""
        with _errors():
            return encode(plain_values({"text": text, **_chosen(model)}), self._service)

    def detokenize(self, token_ids: Sequence[int], *, model: str | None = None) -> str:
        """The text of token ids; control tokens are written out. Raises InvalidValue."""
        with _errors():
            return str(decode(plain_values({"token_ids": token_ids, **_chosen(model)}), self._service)["text"])

    @property
    def _service(self) -> Service:
        service = self._open
        if service is None:
            raise Draining(CLOSED, code="closed")
        return service

    def _asked(
        self, prompt: str | None, fields: GenerateFields, request_id: str, *, stream: bool = False
    ) -> tuple[Any, Asked]:
        if "stream" in fields:
            raise InvalidField(
                "leave out stream: generate() answers whole, and stream() in pieces",
                code="invalid_combination",
                param="stream",
            )
        if prompt is not None:
            if "prompt" in fields:
                raise InvalidField("prompt is given twice", code="invalid_combination", param="prompt")
            fields["prompt"] = prompt
        return ask_generate(plain_values({**fields, "stream": stream}), self._service, request_id)


class Events(Iterator[dict[str, Any]]):
    """The events of one request. Closing it cancels the request, and so does forgetting it."""

    def __init__(self, tane: Tane, ticket: Ticket, answer: GenerateAnswer) -> None:
        self._tane = tane
        self._ticket = ticket
        self._answer = answer
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> dict[str, Any]:
        """Raises TaneError where the request fails; nothing comes after that."""
        if self._is_over:
            raise StopIteration
        with _errors():
            event = self._tane._background.next_event(self._ticket)
            if self._is_over:  # closed meanwhile, by another thread
                raise StopIteration
            if isinstance(event, Delta):
                return self._answer.delta(event)
            self._is_over = True
            if isinstance(event, Finished):
                return _as_json(self._answer.whole(event))
            raise failure(event)

    def close(self) -> None:
        """Cancel the request unless it has ended, and wait until it has: its session is free then."""
        if not self._is_over:
            self._is_over = True
            self._tane._background.end(self._ticket)

    def __del__(self) -> None:
        if not self._is_over:
            self._tane._background.cancel(self._ticket)


def _settings(given: Mapping[str, Any]) -> Settings:
    options = Settings.options().keys() - OF_A_SERVER
    for name in given:
        if name not in options:
            reason = "says how a server answers" if name in OF_A_SERVER else "is no setting"
            raise InvalidValue(
                422, "unknown_field", f"{name} {reason}", name, type=InvalidField.type, allowed=sorted(options)
            )
    plain = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in given.items()}
    try:
        return Settings.from_environment(plain)
    except SettingsError as error:
        name = error.names[0]
        problem = f"{name} must be {Settings.options()[name].allowed}" if plain.get(name) is not None else str(error)
        raise InvalidValue(422, "invalid_value", problem, name, type=InvalidField.type) from None


def _chosen(model: str | None) -> dict[str, str]:
    return {} if model is None else {"model": model}


def _as_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """The value as it would be once it was sent and read."""
    read: dict[str, Any] = json.loads(encode_json(value))
    return read


@contextmanager
def _errors() -> Iterator[str]:
    """Raise the service's errors as those of the client library. Yields an id for a request."""
    request_id = new_request_id()
    try:
        yield request_id
    except ServiceError as error:
        told = _as_json(envelope(error, request_id))["error"]
        kind = InvalidValue if isinstance(error, (InvalidField, BadJson, NotFound)) else TaneError
        raise kind(
            error.status,
            told["code"],
            told["message"],
            told["param"],
            request_id,
            type=told["type"],
            allowed=told["allowed"],
            retry_after_s=error.retry_after_s,
        ) from None
