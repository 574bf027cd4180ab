"""From events to the JSON of `POST /v1/completions`, in OpenAI's names.

Always: a stream is text chunks, one chunk with the finish reason, and then the usage where it was asked for.
"""

from collections.abc import Mapping
from time import time
from typing import Any

from service.context import Service
from service.domain import Asked
from service.request import Delta, Finished, FinishReason, Usage

_FINISH: Mapping[FinishReason, str] = {"eos": "stop", "stop": "stop", "length": "length", "deadline": "length"}


class CompletionAnswer:
    """The answer to one request of `/v1/completions`, whole or in chunks."""

    def __init__(self, service: Service, asked: Asked, *, include_usage: bool) -> None:
        self._head = {
            "id": f"cmpl-{asked.request.id}",
            "object": "text_completion",
            "created": int(time()),
            "model": service.model.name,
            "system_fingerprint": service.engine_info.fingerprint,
            "seed": asked.request.parameters.seed,
        }
        self._include_usage = include_usage

    def delta(self, delta: Delta) -> dict[str, Any]:
        return self._chunk([_choice(delta.text, None)])

    def last_chunks(self, event: Finished) -> list[dict[str, Any]]:
        """What follows the last text."""
        chunks = [self._chunk([_choice("", _FINISH[event.completions[0].finish_reason])])]
        if self._include_usage:
            chunks.append(self._head | {"choices": [], "usage": _usage(event.usage)})
        return chunks

    def whole(self, event: Finished) -> dict[str, Any]:
        completion = event.completions[0]
        choice = _choice(completion.text, _FINISH[completion.finish_reason])
        return self._head | {"choices": [choice], "usage": _usage(event.usage)}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        usage = {"usage": None} if self._include_usage else {}
        return self._head | {"choices": choices} | usage


def _choice(text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.generated_tokens,
        "total_tokens": usage.prompt_tokens + usage.generated_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
