"""The matrices of one decoder layer by one recipe: made smaller first, then each by itself.

Knows one layer and the Hessians of what it reads. Always: a smaller matrix that keeps its weights as they were keeps
their bytes; weights that made up for others, and are not quantised anyway, go to a grid like the one they came from;
what was pruned before stays zero, unless the recipe prunes and so chooses anew.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from model.compression.calibration import INPUT_OF, Input, Layer
from model.compression.compress_matrix import (
    MatrixFigures,
    as_floats,
    compress_matrix,
    pruned_again,
    relative_error,
    relative_output_error,
)
from model.compression.grids import Form, GridSpec, StoredType
from model.compression.hessian import Matrix, conditioned
from model.compression.matrix import GridMatrix, Mask
from model.compression.obs import Indices
from model.compression.recipe import Quantise, Recipe
from model.compression.sparse import SparseMatrix
from model.compression.stored import Weights, zero_codes
from model.compression.structured import narrowed, removal_count, rows_that_stay
from model.config import ModelConfig
from model.loading.ggml import BLOCK_SIZE, F16, F32, FORMAT_BY_NAME
from model.loading.tensor import StoredTensor

_LIKE_STORED: Mapping[str, GridSpec] = {
    "Q4_0": GridSpec(4, BLOCK_SIZE, "minimum"),
    "Q4_1": GridSpec(4, BLOCK_SIZE, "minimum"),
    "Q8_0": GridSpec(8, BLOCK_SIZE, "symmetric"),
}
"""For each quantised format the grid for weights that came from it."""


@dataclass(frozen=True, slots=True, eq=False)
class CompressedLayer:
    """The tensors of a layer as they will be stored, and what the matrices lost, by the names of `Checkpoint.layer`."""

    tensors: Mapping[str, Weights]
    figures: Mapping[str, MatrixFigures]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A matrix on its way.

    Args:
        weights: as they are now.
        stored: what holds them, where they are those of the model.
        columns: that are left of the model's matrix; None when all are.
        mask: what an earlier compression kept; None when nothing was pruned.
    """

    weights: Matrix
    stored: Weights | None
    columns: Indices | None = None
    mask: Mask | None = None


