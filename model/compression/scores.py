"""What a weight's removal is thought to cost, before anything is compensated.

Knows no selection. Always: scores are for one row (a vector of weights) or for all rows of a matrix alike, since all
rows read the same inputs.
"""

import numpy as np

from model.compression.hessian import Matrix, Vector


def magnitude(weights: Matrix) -> Matrix:
    """|w|."""
    return np.abs(weights)


def brain_damage(weights: Matrix, hessian: Matrix) -> Matrix:
    """½ w² H_ii, the score of Optimal Brain Damage (LeCun et al. 1989): inputs as though uncorrelated."""
    return 0.5 * weights**2 * np.diag(hessian)


def saliency(weights: Matrix, inverse: Matrix) -> Matrix:
    """½ w² / [H⁻¹]_ii, the score of Optimal Brain Surgeon (Hassibi and Stork 1992).

    It is the price of a removal that the other weights make up for. Where nothing makes up for it, the score is wrong,
    and on correlated inputs often worse than `magnitude`.
    """
    return 0.5 * weights**2 / np.diag(inverse)


def wanda(weights: Matrix, norms: Vector) -> Matrix:
    """|w| ‖x_j‖ (Sun et al. 2023). Meant to be compared within a row. `norms` up to a common factor [columns]."""
    return np.abs(weights) * norms


def input_norms(hessian: Matrix) -> Vector:
    """‖x_j‖ of each input up to a common factor [columns], from the diagonal of the Hessian before dampening."""
    return np.sqrt(np.diag(hessian))
