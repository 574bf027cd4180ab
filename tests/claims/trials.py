"""Rows of weights and the inputs they read, drawn so that chapter two's table can be seen in many draws."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from model.compression.hessian import HessianSum, Matrix, Vector, conditioned
from model.compression.obs import surgery, without_smallest
from model.compression.scores import magnitude, saliency

WIDTH, HALF, SAMPLES, SEEDS = 64, 32, 512, 60
SHARED = (0.0, 0.3, 0.7, 0.9)
"""How much of every input is common to all: c."""


@dataclass(frozen=True)
class Trial:
    """One row of weights and the inputs it reads."""

    inputs: Matrix
    weights: Vector
    hessian: Matrix
    inverse: Matrix

    def deviation(self, pruned: Vector) -> float:
        """How far the output moved, as a share of itself."""
        moved, output = self.inputs @ (pruned - self.weights), self.inputs @ self.weights
        return float(np.linalg.norm(moved) / np.linalg.norm(output))

    def by_magnitude(self, count: int = HALF) -> Vector:
        return without_smallest(self.weights, magnitude(self.weights), count)

    def by_saliency_only(self, count: int = HALF) -> Vector:
        return without_smallest(self.weights, saliency(self.weights, self.inverse), count)

    def by_surgery(self, count: int = HALF) -> Vector:
        pruned: Vector = surgery(self.weights, self.inverse, count).weights[0]
        return pruned

    def deviations(self, count: int = HALF) -> list[float]:
        """By magnitude, by saliency alone, by Optimal Brain Surgeon."""
        return [self.deviation(f(count)) for f in (self.by_magnitude, self.by_saliency_only, self.by_surgery)]


@cache
def trial(seed: int, shared: float, width: int = WIDTH) -> Trial:
    """X = c·z + (1-c)·s∘e: z common to all inputs, e each input's own, s its spread."""
    rng = np.random.default_rng(seed)
    spread = np.exp(rng.normal(size=width))
    common, own = rng.normal(size=(SAMPLES, 1)), rng.normal(size=(SAMPLES, width))
    inputs = shared * common + (1 - shared) * spread * own
    sums = HessianSum(width)
    sums.add(inputs)
    damped = conditioned(sums.mean())
    return Trial(inputs, rng.normal(size=width), damped.matrix, damped.inverse())


@cache
def many(shared: float) -> Matrix:
    """Deviations [seeds, 3] as `Trial.deviations` has them."""
    return np.array([trial(seed, shared).deviations() for seed in range(SEEDS)])


def median_ratio(shared: float, above: int, below: int) -> float:
    deviations = many(shared)
    return float(np.median(deviations[:, above] / deviations[:, below]))
