"""The running state of a request: its sequences, and what it has computed, generated and sent so far.

The one place where state changes while a request runs. Knows token ids, text and times that it is given; knows nothing
of tensors, HTTP or threads.
Always: once a sequence decodes, its lease holds the positions of its ids except the last generated one.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from model.decoding.choice import Constraint
from model.decoding.history import History
from model.decoding.params import DecodingParameters, Drawn
from model.decoding.transcript import Transcript
from model.kv_cache import Promise
from service.beams import Beam, Beams
from service.lease import Lease
from service.namespaces import Namespace
from service.prefix_tree import PrefixTree
from service.request import (
    CacheReport,
    Completion,
    Delta,
    FinishReason,
    GenerationRequest,
    SpeculationReport,
    Timings,
    TokenRecord,
    Usage,
)
from service.sessions import Session, Sessions, Turn


class Sequence:
    """One sample while it is generated."""

    def __init__(
        self,
        index: int,
        lease: Lease,
        transcript: Transcript,
        prompt_ids: tuple[int, ...],
        *,
        resumed_ids: tuple[int, ...] = (),
        history: History | None = None,
    ) -> None:
        """`transcript` knows how many tokens are resumed; they are gained like any others, before any others."""
        self.index = index
        self.lease = lease
        self.history = history
        self.constraint: Constraint | None = None
        """Set once the resumed tokens are gained, where it stands after them."""
        self.ids = [*prompt_ids, *resumed_ids]
        """Prompt and generated ids; those that are resumed are there from the start."""
        self.finish_reason: FinishReason | None = None
        self.logprob: float | None = None
        self.score: float | None = None
        self._transcript = transcript
        self._records: list[TokenRecord] = []
        self._resumed = self._sent = len(resumed_ids)

    @property
    def generated(self) -> int:
        """Tokens of the answer so far, those that were resumed included."""
        return len(self._records)

    @property
    def generated_anew(self) -> int:
        """Those that came after the resumed ones."""
        return max(0, len(self._records) - self._resumed)

    @property
    def last_id(self) -> int:
        """The token whose row runs next."""
        return self.ids[-1]

    def gain(self, tokens: tuple[Drawn, ...], parameters: DecodingParameters, eos_ids: frozenset[int]) -> int:
        """Append tokens until the text ends; answers how many it took."""
        for taken, drawn in enumerate(tokens, start=1):
            self._append(drawn, parameters, eos_ids)
            if self.finish_reason is not None:
                return taken
        return len(tokens)

    def delta(self, request_id: str) -> Delta | None:
        """The text that became final, and its tokens; everything once the text has ended."""
        text, count = self._transcript.close() if self.finish_reason else self._transcript.take()
        if not count:
            return None
        tokens = tuple(self._records[self._sent : self._sent + count])
        self._sent += count
        return Delta(request_id, self.index, text, tokens, self._sent)

    def completion(self) -> Completion:
        """The finished sample. Called after `delta` has flushed its text."""
        if self.finish_reason is None:
            raise ValueError("the sample has not ended")
        text, tokens = self._transcript.text, tuple(self._records)
        return Completion(self.index, text, tokens, self.finish_reason, self.logprob, self.score)

    def _append(self, drawn: Drawn, parameters: DecodingParameters, eos_ids: frozenset[int]) -> None:
        record = record_of(drawn)
        token_id = record.token_id
        self._records.append(record)
        if self.generated_anew:
            self.ids.append(token_id)
        if self.history is not None:
            self.history.push(token_id)
        if self.constraint is not None:
            self.constraint.advance(token_id)
        ends = token_id in eos_ids and not parameters.ignore_eos
        stops = token_id in parameters.stop_token_ids
        matched = self._transcript.push(token_id, hidden=ends or stops)
        if ends:
            self.finish_reason = "eos"
        elif stops or matched:
            self.finish_reason = "stop"
        elif self.generated == parameters.max_new_tokens:
            self.finish_reason = "length"


def record_of(drawn: Drawn) -> TokenRecord:
    """The token as the caller sees it. Raises ValueError for a draw that gave none."""
    if drawn.token_id is None:
        raise ValueError("a failed draw gives no token")
    return TokenRecord(drawn.token_id, drawn.logprob, drawn.top, drawn.explanation)


@dataclass(slots=True, eq=False)
class Active:
    """An accepted request that has not ended. Queued while it has no promise of pages."""

    request: GenerationRequest
    arrived: float
    namespace: Namespace
    session: Session | None = None
    promise: Promise | None = None
    sequences: list[Sequence] = field(default_factory=list)
    """Those that are returned; they grow by themselves, unless beams do."""
    beams: Beams | None = None
    completions: dict[int, Completion] = field(default_factory=dict)
    admitted_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    generated_tokens: int = 0
    reused_tokens: int = 0
    computed_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    prompt_records: list[TokenRecord] = field(default_factory=list)
    """The prompt's tokens from its second on, as far as their log-probabilities are known."""
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    """Of the prompt's rows that were asked for, as far as they have run."""
    turn: Turn = field(default_factory=lambda: Turn(take_over=False))
    context_ids: tuple[int, ...] = field(init=False)
    """The prompt and the tokens of the answer that are known, which run before anything is generated."""
    is_prefilling: bool = True
    """Whether they have not run to their end, so that nothing was drawn after them."""
    waiting_since: float = field(init=False)
    """Of a queued one."""
    preemptions: int = 0
    """How often it gave its pages back and waited again."""
    paused_s: float = 0.0
    """How long it waited then, until it was admitted again."""

    def __post_init__(self) -> None:
        self.context_ids = self.request.prompt_ids + self.request.resumed_ids
        self.waiting_since = self.arrived

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def tree(self) -> PrefixTree:
        """What is kept for its key."""
        return self.namespace.tree

    @property
    def sessions(self) -> Sessions:
        """Those of its key."""
        return self.namespace.sessions

    @property
    def deadline(self) -> float | None:
        return None if self.request.deadline_s is None else self.arrived + self.request.deadline_s

    @property
    def has_begun(self) -> bool:
        """Whether a token was generated."""
        return self.first_token_at is not None

    @property
    def tokens_left(self) -> int:
        """Most tokens that all its texts may still gain."""
        return self.request.sample_count * self.request.tokens_left - self.generated_tokens

    def preempt(self, now: float) -> None:
        """It has given its pages back: what it has so far is what it will go on after."""
        (sequence,) = self.sequences
        self.promise, self.context_ids, self.is_prefilling = None, tuple(sequence.ids), True
        self.waiting_since = now
        self.preemptions += 1

    @property
    def growing(self) -> list[Sequence] | list[Beam]:
        """What has a row in each step once the prompt has run."""
        return self.sequences if self.beams is None else self.beams.live

    @property
    def scores_prompt(self) -> bool:
        """Whether the log-probabilities of the prompt are wanted; once tokens are generated they are known."""
        options = self.request.parameters.logprobs
        return options is not None and options.prompt and not self.has_begun

    @property
    def asks_every_row(self) -> bool:
        """Whether something is wanted of each row of the prompt: every one of them runs then."""
        return self.scores_prompt or self.request.logits == "all"

    @property
    def retraces(self) -> bool:
        """Whether resumed tokens are drawn once more, since something is wanted of each draw."""
        parameters = self.request.parameters
        asks_of_draws = parameters.logprobs is not None or parameters.explain
        return bool(self.request.resumed_ids) and asks_of_draws and not self.has_begun

    @property
    def context_rows(self) -> int:
        """How many rows run before anything is generated: an answer that has ended draws nothing after its end."""
        return len(self.context_ids) - int(self.request.resumed_ends)

    @property
    def first_asked(self) -> int:
        """The first row of the context that something is wanted of, as of all after it; those before may be cached."""
        if self.asks_every_row:
            return 0
        return len(self.request.prompt_ids if self.retraces else self.context_ids) - 1

    def asked(self, start: int, end: int) -> int:
        """Of how many of the context's rows start … end − 1 something is wanted: the last ones."""
        return min(end - start, max(0, end - self.first_asked))

    def usage(self) -> Usage:
        """What was counted for this request so far; nothing while it is queued."""
        if self.admitted_at is None:
            return Usage()
        prompt_tokens = len(self.request.prompt_ids)
        cached_tokens = min(self.reused_tokens, prompt_tokens)
        return Usage(prompt_tokens, self.generated_tokens, cached_tokens, len(self.request.resumed_ids))

    def cache_report(self) -> CacheReport:
        return CacheReport(
            self.reused_tokens,
            self.computed_tokens,
            self.turn.evicted_tokens,
            self.turn.first_changed_token,
            self.turn.reason,
        )

    def speculation_report(self) -> SpeculationReport:
        return SpeculationReport(self.drafted_tokens, self.accepted_tokens)

    def timings(self, now: float) -> Timings:
        admitted = now if self.admitted_at is None else self.admitted_at
        first = now if self.first_token_at is None else self.first_token_at
        decode_s = now - first
        decoded = self.generated_tokens - self.request.sample_count
        rate = decoded / decode_s if decoded > 0 and decode_s > 0 else None
        waiting = now - self.waiting_since if self.preemptions and self.promise is None else 0.0
        return Timings(admitted - self.arrived, first - admitted, decode_s, rate, self.paused_s + waiting)
