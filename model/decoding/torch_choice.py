"""Choices from rows of logits: tokens drawn, rankings for beams, scores of given tokens. For the torch op set only.

Knows rows, ids and numbers; nothing of sequences, seeds or the end of a text.
Always: a row's answer is a function of that row and what is asked of it; no other row, order or number of draws enters.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from model.decoding.edits import edited, masked
from model.decoding.explain import explain
from model.decoding.filters import (
    Candidates,
    Doubles,
    Floats,
    Indices,
    distribution,
    drawn_position,
    leading,
    running_sum,
)
from model.decoding.params import Draw, Drawn, Ranked, Ranking, Score, TokenLogprob

NOTHING = Drawn(token_id=None)


def choose(logits: torch.Tensor, draws: Sequence[Draw]) -> list[Drawn]:
    """One token for each draw, in their order, from its row of logits [rows, vocabulary].

    A row with a NaN or +∞, before or after its edits, or with nothing finite left, gives `Drawn(token_id=None)`.
    """
    if not draws:
        return []
    rows = _Rows(logits)
    return [rows.pick(draw) for draw in draws]


def rank(logits: torch.Tensor, rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]:
    """The likeliest tokens for each ranking: logit after edits descending, id ascending; none of a broken row."""
    if not rankings:
        return []
    rows = _Rows(logits)
    return [rows.rank(ranking) for ranking in rankings]


def score(logits: torch.Tensor, scores: Sequence[Score]) -> list[Drawn]:
    """The model's log-probability of each given token, and of the likeliest; nothing of a row that is broken."""
    if not scores:
        return []
    rows = _Rows(logits)
    return [rows.score(each) for each in scores]


class _Rows:
    """The rows of one call, read only; what several draws of a row share is computed once."""

    def __init__(self, logits: torch.Tensor) -> None:
        self._logits: Floats = logits.detach().to("cpu", torch.float32).numpy()
        self._maxima = self._logits.argmax(axis=1)  # the first of equals; a NaN passes for the greatest
        self._distributions: dict[tuple[object, ...], Candidates] = {}
        self._log_totals: dict[int, float] = {}

    def pick(self, draw: Draw) -> Drawn:
        drawn = self._pick(draw)
        if draw.explain and drawn.token_id is not None:
            return replace(drawn, explanation=explain(self._logits[draw.row], draw))
        return drawn

    def rank(self, ranking: Ranking) -> tuple[Ranked, ...]:
        row = edited(self._logits[ranking.row], ranking.edits) if self._is_sound(ranking.row) else None
        if row is None or (peak := float(row.max())) == -math.inf:
            return ()
        log_total = _log_total(row, peak)
        first = leading(masked(row, ranking), ranking.count)
        left = masked(row, ranking)[first]
        return tuple(
            Ranked(int(token_id), float(logit) - peak - log_total, float(logit))
            for token_id, logit in zip(first, left, strict=True)
            if logit > -math.inf
        )

    def score(self, score: Score) -> Drawn:
        return self._model_logprobs(score.row, score.token_id, score.top) if self._is_sound(score.row) else NOTHING

    def _is_sound(self, index: int) -> bool:
        return math.isfinite(self._logits[index, self._maxima[index]])

    def _pick(self, draw: Draw) -> Drawn:
        if not self._is_sound(draw.row):
            return NOTHING
        row = edited(self._logits[draw.row], draw.edits)
        if row is None:
            return NOTHING
        row = masked(row, draw)
        best = int(row.argmax())
        if row[best] == -math.inf:
            return NOTHING
        if draw.temperature == 0.0:
            return self._greedy(draw, best)
        kept = self._distribution(draw, row)
        position = drawn_position(kept, draw.uniform)
        if draw.logprobs is not None and draw.logprobs.of == "sampled":
            return _sampled(kept, position, draw.logprobs.top)
        return self._with_model_logprobs(draw, int(kept.token_ids[position]))

    def _greedy(self, draw: Draw, token_id: int) -> Drawn:
        if draw.logprobs is not None and draw.logprobs.of == "sampled":
            return Drawn(token_id, 0.0, (TokenLogprob(token_id, 0.0),)[: draw.logprobs.top])
        return self._with_model_logprobs(draw, token_id)

    def _distribution(self, draw: Draw, row: Floats) -> Candidates:
        """Draws without edits and constraints share what they filter alike."""
        key = (draw.row, draw.banned, draw.temperature, draw.top_k, draw.top_p, draw.min_p)
        if draw.edits is None and draw.allowed is None and key in self._distributions:
            return self._distributions[key]
        kept = distribution(row, temperature=draw.temperature, top_k=draw.top_k, top_p=draw.top_p, min_p=draw.min_p)
        if draw.edits is None and draw.allowed is None:
            self._distributions[key] = kept
        return kept

    def _with_model_logprobs(self, draw: Draw, token_id: int) -> Drawn:
        if draw.logprobs is None:
            return Drawn(token_id)
        return self._model_logprobs(draw.row, token_id, draw.logprobs.top)

    def _model_logprobs(self, index: int, token_id: int, top: int) -> Drawn:
        """The log-softmax of the row as the model gave it: no edit, mask, temperature or filter."""
        row = self._logits[index]
        peak = float(row[self._maxima[index]])
        if index not in self._log_totals:
            self._log_totals[index] = _log_total(row, peak)
        listed = leading(row, top)
        logprobs = row[[token_id, *listed]].astype(np.float64) - peak - self._log_totals[index]
        return Drawn(token_id, float(logprobs[0]), _listed(listed, logprobs[1:]))


def _log_total(row: Floats, peak: float) -> float:
    """log Σ e^(z − max z)."""
    weights: Doubles = torch.from_numpy(row).to(torch.float64).sub_(peak).exp_().numpy()
    return math.log(weights.sum())


def _sampled(kept: Candidates, position: int, top: int) -> Drawn:
    """The log-probabilities of the distribution drawn from."""
    log_total = math.log(running_sum(kept.weights)[-1])
    listed = leading(kept.logits, top)
    return Drawn(
        int(kept.token_ids[position]),
        float(kept.scaled[position]) - log_total,
        _listed(kept.token_ids[listed], kept.scaled[listed] - log_total),
    )


def _listed(token_ids: Indices, logprobs: Doubles) -> tuple[TokenLogprob, ...]:
    """By log-probability descending, id ascending, without tokens of probability zero: numbers are finite."""
    entries = [
        TokenLogprob(int(token_id), float(logprob))
        for token_id, logprob in zip(token_ids, logprobs, strict=True)
        if logprob > -math.inf
    ]
    return tuple(sorted(entries, key=lambda entry: (-entry.logprob, entry.token_id)))
