"""Layers to compress: weights, and the Hessian of inputs that hang together."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.compression.hessian import HessianSum, Matrix


@dataclass(frozen=True)
class Layer:
    weights: Matrix
    hessian: Matrix
    inputs: Matrix

    def loss(self, compressed: NDArray[np.floating]) -> float:
        """Mean squared error of the outputs."""
        return float((((compressed - self.weights) @ self.inputs.T) ** 2).mean())


def layer(seed: int = 0, rows: int = 24, columns: int = 64, tokens: int = 300, shared: float = 0.7) -> Layer:
    rng = np.random.default_rng(seed)
    spread = np.exp(rng.normal(size=columns))
    inputs = shared * rng.normal(size=(tokens, 1)) + (1 - shared) * spread * rng.normal(size=(tokens, columns))
    sums = HessianSum(columns)
    sums.add(inputs)
    return Layer(rng.normal(0, 0.05, (rows, columns)), sums.mean(), inputs)
