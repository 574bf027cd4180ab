"""The best values for what a compression kept: one linear system for each row.

Knows no compression. Always: a mask and codes stay as they are, and no row's loss grows.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import DTypeLike, NDArray

from model.compression.hessian import Matrix, Vector
from model.compression.matrix import GridMatrix, Mask, Stored


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

    A row of zeros keeps factor 1.
    """
    moved = compressed @ hessian
    own = (moved * compressed).sum(axis=1)
    factors: Vector = np.where(own > 0, (moved * weights).sum(axis=1) / np.where(own > 0, own, 1.0), 1.0)
    return factors


def rescaled(matrix: GridMatrix, weights: Matrix, hessian: Matrix) -> GridMatrix:
    """A matrix on a grid with the scales of each row times its factor from `row_scales`; no code changes.

    Where a whole number of steps leads from the lowest level to zero it does so afterwards, to the bit. Rows that
    rounding to the stored type leaves no better keep their scales.

    Args:
        matrix: on a grid [rows, columns].
        weights: w₀, before anything was rounded [rows, columns].
        hessian: dampened or not [columns, columns].
    """
    before = matrix.dequantised().astype(np.float64)
    factors = row_scales(weights, before, hessian)[:, None]
    scales = _rounded(matrix.scales * factors, matrix.scales.dtype)
    moved = replace(matrix, scales=scales, offsets=_offsets(matrix, scales, factors))
    gains = _row_losses(before - weights, hessian) > _row_losses(moved.dequantised() - weights, hessian)
    better = gains[:, None]
    return replace(
        matrix,
        scales=np.where(better, moved.scales, matrix.scales),
        offsets=np.where(better, moved.offsets, matrix.offsets),
    )


def _offsets(matrix: GridMatrix, scales: Stored, factors: Matrix) -> Stored:
    old, new = matrix.scales.astype(np.float32), scales.astype(np.float32)
    steps = np.rint(np.divide(-matrix.offsets.astype(np.float32), old, out=np.zeros_like(old), where=old != 0))
    reaches_zero = old * steps + matrix.offsets.astype(np.float32) == 0
    return _rounded(np.where(reaches_zero, -new * steps, matrix.offsets * factors), matrix.offsets.dtype)


def _rounded(numbers: NDArray[np.floating], dtype: DTypeLike) -> Stored:
    rounded: Stored = numbers.astype(dtype)
    return rounded


def _row_losses(errors: Matrix, hessian: Matrix) -> Vector:
    losses: Vector = ((errors @ hessian) * errors).sum(axis=1)
    return losses
