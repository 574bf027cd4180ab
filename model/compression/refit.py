"""The best values for what a compression kept: one linear system for each row.

Knows no compression. Always: a mask and codes stay as they are, and no row's loss grows.
"""

import numpy as np

from model.compression.hessian import Matrix, Vector
from model.compression.matrix import Mask


def refitted(weights: Matrix, hessian: Matrix, mask: Mask) -> Matrix:
    """The weights of least ½ (w - w₀) H (w - w₀)ᵀ in each row, among those that are zero where `mask` is False.

    On the kept columns S, w_S = (H w₀)_S [H_SS]⁻¹. A row costs columns³.

    Args:
        weights: w₀, before anything was removed [rows, columns].
        hessian: positive definite, so dampened [columns, columns].
        mask: what is kept [rows, columns].
    """
    targets = weights @ hessian
    fitted = np.zeros_like(weights)
    for row, keep in enumerate(mask):
        (kept,) = np.nonzero(keep)
        fitted[row, kept] = np.linalg.solve(hessian[np.ix_(kept, kept)], targets[row, kept])
    return fitted


def row_scales(weights: Matrix, compressed: Matrix, hessian: Matrix) -> Vector:
    """The factor for each row of a compressed matrix that loses least: (w₀ H wᵀ) / (w H wᵀ) [rows].

    A row of zeros keeps factor 1. On a grid, scales and offsets are multiplied by it: no code moves, and zero stays.
    """
    moved = compressed @ hessian
    own = (moved * compressed).sum(axis=1)
    factors: Vector = np.where(own > 0, (moved * weights).sum(axis=1) / np.where(own > 0, own, 1.0), 1.0)
    return factors
