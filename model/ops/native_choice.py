"""Draws, rankings and scores as the compiled code takes them, and its answers as the op set gives them.

Knows the order of the tuples; computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from model.decoding.params import (
    Draw,
    Drawn,
    Explanation,
    LogitEdits,
    Ranked,
    Ranking,
    Score,
    Stage,
    StageName,
    TokenLogprob,
)
from model.native import _native

Rows = NDArray[np.float32]


class NativeChooser:
    """The native op set's choices from rows of logits [rows, vocabulary] that are handed over, without a model."""

    def __init__(self, isa: str = "auto", threads: int = 1) -> None:
        self._native = _native.Chooser(isa, threads)

    def choose(self, rows: Rows, draws: Sequence[Draw]) -> list[Drawn]:
        answers = self._native.choose(rows, [draw_tuple(draw) for draw in draws])
        return [drawn(draw, answer) for draw, answer in zip(draws, answers, strict=True)]

    def rank(self, rows: Rows, rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]:
        return [ranked(answer) for answer in self._native.rank(rows, [rank_tuple(each) for each in rankings])]

    def score(self, rows: Rows, scores: Sequence[Score]) -> list[Drawn]:
        return [scored(answer) for answer in self._native.score(rows, [score_tuple(each) for each in scores])]

    def read_logits(self, logits: Rows, rows: Sequence[int]) -> Rows:
        return logits[list(rows)]


def draw_tuple(draw: Draw) -> _native.DrawTuple:
    of, top = ("", 0) if draw.logprobs is None else (draw.logprobs.of, draw.logprobs.top)
    return (
        draw.row,
        draw.temperature,
        draw.top_k,
        draw.top_p,
        draw.min_p,
        draw.uniform,
        _changes(draw),
        of,
        top,
        draw.explain,
    )


def rank_tuple(ranking: Ranking) -> _native.RankTuple:
    return (ranking.row, ranking.count, _changes(ranking))


def score_tuple(score: Score) -> _native.ScoreTuple:
    return (score.row, score.token_id, score.top)


def drawn(draw: Draw, answer: _native.DrawnTuple) -> Drawn:
    token_id, logprob, top, explanation = answer
    if token_id < 0:
        return Drawn(None)
    plain = Drawn(token_id) if draw.logprobs is None else Drawn(token_id, logprob, _listed(top))
    return plain if explanation is None else replace(plain, explanation=_explanation(draw, explanation))


def ranked(answer: list[_native.RankedTuple]) -> tuple[Ranked, ...]:
    return tuple(Ranked(*each) for each in answer)


def scored(answer: _native.DrawnTuple) -> Drawn:
    token_id, logprob, top, _ = answer
    return Drawn(None) if token_id < 0 else Drawn(token_id, logprob, _listed(top))


def _changes(asked: Draw | Ranking) -> _native.ChangesTuple | None:
    if not asked.banned and asked.edits is None and asked.allowed is None:
        return None
    return (list(asked.banned), None if asked.edits is None else _edits(asked.edits), asked.allowed)


def _edits(edits: LogitEdits) -> _native.EditsTuple:
    return (
        edits.bias_ids,
        edits.bias_values,
        edits.seen_ids,
        edits.seen_counts,
        edits.repetition,
        edits.presence,
        edits.frequency,
    )


def _listed(top: _native.Numbered) -> tuple[TokenLogprob, ...]:
    return tuple(TokenLogprob(*each) for each in top)


def _explanation(draw: Draw, told: _native.ExplanationTuple) -> Explanation:
    entropy, stages = told
    return Explanation(
        entropy,
        draw.uniform if draw.temperature > 0.0 else None,
        tuple(Stage(cast(StageName, name), candidates, mass, tuple(top)) for name, candidates, mass, top in stages),
    )
