"""How well a model predicts windows of text, alone or beside a reference: figures of all tokens, window by window.

Knows no files and no op sets. Always: one window's logits are held at a time; every prediction counts alike, and a
window's first token, which nothing stands before, is not predicted.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from model.evaluation.agreement import (
    Agreement,
    Logits,
    Numbers,
    TokenScores,
    agreement,
    joined,
    negative_log_likelihoods,
    score_each,
)
from model.evaluation.corpus import Window


class Predicts(Protocol):
    def logits(self, ids: Sequence[int]) -> Logits:
        """[ids, vocabulary]: row i predicts what follows ids[: i + 1]."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Predictions of one model over windows of `width` tokens: an entry for each predicted token, in order."""

    width: int
    nll: Numbers
    against: TokenScores | None
    """The same predictions beside the reference's, when there is one."""

    @property
    def windows(self) -> int:
        return self.nll.size // (self.width - 1)

    @property
    def perplexity(self) -> float:
        """The exponential of the mean negative log-likelihood of all predicted tokens."""
        return float(np.exp(self.nll.mean()))

    def second_half(self) -> "Scored":
        """Only the predictions that see at least half of a window, which is what llama.cpp scores."""
        latter = np.tile(np.arange(self.width - 1) >= self.width // 2, self.windows)
        against = self.against
        if against is not None:
            fields = dataclasses.fields(TokenScores)
            against = TokenScores(**{field.name: getattr(against, field.name)[latter] for field in fields})
        return Scored((self.width + 1) // 2, self.nll[latter], against)

    def agreement(self) -> Agreement | None:
        return None if self.against is None else agreement(self.against, self.windows)

    def figures(self) -> dict[str, Any]:
        """As plain values; perplexity alone where there is no reference."""
        found = self.agreement()
        if found is not None:
            return dataclasses.asdict(found)
        return {"tokens": self.nll.size, "perplexity": self.perplexity}


def score_windows(
    candidates: Sequence[Predicts],
    windows: Sequence[Window],
    reference: Predicts | None = None,
    on_window: Callable[[], None] = lambda: None,
) -> list[Scored]:
    """For each candidate how it predicts the windows, all of one width. The reference predicts each window once."""
    widths = {len(ids) for _, ids in windows}
    assert len(widths) == 1, "windows of one width, and at least one"
    parts: list[list[tuple[Numbers, TokenScores | None]]] = []
    for _, ids in windows:
        parts.append(list(_score(candidates, reference, ids)))
        on_window()
    return [_joined(widths.copy().pop(), [window[index] for window in parts]) for index in range(len(candidates))]


def token_ids_sha256(windows: Sequence[Window]) -> str:
    """Of the ids of all windows in order, each as four bytes, the least first."""
    return hashlib.sha256(np.array([ids for _, ids in windows], dtype="<i4").tobytes()).hexdigest()


def _score(
    candidates: Sequence[Predicts], reference: Predicts | None, ids: Sequence[int]
) -> Iterator[tuple[Numbers, TokenScores | None]]:
    targets = ids[1:]
    if reference is None:
        for candidate in candidates:
            yield negative_log_likelihoods(candidate.logits(ids)[:-1], targets), None
        return
    expected = reference.logits(ids)[:-1]
    for scores in score_each(expected, [candidate.logits(ids)[:-1] for candidate in candidates], targets):
        yield scores.nll, scores


def _joined(width: int, parts: Sequence[tuple[Numbers, TokenScores | None]]) -> Scored:
    against = [scores for _, scores in parts if scores is not None]
    return Scored(width, np.concatenate([nll for nll, _ in parts]), joined(against) if against else None)
