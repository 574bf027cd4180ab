"""Pruning a row of weights by magnitude, by saliency alone and by surgery, as its inputs come to move together.

Knows one row and artificial inputs. Always: the three ways prune equally many weights of the same row, and deviations
are measured on the inputs that the Hessian was made from.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from model.compression.hessian import HessianSum, Matrix, Vector, conditioned
from model.compression.obs import surgery, without_smallest
from model.compression.scores import magnitude, saliency

WIDTH, SAMPLES = 64, 512
SHARED = (0.0, 0.3, 0.7, 0.9)
"""How much of every input is common to all: c."""
COUNTS = (8, 16, 32, 48)
"""How many of 64 weights go: k."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One row of weights and the inputs it reads.

    Args:
        inputs: [samples, width].
        weights: [width].
        hessian, inverse: dampened [width, width].
    """

    inputs: Matrix
    weights: Vector
    hessian: Matrix
    inverse: Matrix

    def deviation(self, pruned: Vector) -> float:
        """How far the output moved, as a share of itself."""
        moved, output = self.inputs @ (pruned - self.weights), self.inputs @ self.weights
        return float(np.linalg.norm(moved) / np.linalg.norm(output))

    def by_magnitude(self, count: int) -> Vector:
        """The weights with the `count` smallest zero."""
        return without_smallest(self.weights, magnitude(self.weights), count)

    def by_saliency_only(self, count: int) -> Vector:
        """The same with those of least saliency, and nothing to make up for them."""
        return without_smallest(self.weights, saliency(self.weights, self.inverse), count)

    def by_surgery(self, count: int) -> Vector:
        """Optimal Brain Surgeon, which makes up for each."""
        pruned: Vector = surgery(self.weights, self.inverse, count).weights[0]
        return pruned

    def pruned(self, count: int) -> tuple[Vector, Vector, Vector]:
        """By magnitude, by saliency alone, by surgery."""
        return self.by_magnitude(count), self.by_saliency_only(count), self.by_surgery(count)

    def deviations(self, count: int) -> tuple[float, float, float]:
        """In the same order."""
        by_magnitude, by_saliency, by_surgery = map(self.deviation, self.pruned(count))
        return by_magnitude, by_saliency, by_surgery


def trial(seed: int, shared: float, width: int = WIDTH, samples: int = SAMPLES) -> Trial:
    """X = c·z + (1-c)·s∘e: z common to all inputs, e each input's own, s its spread; all and the weights N(0, 1)."""
    rng = np.random.default_rng(seed)
    spread = np.exp(rng.normal(size=width))
    common, own = rng.normal(size=(samples, 1)), rng.normal(size=(samples, width))
    inputs = shared * common + (1 - shared) * spread * own
    sums = HessianSum(width)
    sums.add(inputs)
    damped = conditioned(sums.mean())
    return Trial(inputs, rng.normal(size=width), damped.matrix, damped.inverse())


@dataclass(frozen=True, slots=True)
class CorrelationRow:
    """One c and one k over all seeds; deviations, gains and differences are medians.

    Args:
        shared: c.
        count: k.
        magnitude, saliency_only, surgery: deviations of the output, as a share of it.
        gain: deviation by magnitude over that by surgery.
        backfires: the share of seeds in which saliency alone is worse than magnitude.
        surgery_wins: the share of seeds in which surgery is no worse than saliency alone.
        differs_saliency, differs_surgery: weights that are pruned by one of this and magnitude, and not by both.
    """

    shared: float
    count: int
    magnitude: float
    saliency_only: float
    surgery: float
    gain: float
    backfires: float
    surgery_wins: float
    differs_saliency: float
    differs_surgery: float


@dataclass(frozen=True, slots=True)
class CorrelationStudy:
    """Rows for each c, and within it for each k."""

    width: int
    samples: int
    seeds: tuple[int, ...]
    rows: tuple[CorrelationRow, ...]


def study(
    *,
    shared: Sequence[float] = SHARED,
    counts: Sequence[int] = COUNTS,
    seeds: Sequence[int],
    width: int = WIDTH,
    samples: int = SAMPLES,
    on_trial: Callable[[], None] = lambda: None,
) -> CorrelationStudy:
    """One row for each c and k; `on_trial` is told of every (c, seed). Counts are at most the width."""
    rows: list[CorrelationRow] = []
    for each in shared:
        found: list[Matrix] = []
        for seed in seeds:
            found.append(_compared(trial(seed, each, width, samples), counts))
            on_trial()
        by_count = np.stack(found, axis=1)
        rows += [_row(each, count, numbers) for count, numbers in zip(counts, by_count, strict=True)]
    return CorrelationStudy(width, samples, tuple(seeds), tuple(rows))


def differing(first: Vector, second: Vector) -> int:
    """How many weights are zero in one of two rows and not in the other."""
    return int(((first == 0) != (second == 0)).sum())


def _compared(case: Trial, counts: Sequence[int]) -> Matrix:
    """[counts, 5]: three deviations, then two differences from magnitude."""
    rows = []
    for count in counts:
        pruned = case.pruned(count)
        rows.append([*map(case.deviation, pruned), *(differing(pruned[0], other) for other in pruned[1:])])
    return np.array(rows, np.float64)


def _row(shared: float, count: int, numbers: Matrix) -> CorrelationRow:
    """`numbers` is [seeds, 5]."""
    by_magnitude, by_saliency, by_surgery = numbers[:, :3].T
    medians: list[float] = np.median(numbers, axis=0).tolist()
    return CorrelationRow(
        shared=shared,
        count=count,
        magnitude=medians[0],
        saliency_only=medians[1],
        surgery=medians[2],
        gain=float(np.median(by_magnitude / by_surgery)),
        backfires=float((by_saliency > by_magnitude).mean()),
        surgery_wins=float((by_surgery <= by_saliency).mean()),
        differs_saliency=medians[3],
        differs_surgery=medians[4],
    )
