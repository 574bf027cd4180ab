"""What a caller may ask of decoding, and what one draw needs. Plain values: no tensors, no text handling.

Always: every value here was checked at the door; the names are those of the HTTP fields.
"""

from dataclasses import dataclass
from typing import Literal

LogprobsOf = Literal["model", "sampled"]


@dataclass(frozen=True, slots=True)
class LogprobOptions:
    """Which log-probabilities to return: of the model (raw logits, τ = 1) or of the distribution drawn from."""

    top: int = 0
    of: LogprobsOf = "model"


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
    logprobs: LogprobOptions | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class Drawn:
    """The token drawn; `token_id` is None when the row held a NaN, or nothing finite to choose from."""

    token_id: int | None
    logprob: float | None = None
    """Natural logarithm, when log-probabilities were asked for."""
    top: tuple[TokenLogprob, ...] = ()
