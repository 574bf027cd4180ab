"""From events to the JSON of `POST /generate`.

Knows the wire's names and the tokenizer's view of a token; decides nothing.
Always: what is returned is made of the events and of the request alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from model.decoding.constraint import CONSTRAINT_VERSION
from model.decoding.params import Stage
from service import __version__
from service.context import Serving, Tokenizer
from service.domain import Asked
from service.engine_info import EngineInfo
from service.errors import GenerationFailed
from service.request import BeamStep, Completion, Delta, Failed, FailureCode, Finished, TokenRecord

_FAILURES: Mapping[FailureCode, str] = {
    "cancelled": "the request was cancelled",
    "deadline_exceeded": "the deadline passed before the first token",
    "numerical_error": "the model gave a value that is not a number",
    "constraint_failed": "the constraint became too complex for this text",
    "resume_mismatch": "resume.token_ids holds a token that this request does not draw: it has no log-probability",
    "engine_failed": "the engine failed while it worked on this request",
    "engine_stopped": "the server stopped before the text was complete",
}


LONG_ANSWER = 4000
"""Log-probabilities that take some ten milliseconds to write down."""
_EXPLANATION = 40
"""What an explanation takes to write down, in log-probabilities."""


def is_long(event: Finished) -> bool:
    """Whether other callers' tokens should not wait until this is written down."""
    texts = (event.prompt, *(completion.tokens for completion in event.completions))
    return sum(len(tokens) * _entries(tokens[0]) for tokens in texts if tokens) > LONG_ANSWER


def _entries(token: TokenRecord) -> int:
    return 1 + len(token.top) + (0 if token.explanation is None else _EXPLANATION)


class GenerateAnswer:
    """The answer to one request of `/generate`, whole or in pieces."""

    def __init__(self, serving: Serving, asked: Asked) -> None:
        self._serving = serving
        self._asked = asked
        self._tokenizer = serving.model.tokenizer
        self._with_logprobs = asked.request.parameters.logprobs is not None

    @property
    def fingerprint(self) -> str:
        """What the answer's bits depend on beside the request: with a constraint also what makes its masks."""
        constrained = self._asked.request.constraint is not None
        return fingerprint(self._serving.engine_info, constrained=constrained)

    def delta(self, delta: Delta) -> dict[str, Any]:
        """One piece of a stream."""
        return {"index": delta.index, "text": delta.text, **self._tokens(delta.tokens)}

    def whole(self, event: Finished) -> dict[str, Any]:
        """The whole response; several completions stand in `choices`."""
        info = self._serving.engine_info
        several = self._asked.request.sample_count > 1
        completions = [self._completion(completion) for completion in event.completions]
        return {
            "id": event.request_id,
            "model": self._serving.model.name,
            **({"choices": completions} if several else _without_index(completions[0])),
            **({} if event.stopped is None else {"stopped": event.stopped}),
            **({"beams": [self._beams(step) for step in event.beams]} if event.beams else {}),
            "prompt_logprobs": self._prompt(event.prompt),
            "usage": asdict(event.usage),
            "seed": self._asked.request.parameters.seed,
            "parameters": self._asked.parameters,
            "cache": asdict(event.cache),
            "speculation": asdict(event.speculation),
            "timings": asdict(event.timings),
            "reproducibility": {
                "level": info.reproducibility_level,
                "fingerprint": self.fingerprint,
                "version": __version__,
            },
        }

    def _completion(self, completion: Completion) -> dict[str, Any]:
        beam = {} if completion.score is None else {"logprob": completion.logprob, "score": completion.score}
        return {
            "index": completion.index,
            "text": completion.text,
            **self._tokens(completion.tokens),
            "finish_reason": completion.finish_reason,
            **beam,
        }

    def _prompt(self, tokens: Sequence[TokenRecord]) -> list[Any] | None:
        """The first token has nothing before it that could make it likely."""
        options = self._asked.request.parameters.logprobs
        if options is None or not options.prompt:
            return None
        return [None, *(self._record(token) for token in tokens)]

    def _tokens(self, tokens: Sequence[TokenRecord]) -> dict[str, Any]:
        explained = self._asked.request.parameters.explain and not self._asked.request.searches
        return {
            "token_ids": [token.token_id for token in tokens],
            "logprobs": [self._record(token) for token in tokens] if self._with_logprobs else None,
            **({"explain": [self._explained(token) for token in tokens]} if explained else {}),
        }

    def _beams(self, step: Sequence[BeamStep]) -> list[dict[str, Any]]:
        return [asdict(beam) | {"text": self._tokenizer.token_text(beam.token_id)} for beam in step]

    def _explained(self, token: TokenRecord) -> dict[str, Any] | None:
        explanation = token.explanation
        if explanation is None:
            return None
        return {
            "token_id": token.token_id,
            "text": self._tokenizer.token_text(token.token_id),
            "entropy": explanation.entropy,
            "uniform": explanation.uniform,
            "stages": [self._stage(stage) for stage in explanation.stages],
        }

    def _stage(self, stage: Stage) -> dict[str, Any]:
        top = [
            {"token_id": token_id, "text": self._tokenizer.token_text(token_id), "probability": probability}
            for token_id, probability in stage.top
        ]
        return {"name": stage.name, "candidates": stage.candidates, "mass": stage.mass, "top": top}

    def _record(self, token: TokenRecord) -> dict[str, Any]:
        top = [_logprob(self._tokenizer, likely.token_id, likely.logprob) for likely in token.top]
        return _logprob(self._tokenizer, token.token_id, token.logprob) | {"top": top}


def fingerprint(info: EngineInfo, *, constrained: bool) -> str:
    """What the answer's bits depend on beside the request: with a constraint also what makes its masks."""
    return f"{info.fingerprint}-constraint-{CONSTRAINT_VERSION}" if constrained else info.fingerprint


def failure(event: Failed) -> GenerationFailed:
    """The error that a failed request's caller is told."""
    return GenerationFailed(_FAILURES[event.code], code=event.code)


def _without_index(completion: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in completion.items() if name != "index"}


def named_token(tokenizer: Tokenizer, token_id: int) -> dict[str, Any]:
    """A token for reading, and what it adds to an answer."""
    return {
        "token_id": token_id,
        "text": tokenizer.token_text(token_id),
        "bytes": list(tokenizer.token_bytes(token_id)),
    }


def _logprob(tokenizer: Tokenizer, token_id: int, logprob: float | None) -> dict[str, Any]:
    return named_token(tokenizer, token_id) | {"logprob": logprob}
