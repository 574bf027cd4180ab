"""One matrix by one recipe: pruned, quantised, refitted, and what that did to it.

Knows no model, and no text beside a Hessian. Always: errors are those of the numbers that are stored.
"""

from dataclasses import dataclass

import numpy as np

from model.compression import scores
from model.compression.gptq import gptq
from model.compression.grids import round_to_nearest
from model.compression.hessian import Conditioned, Matrix, NotPositiveDefinite, conditioned, quadratic_form
from model.compression.matrix import GridMatrix, Mask, Stored
from model.compression.obs import brain_compression
from model.compression.recipe import Prune, Quantise, Recipe
from model.compression.refit import refitted, rescaled
from model.compression.selection import Share, Sparsity, Within, kept
from model.compression.sparse import SparseMatrix
from model.compression.sparsegpt import sparsegpt

HALF_LIMIT = float(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True)
class MatrixFigures:
    """What a matrix lost.

    Args:
        relative_error: ‖W - Ŵ‖ / ‖W‖ over all weights.
        relative_output_error: ‖(W - Ŵ)X‖ / ‖WX‖ over the text; None without one.
        zeros: weights that are exactly zero.
        dampening: the share of the Hessian's mean diagonal that it took; None where none was needed, or none sufficed.
        fell_back: nothing could be made up for, since no dampening made the Hessian invertible.
        dead_columns: inputs that were always zero.
    """

    relative_error: float
    relative_output_error: float | None
    zeros: int
    dampening: float | None = None
    fell_back: bool = False
    dead_columns: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class CompressedMatrix:
    """A matrix as it will be stored, and what it lost."""

    weights: GridMatrix | SparseMatrix
    figures: MatrixFigures


@dataclass(frozen=True, slots=True, eq=False)
class _Done:
    weights: GridMatrix | SparseMatrix
    dampening: float | None = None
    fell_back: bool = False


def compress_matrix(
    weights: Matrix, hessian: Matrix | None, recipe: Recipe, mask: Mask | None = None
) -> CompressedMatrix:
    """Prune, quantise and refit a matrix as the recipe says.

    Args:
        weights: [rows, columns].
        hessian: of its inputs, not dampened [columns, columns]; None where the recipe needs no text.
        recipe: one that prunes or quantises.
        mask: what an earlier compression kept [rows, columns]. The rest stays zero, unless the recipe prunes and so
            chooses anew.

    Raises:
        ValueError: when groups or patterns do not divide the columns, a scale is too great for its type, or weights
            that were pruned are to go to a grid without an exact zero.
    """
    done = _compressed(weights, hessian, recipe, mask)
    if recipe.refit:
        done = _refitted(done, weights, _needed(hessian), recipe.dampening)
    return _measured(done, weights, hessian)


def pruned_again(weights: Matrix, hessian: Matrix, mask: Mask, dampening: float) -> CompressedMatrix:
    """Zeros where `mask` is False once more, made up for by the rest, for weights that were moved since."""
    swept = sparsegpt(weights, hessian, mask, dampening=dampening)
    done = _Done(_sparse(swept.weights, swept.mask), swept.dampening, swept.fell_back)
    return _measured(done, weights, hessian)


def _measured(done: _Done, weights: Matrix, hessian: Matrix | None) -> CompressedMatrix:
    result = done.weights.dequantised().astype(np.float64)
    figures = MatrixFigures(
        relative_error=relative_error(weights, result),
        relative_output_error=None if hessian is None else relative_output_error(weights, result, hessian),
        zeros=int((result == 0).sum()),
        dampening=done.dampening,
        fell_back=done.fell_back,
        dead_columns=0 if hessian is None else int((np.diag(hessian) == 0).sum()),
    )
    return CompressedMatrix(done.weights, figures)


def relative_error(weights: Matrix, result: Matrix) -> float:
    """‖W - Ŵ‖ / ‖W‖ over all weights."""
    return _ratio(float(((weights - result) ** 2).sum()), float((weights**2).sum()))


def relative_output_error(weights: Matrix, result: Matrix, hessian: Matrix) -> float:
    """‖(W - Ŵ)X‖ / ‖WX‖ over the inputs X behind a Hessian."""
    return _ratio(quadratic_form(weights - result, hessian), quadratic_form(weights, hessian))


