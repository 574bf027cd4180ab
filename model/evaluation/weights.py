"""What a compressed model's linear layers take and how far they moved: bits, bytes, zeros, errors.

Linear layers are the matrices of the decoder's layers; embedding, head and gains are left out. Knows checkpoints; runs
nothing. Always: one matrix is held at a time.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.evaluation.saved import EVALUATION
from model.loading.checkpoint import Checkpoint
from model.loading.tensor import StoredTensor

BITS = 8


@dataclass(frozen=True, slots=True)
class LinearWeights:
    """The linear layers of one model."""

    weights: int
    stored_bytes: int
    """What they take in the file: codes, scales, offsets and masks."""
    zeros: int
    """Weights that are exactly 0."""
    errors: Mapping[str, float]
    """‖W − Ŵ‖ / ‖W‖ (Frobenius) for each matrix that has the same shape in the reference.

    Empty without a reference, and beside one with another number of layers, whose layers are not the same ones.
    """

    @property
    def bits_per_weight(self) -> float:
        return BITS * self.stored_bytes / self.weights

    @property
    def zero_share(self) -> float:
        return self.zeros / self.weights


def linear_weights(checkpoint: Checkpoint, reference: Checkpoint | None = None) -> LinearWeights:
    """Read every matrix once. Raises ModelFileError when a file changed after it was opened."""
    if reference is not None and reference.config.layer_count != checkpoint.config.layer_count:
        reference = None
    linear = {name: tensor for name, tensor in checkpoint.tensors.items() if _is_linear(name, tensor)}
    zeros = 0
    errors = {}
    for name, tensor in linear.items():
        weights = tensor.dequantised()
        zeros += int(np.count_nonzero(weights == 0))
        original = None if reference is None else reference.tensors.get(name)
        if original is not None and original.shape == tensor.shape:
            errors[name] = relative_error(original.dequantised(), weights)
    return LinearWeights(
        sum(prod(tensor.shape) for tensor in linear.values()),
        sum(tensor.stored_bytes for tensor in linear.values()),
        zeros,
        errors,
    )


def relative_error(original: NDArray[np.float32], weights: NDArray[np.float32]) -> float:
    """‖W − Ŵ‖ / ‖W‖, in float64; 0 where nothing moved, also from a matrix of zeros."""
    difference = float(np.square(original.astype(np.float64) - weights).sum())
    if not difference:
        return 0.0
    size = float(np.square(original, dtype=np.float64).sum())
    return math.sqrt(difference / size) if size else math.inf


def bytes_on_disk(path: Path) -> int:
    """Of a model file, or of the folder of a compressed model without the figures that are kept in it."""
    if not path.is_dir():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.iterdir() if file.is_file() and file.name != EVALUATION)


def _is_linear(name: str, tensor: StoredTensor) -> bool:
    return name.startswith("layers.") and len(tensor.shape) > 1
