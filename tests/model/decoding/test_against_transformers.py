"""Candidates against the logits processors of `transformers`, and draws against the exact distribution."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model.decoding.params import Draw, LogitEdits, LogprobOptions
from model.native._native import philox_uniform
from tests.choosers import CHOOSERS, Chooser
from tests.reference.choosing import distance_to_a_cut
from tests.reference.sampling import filtered, ranking

CASES = 10_000
NEAR = 1e-6
"""Mass, or part of the likeliest, within which a cut may fall to either side."""


@dataclass(frozen=True, slots=True)
class Case:
    row: NDArray[np.float32]
    seen: tuple[int, ...]
    """Ids with repetitions, as they were generated."""
    repetition: float
    presence: float
    frequency: float
    filters: dict[str, Any]

    def draw(self) -> Draw:
        ids, counts = np.unique(np.array(self.seen, dtype=np.int32), return_counts=True)
        nothing = np.empty(0)
        edits = LogitEdits(
            bias_ids=nothing.astype(np.int32),
            bias_values=nothing.astype(np.float32),
            seen_ids=ids,
            seen_counts=counts.astype(np.int32),
            repetition=self.repetition,
            presence=self.presence,
            frequency=self.frequency,
        )
        options = LogprobOptions(top=len(self.row), of="sampled")
        return Draw(row=0, uniform=0.5, edits=edits, logprobs=options, **self.filters)


def cases(seed: int) -> Iterator[Case]:
    """Rows of 2 to 200 logits, half of them coarse, so that ties fall on cuts; every setting is often off."""
    rng = np.random.default_rng(seed)

    def either(off: float, on: Callable[[], float]) -> float:
        return off if rng.random() < 0.4 else on()

    def case_of(size: int) -> Case:
        row = rng.normal(0.0, rng.choice([0.5, 2.0, 5.0]), size)
        return Case(
            row=(np.round(row) if rng.random() < 0.5 else row).astype(np.float32),
            seen=tuple(rng.integers(0, size, rng.integers(0, 30)).tolist()),
            repetition=either(1.0, lambda: rng.uniform(0.5, 2.0)),
            presence=either(0.0, lambda: rng.uniform(-2.0, 2.0)),
            frequency=either(0.0, lambda: rng.uniform(-2.0, 2.0)),
            filters={
                "temperature": either(1.0, lambda: rng.uniform(0.1, 2.0)),
                "top_k": round(either(0.0, lambda: rng.uniform(1.0, size + 1.0))),
                "top_p": either(1.0, lambda: rng.uniform(0.05, 1.0)),
                "min_p": either(0.0, lambda: rng.uniform(0.0, 1.0)),
            },
        )

    for _ in range(CASES):
        yield case_of(int(rng.integers(2, 201)))


def penalised(case: Case) -> torch.Tensor:
    """[1, vocabulary] in float32: `transformers` for repetition, the formula of OpenAI for the other two."""
    from transformers import RepetitionPenaltyLogitsProcessor

    scores, seen = torch.from_numpy(case.row[None]), torch.tensor([case.seen], dtype=torch.long)
    if case.seen and case.repetition != 1.0:
        scores = RepetitionPenaltyLogitsProcessor(case.repetition)(seen, scores)
    counts = torch.bincount(seen[0], minlength=len(case.row)).float()
    taken = torch.tensor(case.frequency) * counts + torch.tensor(case.presence)
    return torch.where(counts > 0, scores - taken, scores)


def kept_by_transformers(scores: torch.Tensor, filters: dict[str, Any]) -> set[int]:
    from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    ids: Any = torch.empty((1, 0), dtype=torch.long)
    scores = TemperatureLogitsWarper(filters["temperature"])(ids, scores.double())
    if filters["top_k"]:
        scores = TopKLogitsWarper(filters["top_k"])(ids, scores)
    if filters["top_p"] < 1.0:
        scores = TopPLogitsWarper(filters["top_p"])(ids, scores)
    if filters["min_p"]:
        scores = MinPLogitsWarper(filters["min_p"])(ids, scores)
    return set(torch.isfinite(scores[0]).nonzero().flatten().tolist())


def is_clear(logits: list[float], filters: dict[str, Any]) -> bool:
    """Whether no tie lies on top-k's cut, nor on top-p's, and no mass near one of the others."""
    order = [logits[token] for token in ranking(logits)]
    kept = len(filtered(logits, **filters | {"min_p": 0.0}).token_ids)
    has_tie = any(0 < count < len(order) and order[count - 1] == order[count] for count in (filters["top_k"], kept))
    return not has_tie and distance_to_a_cut(logits, **filters) > NEAR


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOOSERS)
def test_candidates_are_those_of_transformers(name: str) -> None:
    """And of the full sort where ties or rounding decide."""
    chooser, clear, differ = CHOOSERS[name](), 0, []
    for number, case in enumerate(cases(seed=11)):
        scores = penalised(case)
        logits = [float(logit) for logit in scores[0]]
        clear += (is_clear_of_cuts := is_clear(logits, case.filters))
        expected = (
            kept_by_transformers(scores, case.filters)
            if is_clear_of_cuts
            else set(filtered(logits, **case.filters).token_ids)
        )
        (answer,) = chooser.choose(case.row[None], [case.draw()])
        if expected != {entry.token_id for entry in answer.top}:
            differ.append(number)

    assert [] == differ
    assert CASES * 0.6 < clear < CASES * 0.98


def chi_square(counts: Counter[int | None], probabilities: dict[int, float], draws: int) -> float:
    return math.fsum((counts[token] - draws * p) ** 2 / (draws * p) for token, p in probabilities.items())


DRAWS = 12_000
DISTRIBUTIONS: dict[str, dict[str, Any]] = {
    "the model's": {},
    "hot": {"temperature": 1.7},
    "cold": {"temperature": 0.4, "min_p": 0.01},
    "nucleus": {"temperature": 0.8, "top_p": 0.9},
    "all filters": {"temperature": 0.9, "top_k": 20, "top_p": 0.95, "min_p": 0.02},
}


def frequencies(chooser: Chooser, row: NDArray[np.float32], filters: dict[str, Any], seed: int) -> Counter[int | None]:
    """How often each token was drawn, with a uniform for each position of one sample."""
    draws = [Draw(row=0, uniform=philox_uniform(seed, 0, position), **filters) for position in range(DRAWS)]
    return Counter(answer.token_id for answer in chooser.choose(row[None], draws))


@pytest.mark.parametrize("given", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
@pytest.mark.parametrize("name", CHOOSERS)
def test_tokens_are_drawn_as_often_as_they_are_likely(name: str, given: dict[str, Any]) -> None:
    """Pearson's statistic stays within four standard deviations of its mean, above and below."""
    filters = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0} | given
    row = np.random.default_rng(5).normal(0.0, 1.5, 40).astype(np.float32)
    kept = filtered([float(logit) for logit in row], **filters)
    total = math.fsum(kept.weights)
    exact = {token: weight / total for token, weight in zip(kept.token_ids, kept.weights, strict=True)}

    counts = frequencies(CHOOSERS[name](), row, filters, seed=1)

    freedom = len(exact) - 1
    assert counts.keys() <= exact.keys()
    assert abs(chi_square(counts, exact, DRAWS) - freedom) < 4.0 * math.sqrt(2.0 * freedom)


def test_unlikely_frequencies_leave_the_bounds() -> None:
    """One token a fifth too often, and another as much too seldom."""
    freedom, expected = 19, DRAWS // 20
    counts: Counter[int | None] = Counter(dict.fromkeys(range(20), expected))
    counts[0] += expected // 5
    counts[1] -= expected // 5

    assert chi_square(counts, dict.fromkeys(range(20), 1 / 20), DRAWS) > freedom + 4.0 * math.sqrt(2.0 * freedom)
