"""A generation request inside the service, and the events that answer it. Frozen values only.

Knows nothing of HTTP, text schemas or tensors.
Always: every accepted request is answered by exactly one `Finished` or `Failed`, after any number of `Delta`s.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from model.decoding.beam import Ending, Stopped
from model.decoding.params import DecodingParameters, Explanation, TokenLogprob

if TYPE_CHECKING:  # the client library reads events too, and needs no grammars
    import numpy as np
    from numpy.typing import NDArray

    from model.decoding.choice import Constraint
    from model.decoding.constraint import CompiledConstraint

FinishReason = Literal["eos", "stop", "length", "deadline"]
CacheReason = Literal["disabled", "recomputed", "cold", "prefix", "append", "edit", "identical", "evicted"]
LogitsOf = Literal["last", "all"]
EvictionReason = Literal["edit", "capacity", "ttl", "explicit"]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What a caller asks, checked and tokenised."""

    id: str
    prompt_ids: tuple[int, ...]
    parameters: DecodingParameters
    sample_count: int = 1
    """How many texts are returned (`num_return`): samples, or the best that a beam search finds."""
    session_id: str | None = None
    use_cache: bool = True
    deadline_s: float | None = None
    """Seconds after submission."""
    streams: bool = False
    """Whether `Delta`s are wanted."""
    constraint: "CompiledConstraint | None" = None
    """The form of the text, shared with no other request; it can be met within `max_new_tokens`."""
    logits: LogitsOf | None = None
    """Of which positions of the prompt the raw logits are wanted; nothing is generated then."""
    key_id: str | None = None
    """Whose sessions and kept pages it uses, and whose limits; None where no keys are asked for."""
    resumed_ids: tuple[int, ...] = ()
    """The answer's first tokens, which the caller has already. One sample goes on after them."""
    resumed_ends: bool = False
    """Whether the last of them ends the answer; none before it does."""
    resumed_form: "Constraint | None" = field(default=None, compare=False)
    """Where they leave the constraint; to find out takes long. This request's own."""

    @property
    def read_tokens(self) -> int:
        """Tokens that are known before anything is generated."""
        return len(self.prompt_ids) + len(self.resumed_ids)

    @property
    def tokens_left(self) -> int:
        """Most tokens that each text may still gain."""
        return 0 if self.resumed_ends else self.parameters.max_new_tokens - len(self.resumed_ids)

    @property
    def searches(self) -> bool:
        """Whether beams are searched."""
        return self.parameters.beam_width > 1

    @property
    def sequence_count(self) -> int:
        """How many sequences may run at once."""
        return self.parameters.beam_width if self.searches else self.sample_count


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One generated token as the caller sees it."""

    token_id: int
    logprob: float | None = None
    top: tuple[TokenLogprob, ...] = ()
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request; cached ones are counted among the prompt's."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    cached_tokens: int = 0
    resumed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What the cache did for one request. `computed_tokens` counts prompt rows that ran.

    `first_changed_token` is where the prompt leaves its session's last prompt and answer; None when it continues them.
    """

    reused_tokens: int = 0
    computed_tokens: int = 0
    evicted_tokens: int = 0
    first_changed_token: int | None = None
    reason: CacheReason = "cold"


@dataclass(frozen=True, slots=True)
class SpeculationReport:
    """Tokens guessed ahead over all samples, and those of them that became part of a text."""

    drafted_tokens: int = 0
    accepted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds in the queue, in the prompt and in the generated tokens."""

    queue_s: float
    prefill_s: float
    decode_s: float
    tokens_per_second: float | None
    """Generated tokens over all samples per second of decoding; None when nothing was decoded."""
    paused_s: float = 0.0
    """Seconds of decoding in which it waited, having given its pages back to a request of another key."""


@dataclass(frozen=True, slots=True)
class BeamStep:
    """One beam after one step of a search."""

    parent: int
    """Which of the live beams of the step before it continues, from 0; 0 in the first step."""
    token_id: int
    logprob: float
    """The sum over its tokens."""
    ending: Ending | None
    """How it ended in this step; None for one that lives on."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished text."""

    index: int
    text: str
    tokens: tuple[TokenRecord, ...]
    finish_reason: FinishReason
    logprob: float | None = None
    """Of a beam: the sum that beams are ranked by."""
    score: float | None = None
    """Of a beam: its `logprob` over its length to the power of the length penalty."""


@dataclass(frozen=True, slots=True)
class Delta:
    """Text that is final, and exactly the tokens it comes from. `sent` counts this index's tokens so far."""

    request_id: str
    index: int
    text: str
    tokens: tuple[TokenRecord, ...]
    sent: int

    @classmethod
    def merged(cls, deltas: Sequence["Delta"]) -> "Delta":
        """One instead of several of the same index, in order."""
        last = deltas[-1]
        if len(deltas) == 1:
            return last
        text = "".join(delta.text for delta in deltas)
        tokens = tuple(token for delta in deltas for token in delta.tokens)
        return cls(last.request_id, last.index, text, tokens, last.sent)


@dataclass(frozen=True, slots=True)
class Finished:
    request_id: str
    completions: tuple[Completion, ...]
    usage: Usage
    cache: CacheReport
    timings: Timings
    prompt: tuple[TokenRecord, ...] = ()
    """The prompt's tokens from its second on, when their log-probabilities were asked for."""
    stopped: Stopped | None = None
    """Why a beam search ended."""
    speculation: SpeculationReport = field(default_factory=SpeculationReport)
    beams: tuple[tuple[BeamStep, ...], ...] = ()
    """Where that is wanted: of each step of a search the beams that live on, the best first, then those that ended."""
    logits: tuple["NDArray[np.float32]", ...] = ()
    """The raw logits of the prompt's positions that were asked for, in pieces of [positions, vocabulary]."""


FailureCode = Literal[
    "cancelled",
    "deadline_exceeded",
    "numerical_error",
    "constraint_failed",
    "resume_mismatch",
    "engine_failed",
    "engine_stopped",
]


@dataclass(frozen=True, slots=True)
class Failed:
    request_id: str
    code: FailureCode
    usage: Usage
    timings: Timings | None = None


Terminal = Finished | Failed
RequestEvent = Delta | Terminal


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One session as `GET /sessions` shows it. Tokens and bytes are what the cache still holds of it."""

    id: str
    tokens: int
    bytes: int
    idle_s: float
    busy: bool
    parent: str | None


@dataclass(frozen=True, slots=True)
class ListSessions:
    """Answered with every session of the key, oldest use first."""

    id: str
    key_id: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeSession:
    id: str
    session_id: str
    key_id: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteSession:
    id: str
    session_id: str
    key_id: str | None = None


@dataclass(frozen=True, slots=True)
class ForkSession:
    id: str
    session_id: str
    new_session_id: str
    key_id: str | None = None


SessionCommand = ListSessions | DescribeSession | DeleteSession | ForkSession
SessionProblem = Literal["session_not_found", "session_busy", "session_exists"]


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The answer to one session command: the sessions it concerns, or why it was refused."""

    command_id: str
    sessions: tuple[SessionInfo, ...] = ()
    problem: SessionProblem | None = None


Event = RequestEvent | CommandAnswer
