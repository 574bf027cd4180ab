"""Trials of chapter two's table over many seeds, each made once."""

from functools import cache

import numpy as np

from model.compression.hessian import Matrix
from model.studies import obs_correlation

WIDTH, HALF, SEEDS = 64, 32, 60
trial = cache(obs_correlation.trial)


@cache
def many(shared: float) -> Matrix:
    """Deviations [seeds, 3] by magnitude, by saliency alone and by Optimal Brain Surgeon, half the weights pruned."""
    return np.array([trial(seed, shared).deviations(HALF) for seed in range(SEEDS)])


def median_ratio(shared: float, above: int, below: int) -> float:
    deviations = many(shared)
    return float(np.median(deviations[:, above] / deviations[:, below]))
