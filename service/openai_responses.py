"""From events to the JSON of OpenAI's routes, in OpenAI's names.

Always: a stream is text chunks, one chunk with the finish reason for each index, and then the usage where it was
asked for; every choice and every chunk names its index.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from time import time
from typing import Any, ClassVar

from service.context import Serving
from service.openai_domain import OpenAIAsked
from service.openai_logprobs import CompletionLogprobs, chat_logprobs
from service.request import Completion, Delta, Finished, FinishReason
from service.responses import fingerprint

_FINISH: Mapping[FinishReason, str] = {"eos": "stop", "stop": "stop", "length": "length", "deadline": "length"}

Json = dict[str, Any]


class OpenAIAnswer(ABC):
    """The answer to one request, whole or in chunks."""

    ID: ClassVar[str]
    WHOLE: ClassVar[str]
    CHUNK: ClassVar[str]

    def __init__(self, serving: Serving, what: OpenAIAsked) -> None:
        request = what.asked.request
        self._tokenizer = serving.model.tokenizer
        self._with_logprobs = request.parameters.logprobs is not None
        self._sample_count = request.sample_count
        self._include_usage = what.include_usage
        # A constrained text is whole wherever it ends; clients take "length" for a text that was cut.
        self._finish = _FINISH if request.constraint is None else {**_FINISH, "length": "stop"}
        self._head = {
            "id": f"{self.ID}-{request.id}",
            "created": int(time()),
            "model": serving.model.name,
            "system_fingerprint": fingerprint(serving.engine_info, constrained=request.constraint is not None),
            "seed": request.parameters.seed,
        }

    def first_chunks(self) -> list[Json]:
        """What comes before the first text."""
        return []

    def delta(self, delta: Delta) -> Json:
        return self._chunk(delta.index, self._piece(delta), None)

    def last_chunks(self, event: Finished) -> list[Json]:
        """What follows the last text."""
        chunks = [
            self._chunk(done.index, self._nothing() | _of_beam(done), done.finish_reason) | _of_search(event)
            for done in event.completions
        ]
        if self._include_usage:
            chunks.append(self._head | {"object": self.CHUNK, "choices": [], "usage": _usage(event)})
        return chunks

    def whole(self, event: Finished) -> Json:
        choices = [
            self._choice(done.index, self._text(done) | _of_beam(done), done.finish_reason)
            for done in event.completions
        ]
        return self._head | {"object": self.WHOLE, "choices": choices, **_of_search(event), "usage": _usage(event)}

    def _chunk(self, index: int, content: Json, finish_reason: FinishReason | None) -> Json:
        usage = {"usage": None} if self._include_usage else {}
        return self._head | {"object": self.CHUNK, "choices": [self._choice(index, content, finish_reason)]} | usage

    def _choice(self, index: int, content: Json, finish_reason: FinishReason | None) -> Json:
        return {
            "index": index,
            **content,
            "finish_reason": None if finish_reason is None else self._finish[finish_reason],
        }

    @abstractmethod
    def _text(self, completion: Completion) -> Json:
        """What a whole choice holds of a text."""

    @abstractmethod
    def _piece(self, delta: Delta) -> Json:
        """What a chunk's choice holds of a piece of text."""

    @abstractmethod
    def _nothing(self) -> Json:
        """What a chunk's choice holds when no text is left."""


class CompletionAnswer(OpenAIAnswer):
    """The answer of `/v1/completions`."""

    ID, WHOLE, CHUNK = "cmpl", "text_completion", "text_completion"

    def __init__(self, serving: Serving, what: OpenAIAsked) -> None:
        super().__init__(serving, what)
        self._logprobs = [CompletionLogprobs(self._tokenizer) for _ in range(self._sample_count)]

    def _text(self, completion: Completion) -> Json:
        return self._written(completion)

    def _piece(self, delta: Delta) -> Json:
        return self._written(delta)

    def _nothing(self) -> Json:
        return {"text": "", "logprobs": None}

    def _written(self, part: Completion | Delta) -> Json:
        logprobs = self._logprobs[part.index].next(part.text, part.tokens) if self._with_logprobs else None
        return {"text": part.text, "logprobs": logprobs}


class ChatAnswer(OpenAIAnswer):
    """The answer of `/v1/chat/completions`."""

    ID, WHOLE, CHUNK = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def first_chunks(self) -> list[Json]:
        opening = {"delta": {"role": "assistant", "content": "", "refusal": None}, "logprobs": None}
        return [self._chunk(index, opening, None) for index in range(self._sample_count)]

    def _text(self, completion: Completion) -> Json:
        message = {"role": "assistant", "content": completion.text, "refusal": None}
        return {"message": message, "logprobs": self._chances(completion)}

    def _piece(self, delta: Delta) -> Json:
        return {"delta": {"content": delta.text}, "logprobs": self._chances(delta)}

    def _nothing(self) -> Json:
        return {"delta": {}, "logprobs": None}

    def _chances(self, part: Completion | Delta) -> Json | None:
        return chat_logprobs(self._tokenizer, part.tokens) if self._with_logprobs else None


def _of_beam(completion: Completion) -> Json:
    """What `/generate` says of a beam, in its names: OpenAI has none."""
    return {} if completion.score is None else {"logprob": completion.logprob, "score": completion.score}


def _of_search(event: Finished) -> Json:
    return {} if event.stopped is None else {"stopped": event.stopped}


def _usage(event: Finished) -> Json:
    usage, guesses = event.usage, event.speculation
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.generated_tokens,
        "total_tokens": usage.prompt_tokens + usage.generated_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {
            "accepted_prediction_tokens": guesses.accepted_tokens,
            "rejected_prediction_tokens": guesses.drafted_tokens - guesses.accepted_tokens,
        },
    }
