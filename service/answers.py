"""What a Tane server answers, as values.

Knows the wire's field names; reads nothing and opens no connection. Always: what a newer server adds is left in
`Response.raw`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.request import CacheReport, SpeculationReport, Timings, Usage

FINGERPRINT = "x-tane-fingerprint"
"""The header that tells what an answer's bits depend on before any of it has come."""


class TaneError(Exception):
    """Anything but success. `status` is None when no answer came, and 200 when a stream failed on its way."""

    def __init__(
        self,
        status: int | None,
        code: str,
        message: str,
        param: str | None = None,
        request_id: str | None = None,
        *,
        type: str | None = None,
        allowed: Any = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(f"{message} ({code})")
        self.status = status
        self.type = type
        self.code = code
        self.message = message
        self.param = param
        self.request_id = request_id
        self.allowed = allowed
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Delta:
    """Text that is final, and the tokens it comes from. `sent` counts this index's tokens so far."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[Mapping[str, Any], ...] | None
    sent: int
    explain: tuple[Mapping[str, Any], ...] | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """One returned text."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    logprobs: tuple[Mapping[str, Any], ...] | None
    explain: tuple[Mapping[str, Any], ...] | None = None
    """How each token was chosen, when that was asked for."""
    logprob: float | None = None
    """Of a beam: the sum that beams are ranked by."""
    score: float | None = None
    """Of a beam: its `logprob` over its length to the power of the length penalty."""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer: one completion, or `num_return` of them. `raw` is the JSON object as it came."""

    id: str
    model: str
    completions: tuple[Completion, ...]
    seed: int
    parameters: Mapping[str, Any]
    usage: Usage
    cache: CacheReport
    timings: Timings
    reproducibility: Mapping[str, Any]
    raw: Mapping[str, Any]
    prompt_logprobs: tuple[Mapping[str, Any] | None, ...] | None = None
    """The prompt's log-probabilities, when they were asked for; nothing comes before its first token."""
    stopped: str | None = None
    """Why a beam search ended."""
    speculation: SpeculationReport = field(default_factory=SpeculationReport)

    @property
    def text(self) -> str:
        """The first completion's text."""
        return self.completions[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.completions[0].token_ids

    @property
    def finish_reason(self) -> str:
        return self.completions[0].finish_reason
