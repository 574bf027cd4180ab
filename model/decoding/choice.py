"""What a step asks of the sampler, and what the sampler answers. One shape for every decoding rule.

Always: sample i of a request with seed s draws its t-th generated token with the uniform of (s, i, t).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from model.decoding.beam import Search
from model.decoding.history import History
from model.decoding.params import DecodingParameters, Drawn, Score


class Constraint(Protocol):
    """The form that one sequence's text must have, and how far it has come."""

    @property
    def failed(self) -> bool:
        """Whether it can say nothing any more: its sequence must fail."""

    def mask(self) -> NDArray[np.uint32]:
        """The tokens that may come next: bit (id mod 32) of word (id div 32)."""

    def settle(self, token_id: int, left: int) -> int:
        """The token to take where `token_id` was drawn and `left` tokens may still come, this one included: itself,
        unless nothing that conforms could then be reached in time."""

    def advance(self, token_id: int) -> None:
        """Take a token that the mask allows, or one that ends the text."""

    def fork(self) -> "Constraint":
        """The same constraint for a second sequence that stands where this one stands."""

    def accepts(self, drafts: Sequence[int]) -> int:
        """How many of the drafted tokens, from the first on, may follow one another."""

    def rollback(self, count: int) -> None:
        """Undo the last `count` calls of `advance`."""


@dataclass(frozen=True, slots=True)
class Asking:
    """One sequence that wants to go on."""

    rows: tuple[int, ...]
    """Which rows of the logits are its: its last token's, and one for each drafted token."""
    generated: int
    """Tokens that it has generated so far."""
    drafts: tuple[int, ...] = ()
    history: History | None = None
    constraint: Constraint | None = None
    given: tuple[int, ...] = ()
    """What the first of its rows drew in an earlier run: taken as it is, whatever is drawn now. No drafts then."""

    @property
    def ahead(self) -> tuple[int, ...]:
        """The tokens that lead from its first row to its others."""
        return self.given[: len(self.rows) - 1] or self.drafts


@dataclass(frozen=True, slots=True)
class Ask:
    """What one request wants from the rows it asked for in this step."""

    sequences: tuple[Asking, ...]
    parents: tuple[int, ...]
    """For each sequence after this step: which of `sequences` it continues. After a prompt of n samples: (0, … 0)."""
    sample_indices: tuple[int, ...]
    """For each sequence after this step: its sample index."""
    parameters: DecodingParameters
    prompt: tuple[Score, ...] = ()
    """Tokens of the prompt whose log-probabilities are wanted."""
    search: Search | None = None
    """The beam search that `sequences` are the live beams of, or its prompt; parents and samples are empty then."""
    raw: tuple[int, ...] = ()
    """Rows whose logits are wanted as they stand."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a rule picked for one request: which sequences go on, and with which tokens."""

    parents: tuple[int, ...]
    """For each sequence after this step: which of the asking sequences it continues."""
    tokens: tuple[tuple[Drawn, ...], ...]
    """For each sequence after this step: the tokens it gains, one or more."""
    prompt: tuple[Drawn, ...] = ()
    """The answers to the ask's `prompt`."""
    search: Search | None = None
    """The ask's search after this step; its live beams are the sequences that go on."""
    mismatch: bool = False
    """A given token was not drawn, so what is wanted of its draw cannot be told."""
    raw: NDArray[np.float32] | None = None
    """The logits of the ask's `raw` rows, [rows, vocabulary]."""
