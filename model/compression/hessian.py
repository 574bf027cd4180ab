"""The Hessian of a layer's squared error, and its factor for sweeps from the first column to the last.

For a linear layer that maps inputs x to W·x, the error Σ‖(W - Ŵ)x‖² is ½ Σ_r (w_r - ŵ_r) H (w_r - ŵ_r)ᵀ with
H = 2 Σ x xᵀ, the same for all rows r (Hassibi and Stork 1992, Frantar et al. 2022). Knows no model and no weights.
Always: float64.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

FIRST_DAMPENING = 0.01
MOST_DAMPENING = 1.0


class NotPositiveDefinite(ValueError):
    """No dampening that is tried makes the Hessian invertible."""


class HessianSum:
    """Adds up the inputs of a layer, batch after batch. Several layers that read the same inputs share one.

    Args:
        width: of an input.
    """

    def __init__(self, width: int) -> None:
        self._sum = np.zeros((width, width))
        self._tokens = 0

    @property
    def tokens(self) -> int:
        """How many inputs were added."""
        return self._tokens

    def add(self, inputs: NDArray[np.floating]) -> None:
        """Add inputs [tokens, width]; padding must not be among them. Raises ValueError for any other shape."""
        if inputs.shape[1:] != self._sum.shape[1:]:
            raise ValueError(f"inputs are {inputs.shape}, not [tokens, {len(self._sum)}]")
        exact = inputs.astype(np.float64)
        self._sum += exact.T @ exact
        self._tokens += len(exact)

    def mean(self) -> Matrix:
        """2/N Σ x xᵀ over all N tokens [width, width]. Raises ValueError when there were none."""
        if not self._tokens:
            raise ValueError("no inputs were added")
        return 2.0 / self._tokens * self._sum


@dataclass(frozen=True, slots=True, eq=False)
class Conditioned:
    """A Hessian that can be inverted.

    Args:
        matrix: H + λI, with H_jj = 1 in dead columns [width, width].
        upper: U with UᵀU = (H + λI)⁻¹, zero below its diagonal. U_ii² is the i-th diagonal element of the inverse of
            what remains of H when rows and columns before i are removed.
        dead: the inputs that were always zero [width].
        dampening: λ over the mean of the diagonal.
    """

    matrix: Matrix
    upper: Matrix
    dead: NDArray[np.bool_]
    dampening: float

    def inverse(self) -> Matrix:
        """(H + λI)⁻¹, symmetric to the bit."""
        return _symmetric(self.upper.T @ self.upper)


def conditioned(hessian: Matrix, dampening: float = FIRST_DAMPENING) -> Conditioned:
    """Dampen a Hessian with λ = dampening · mean of the diagonal, and factor it.

    Dead columns get H_jj = 1 first. Where that is not positive definite, ten times the dampening is tried, up to 1 (or
    up to `dampening`, when that is more). A dampening of 0 is followed by 0.01.

    Raises:
        ValueError: for a dampening that is negative or not finite.
        NotPositiveDefinite: when none of them does, or H is not finite.
    """
    if not 0 <= dampening < np.inf:
        raise ValueError(f"dampening is {dampening}; it must be finite and not negative")
    if not np.isfinite(hessian).all():
        raise NotPositiveDefinite("the Hessian is not finite")
    dead = np.diag(hessian) == 0
    alive = hessian + np.diag(dead.astype(np.float64))
    size = float(np.diag(alive).mean())
    while True:
        damped = alive + dampening * size * np.eye(len(alive))
        upper = upper_factor(damped)
        if upper is not None:
            return Conditioned(damped, upper, dead, dampening)
        if dampening >= MOST_DAMPENING:
            raise NotPositiveDefinite(f"the Hessian is not positive definite, even dampened by {dampening:g}")
        dampening = min(10 * dampening, MOST_DAMPENING) if dampening else FIRST_DAMPENING


def upper_factor(hessian: Matrix) -> Matrix | None:
    """U, upper triangular with a positive diagonal, so that UᵀU = H⁻¹; None when H is not positive definite.

    H = R Rᵀ with R upper triangular, by a Cholesky factorisation from the last column to the first, so U = R⁻¹: H is
    never inverted.
    """
    try:
        lower = np.linalg.cholesky(hessian[::-1, ::-1])
    except np.linalg.LinAlgError:
        return None
    upper: Matrix = np.triu(np.linalg.inv(lower[::-1, ::-1]))
    return upper if np.isfinite(upper).all() else None


def downdate(inverse: Matrix, removed: NDArray[np.intp]) -> None:
    """Turn H⁻¹ into the inverse of H without some rows and columns, in place; what is removed becomes zero.

    For one column q it is the downdate of Optimal Brain Surgeon, [H⁻¹]_ij - [H⁻¹]_iq [H⁻¹]_qj / [H⁻¹]_qq. Written as a
    product of one matrix with itself, so that a symmetric inverse stays symmetric to the bit.
    """
    root = np.linalg.cholesky(inverse[np.ix_(removed, removed)])
    rows = np.linalg.solve(root, inverse[removed])
    inverse -= rows.T @ rows
    inverse[removed, :] = 0.0
    inverse[:, removed] = 0.0


def quadratic_form(error: Matrix, hessian: Matrix) -> float:
    """½ Σ_r e_r H e_rᵀ over the rows of an error: what a layer's output loses."""
    return 0.5 * float(((error @ hessian) * error).sum())


def _symmetric(matrix: Matrix) -> Matrix:
    return 0.5 * (matrix + matrix.T)