def _compressed(weights: Matrix, hessian: Matrix | None, recipe: Recipe, mask: Mask | None) -> _Done:
    prune, quantise = recipe.prune, recipe.quantise
    if prune is None:
        assert quantise is not None, "a recipe that only shrinks compresses no matrix"
        if quantise.method == "rtn":
            return _Done(round_to_nearest(weights, quantise.grid, mask))
        if mask is not None:
            return _jointly(weights, _needed(hessian), mask, quantise, recipe.dampening)
        swept = gptq(weights, _needed(hessian), quantise.grid, dampening=recipe.dampening)
        return _Done(swept.matrix, swept.dampening, swept.fell_back)
    if quantise is None or quantise.method == "rtn":
        pruned, mask, dampening, fell_back = _pruned(weights, hessian, prune, recipe.dampening)
        stored = _sparse(pruned, mask) if quantise is None else round_to_nearest(pruned, quantise.grid, mask)
        return _Done(stored, dampening, fell_back)
    sparsity = prune.sparsity
    chosen = sparsity if prune.method == "sparsegpt" else _pruned(weights, hessian, prune, recipe.dampening)[1]
    return _jointly(weights, _needed(hessian), chosen, quantise, recipe.dampening)


def _jointly(
    weights: Matrix, hessian: Matrix, sparsity: Sparsity | Mask, quantise: Quantise, dampening: float
) -> _Done:
    """Zeros and levels in one sweep, which makes up for both."""
    joint = sparsegpt(weights, hessian, sparsity, spec=quantise.grid, dampening=dampening)
    assert joint.grid is not None
    return _Done(joint.grid, joint.dampening, joint.fell_back)


def _pruned(
    weights: Matrix, hessian: Matrix | None, prune: Prune, dampening: float
) -> tuple[Matrix, Mask, float | None, bool]:
    """The pruned matrix, its mask, the dampening that it took, and whether it fell back to magnitudes."""
    if prune.method == "sparsegpt":
        swept = sparsegpt(weights, _needed(hessian), prune.sparsity, dampening=dampening)
        return swept.weights, swept.mask, swept.dampening, swept.fell_back
    factor = _conditioned(_needed(hessian), dampening) if prune.method in ("saliency", "obc") else None
    if prune.method == "obc" and factor is not None:
        assert isinstance(prune.sparsity, Share), "recipes refuse others"
        pruned, mask = brain_compression(weights, factor.inverse(), prune.sparsity)
        return pruned, mask, factor.dampening, False
    found, within = _scores(weights, hessian, prune, factor)
    mask = kept(found, prune.sparsity, within)
    fell_back = prune.method in ("saliency", "obc") and factor is None
    return np.where(mask, weights, 0.0), mask, factor.dampening if factor else None, fell_back


def _scores(weights: Matrix, hessian: Matrix | None, prune: Prune, factor: Conditioned | None) -> tuple[Matrix, Within]:
    """What removals are thought to cost, and which are compared. Without a factor saliency is the magnitude."""
    match prune.method:
        case "obd":
            return scores.brain_damage(weights, _needed(hessian)), "matrix"
        case "wanda":
            return scores.wanda(weights, scores.input_norms(_needed(hessian))), "row"
        case "saliency" if factor is not None:
            return scores.saliency(weights, factor.inverse()), "matrix"
    return scores.magnitude(weights), "matrix"


def _refitted(done: _Done, weights: Matrix, hessian: Matrix, dampening: float) -> _Done:
    """The same mask and codes, with better values; as it was where the Hessian cannot be inverted."""
    factor = _conditioned(hessian, dampening)
    if factor is None:
        return _Done(done.weights, done.dampening, fell_back=True)
    if isinstance(done.weights, GridMatrix):
        return _Done(rescaled(done.weights, weights, factor.matrix), factor.dampening, done.fell_back)
    mask = done.weights.mask
    return _Done(_sparse(refitted(weights, factor.matrix, mask), mask), factor.dampening, done.fell_back)


def _sparse(weights: Matrix, mask: Mask) -> SparseMatrix:
    """float16 where it reaches so far, else float32."""
    return SparseMatrix(as_floats(np.where(mask, weights, 0.0)), mask)


def as_floats(weights: Matrix) -> Stored:
    """float16 where it reaches so far, else float32."""
    fits = np.abs(weights).max(initial=0.0) <= HALF_LIMIT
    return weights.astype(np.float16) if fits else weights.astype(np.float32)


def _conditioned(hessian: Matrix, dampening: float) -> Conditioned | None:
    try:
        return conditioned(hessian, dampening)
    except NotPositiveDefinite:
        return None


def _needed(hessian: Matrix | None) -> Matrix:
    assert hessian is not None, "a recipe that says it needs no text was given none"
    return hessian


def _ratio(lost: float, whole: float) -> float:
    """The root of a share of squares; 0 where there was nothing to lose."""
    return float(np.sqrt(max(lost, 0.0) / whole)) if whole > 0 else 0.0