def shrunk(config: ModelConfig, recipe: Recipe) -> ModelConfig:
    """The shape of the model that the recipe leaves.

    Raises:
        ValueError: when a share takes nothing or leaves nothing. Neurons stay in blocks of 32, which kernels take.
    """
    neurons, heads, layers = config.feed_forward_width, config.kv_head_count, config.layer_count
    if share := recipe.share("ffn"):
        neurons -= _some("feed-forward neurons", removal_count(neurons, share, BLOCK_SIZE), neurons)
    if share := recipe.share("heads"):
        heads -= _some("key heads", round(heads * share), heads)
    if share := recipe.share("layers"):
        layers -= _some("layers", round(layers * share), layers)
    return dataclasses.replace(
        config,
        feed_forward_width=neurons,
        kv_head_count=heads,
        head_count=heads * (config.head_count // config.kv_head_count),
        layer_count=layers,
    )


def compress_layer(
    layer: Layer, hessians: Mapping[Input, Matrix], recipe: Recipe, config: ModelConfig
) -> CompressedLayer:
    """Shrink a layer of a model of this shape, then prune and quantise its matrices.

    Args:
        layer: as the model has it.
        hessians: of what it reads; none where the recipe needs no text.

    Raises:
        ValueError: as `compress_matrix` does; for inputs that are not finite, NotPositiveDefinite.
    """
    work = _LayerWork(layer, hessians, recipe)
    after = shrunk(config, recipe)
    work.drop_neurons(config.feed_forward_width - after.feed_forward_width)
    work.drop_heads(config.kv_head_count - after.kv_head_count, config)
    return work.finished()


def _some(units: str, count: int, of: int) -> int:
    if not 0 < count < of:
        raise ValueError(f"the recipe removes {count} of {of} {units}; at least one must go, and one must stay")
    return count


class _LayerWork:
    """The matrices of a layer, and the Hessians of what they read as they stand."""

    def __init__(self, layer: Layer, hessians: Mapping[Input, Matrix], recipe: Recipe) -> None:
        self._layer = layer
        self._recipe = recipe
        self._given = hessians
        self._hessians = dict(hessians)
        self._parts = {name: _part(layer[name]) for name in INPUT_OF}

    def drop_neurons(self, count: int) -> None:
        """Columns of down, with their rows of gate and up."""
        if count:
            kept = self._narrow("down", count, unit=1)
            self._keep_rows(("gate", "up"), rows_that_stay(kept, unit=1, rows=1))

    def drop_heads(self, count: int, config: ModelConfig) -> None:
        """Key heads, each with its value head and its queries, and their columns of the output matrix."""
        if count:
            unit = config.query_width // config.kv_head_count
            kept = self._narrow("attention_output", count, unit=unit)
            self._keep_rows(("query",), rows_that_stay(kept, unit=unit, rows=unit))
            self._keep_rows(("key", "value"), rows_that_stay(kept, unit=unit, rows=config.head_width))

    def finished(self) -> CompressedLayer:
        tensors: dict[str, Weights] = {name: each for name, each in self._layer.items() if name not in INPUT_OF}
        figures = {}
        for name, part in self._parts.items():
            if part.stored is not None and not (self._recipe.prune or self._recipe.quantise):
                tensors[name] = part.stored
            else:
                weights, found = self._compressed(name, part)
                tensors[name], figures[name] = weights, self._against_the_whole(name, part, weights, found)
        return CompressedLayer(tensors, figures)

    def _narrow(self, name: str, count: int, *, unit: int) -> Indices:
        """Remove units of columns; the columns that are kept."""
        read = INPUT_OF[name]
        factor = conditioned(self._hessians[read], self._recipe.dampening)
        result = narrowed(self._parts[name].weights, factor.inverse(), count, unit=unit)
        mask = self._parts[name].mask
        self._parts[name] = _Part(result.weights, None, result.kept, None if mask is None else mask[:, result.kept])
        self._hessians[read] = self._hessians[read][np.ix_(result.kept, result.kept)]
        return result.kept

    def _keep_rows(self, names: tuple[str, ...], stay: Indices) -> None:
        for name in names:
            weights, mask = self._parts[name].weights[stay], self._parts[name].mask
            stored = _rows_of(self._layer[name], stay)
            self._parts[name] = _Part(weights, stored, mask=None if mask is None else mask[stay])

    def _compressed(self, name: str, part: _Part) -> tuple[Weights, MatrixFigures]:
        """A matrix after shrinking, by the recipe or else back in the form that it came from."""
        hessian, recipe = self._hessians.get(INPUT_OF[name]), self._recipe
        if not (recipe.prune or recipe.quantise):
            like = _like_stored(self._layer[name], part.weights.shape[1])
            if like is None:
                return self._as_floats(name, part)
            recipe = Recipe(quantise=Quantise("gptq", like), dampening=recipe.dampening)
        done = compress_matrix(part.weights, hessian, recipe, part.mask)
        return done.weights, done.figures

    def _as_floats(self, name: str, part: _Part) -> tuple[Weights, MatrixFigures]:
        hessian = self._hessians[INPUT_OF[name]]
        if part.mask is not None:
            done = pruned_again(part.weights, hessian, part.mask, self._recipe.dampening)
            return done.weights, done.figures
        tensor = _stored_floats(name, part.weights)
        result = tensor.dequantised().astype(np.float64)
        error = relative_error(part.weights, result)
        output_error = relative_output_error(part.weights, result, hessian)
        return tensor, MatrixFigures(error, output_error, zeros=int((result == 0).sum()))

    def _against_the_whole(self, name: str, part: _Part, weights: Weights, figures: MatrixFigures) -> MatrixFigures:
        """Figures of a narrower matrix beside the model's own, whose other columns became zero."""
        if part.columns is None:
            return figures
        whole = self._layer[name].dequantised().astype(np.float64)
        result = np.zeros_like(whole)
        result[:, part.columns] = weights.dequantised()
        return dataclasses.replace(
            figures,
            relative_error=relative_error(whole, result),
            relative_output_error=relative_output_error(whole, result, self._given[INPUT_OF[name]]),
        )


def _part(tensor: StoredTensor) -> _Part:
    grid = None if tensor.grid is None else tensor.grid()
    pruned = grid if tensor.pruned is None else tensor.pruned()
    mask = None if pruned is None else pruned.mask
    return _Part(tensor.dequantised().astype(np.float64), tensor, mask=mask)


def _like_stored(tensor: StoredTensor, columns: int) -> GridSpec | None:
    """The grid for weights that came from a tensor, `columns` of each row; None where they came from floats."""
    if tensor.grid is None:
        return _LIKE_STORED.get(tensor.format.name) if columns % BLOCK_SIZE == 0 else None
    grid = tensor.grid()
    group = columns if grid.group == grid.columns else math.gcd(grid.group, columns)
    form: Form = "minimum" if zero_codes(grid) is None else "affine"
    stored: StoredType = "float16" if grid.scales.dtype == np.float16 else "float32"
    return GridSpec(grid.bits, group, form, stored=stored)


def _rows_of(tensor: StoredTensor, stay: Indices) -> Weights | None:
    """The rows as they are stored; None where they are stored neither as rows of blocks nor on a grid."""
    if tensor.grid is not None:
        grid = tensor.grid()
        mask = None if grid.mask is None else grid.mask[stay]
        return GridMatrix(grid.bits, grid.group, grid.codes[stay], grid.scales[stay], grid.offsets[stay], mask)
    if tensor.pruned is not None:
        pruned = tensor.pruned()
        return SparseMatrix(pruned.values[stay], pruned.mask[stay])
    if tensor.format.name not in FORMAT_BY_NAME:
        return None
    return dataclasses.replace(tensor, shape=(len(stay), *tensor.shape[1:]), read=lambda: tensor.rows()[stay])


def _stored_floats(name: str, weights: Matrix) -> StoredTensor:
    floats = np.ascontiguousarray(as_floats(weights))
    format = F16 if floats.dtype == np.float16 else F32
    return StoredTensor(name, floats.shape, format, lambda: floats.view(np.uint8))
