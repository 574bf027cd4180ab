"""What a caller may ask of decoding, and what one draw needs. Plain values: no tensors, no text handling.

Always: every value here was checked at the door; the names are those of the HTTP fields.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

LogprobsOf = Literal["model", "sampled"]
PenaltyScope = Literal["generated", "all"]
Speculation = Literal["off", "prompt_lookup", "draft", "auto"]
StageName = Literal["model", "bias", "penalties", "mask", "temperature", "top_k", "top_p", "min_p"]


@dataclass(frozen=True, slots=True)
class LogprobOptions:
    """Which log-probabilities to return: of the model (raw logits, τ = 1) or of the distribution drawn from."""

    top: int = 0
    of: LogprobsOf = "model"
    prompt: bool = False
    """Also of the prompt's tokens, from the model's own distribution."""


@dataclass(frozen=True, slots=True)
class Penalties:
    """What makes tokens that were seen less likely. Control and EOS tokens are never penalised."""

    repetition: float = 1.0
    """Divides positive logits of seen tokens, multiplies the others (Keskar et al. 2019)."""
    scope: PenaltyScope = "generated"
    """Whether `repetition` sees the prompt too."""
    presence: float = 0.0
    frequency: float = 0.0

    @property
    def active(self) -> bool:
        return (self.repetition, self.presence, self.frequency) != (1.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class DecodingParameters:
    """How tokens are chosen and when a text ends."""

    max_new_tokens: int
    seed: int
    min_new_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: LogprobOptions | None = None
    beam_width: int = 1
    """1 is no beam search."""
    length_penalty: float = 0.0
    penalties: Penalties = field(default_factory=Penalties)
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(id, what is added to its logit), ids ascending."""
    banned_token_ids: tuple[int, ...] = ()
    speculation: Speculation = "off"
    explain: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class LogitEdits:
    """What is added to and taken from a row's logits before anything else, in float32 and in this order:

    `z[bias_ids] += bias_values`; then for every seen id `z = z / repetition` where z > 0, else `z · repetition`; then
    for every seen id whose count c is above 0 `z = z − (frequency · c + presence)`, the bracket in float32 too.
    """

    bias_ids: NDArray[np.int32]
    """Distinct."""
    bias_values: NDArray[np.float32]
    seen_ids: NDArray[np.int32]
    """Distinct; those that `repetition` applies to."""
    seen_counts: NDArray[np.int32]
    """How often each was generated; 0 for one that only the prompt holds."""
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0


@dataclass(frozen=True, slots=True)
class Draw:
    """One token to be chosen from one row of logits."""

    row: int
    """Which row of the logits."""
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    uniform: float
    """u in [0, 1): the first kept id, ascending, with C_j > u·C_last is drawn."""
    banned: tuple[int, ...] = ()
    edits: LogitEdits | None = None
    allowed: NDArray[np.uint32] | None = None
    """Bit (id mod 32) of word (id div 32) allows a token; None allows all."""
    logprobs: LogprobOptions | None = None
    explain: bool = False


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage of the choice left."""

    name: StageName
    candidates: int
    """Tokens of positive probability that are still in."""
    mass: float
    """Their share of the probability under the distribution that the stage was given: 1 where it dropped none."""
    top: tuple[tuple[int, float], ...]
    """(id, probability) of the likeliest after the stage, renormalised; probability descending, id ascending."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """How one token was chosen: only the stages that did something, after `model`, which is always there."""

    entropy: float
    """Of the model's own distribution (raw logits, τ = 1), in nats."""
    uniform: float | None
    """What was drawn; None where nothing is drawn, at temperature 0."""
    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """The token drawn; `token_id` is None when the row held a NaN, or nothing finite to choose from."""

    token_id: int | None
    logprob: float | None = None
    """Natural logarithm, when log-probabilities were asked for."""
    top: tuple[TokenLogprob, ...] = ()
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """The `count` likeliest tokens that one row leaves, for beam search."""

    row: int
    count: int
    banned: tuple[int, ...] = ()
    edits: LogitEdits | None = None
    allowed: NDArray[np.uint32] | None = None


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate of a beam. Its log-probability is of the log-softmax, over the whole vocabulary, of the row after
    bias and penalties, with masked tokens still in: they are excluded, and probabilities are not renormalised."""

    token_id: int
    logprob: float
    logit: float
    """After bias and penalties."""


@dataclass(frozen=True, slots=True)
class Score:
    """The model's own log-probability of a given token, and of the `top` likeliest, from one row of raw logits."""

    row: int
    token_id: int
    top: int = 0
