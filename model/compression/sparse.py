"""A matrix of which some weights are pruned and the others are floats.

Knows no files. Always: a pruned weight is exactly zero.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.compression.matrix import STORED_TYPES, Mask, Stored

MATRIX_DIMENSIONS = 2


@dataclass(frozen=True, slots=True, eq=False)
class SparseMatrix:
    """A matrix [rows, columns].

    Args:
        values: float16 or float32 [rows, columns], finite, and zero where `mask` is False.
        mask: bool [rows, columns], False where a weight is pruned.

    Raises:
        ValueError: naming the field that breaks one of these.
    """

    values: Stored
    mask: Mask

    def __post_init__(self) -> None:
        if self.values.dtype not in STORED_TYPES or len(self.values.shape) != MATRIX_DIMENSIONS:
            raise ValueError(f"values must be float16 or float32 [rows, columns], not {self.values.dtype}")
        if self.mask.dtype != np.bool_ or self.mask.shape != self.values.shape:
            raise ValueError(f"mask must be bool {self.values.shape}, not {self.mask.dtype} {self.mask.shape}")
        if not np.isfinite(self.values).all():
            raise ValueError("values must be finite")
        if self.values[~self.mask].any():
            raise ValueError("values are not zero where the mask prunes them")

    def dequantised(self) -> NDArray[np.float32]:
        """float32 [rows, columns], no number changed; a pruned weight is +0."""
        weights = self.values.astype(np.float32)
        weights[~self.mask] = 0.0
        return weights
