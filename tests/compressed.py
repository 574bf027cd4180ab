"""Tiny compressed models: grids of every form, and folders that hold them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from model.compression.artefact_writer import ArtefactWriter
from model.compression.matrix import GridMatrix
from model.compression.sparse import SparseMatrix
from model.compression.stored import Weights
from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf
from tests.tiny_model import FormatName, TinyShape, write_tiny_gguf

RECIPE = {"name": "random-codes", "seed": 0}
WIDE = TinyShape(width=192, heads=4, head_width=48, feed_forward=192)
"""Rows of 192, which groups of 32, 64 and 96 divide."""


def random_grid(
    shape: tuple[int, int],
    *,
    bits: int = 4,
    group: int = 32,
    seed: int = 0,
    scale_type: DTypeLike = np.float16,
    zero: int | None = None,
    offset_type: DTypeLike = np.float32,
    pruned: float = 0.0,
) -> GridMatrix:
    """Random codes and scales; with `zero` that code stands for zero in every group, and can be pruned to."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 1 << bits, shape).astype(np.uint8)
    groups = (shape[0], shape[1] // group)
    scales = rng.uniform(0.01, 0.1, groups).astype(scale_type) / np.dtype(scale_type).type(1 << bits)
    if zero is None:
        return GridMatrix(bits, group, codes, scales, rng.uniform(-0.1, 0.1, groups).astype(scale_type))
    offsets = (-np.float32(zero) * scales.astype(np.float32)).astype(offset_type)
    mask = rng.random(shape) >= pruned if pruned else None
    if mask is not None:
        codes[~mask] = zero
    return GridMatrix(bits, group, codes, scales, offsets, mask)


def random_sparse(shape: tuple[int, int], *, seed: int = 0, stored: DTypeLike = np.float16) -> SparseMatrix:
    """Half of the weights pruned, the others floats of a type."""
    rng = np.random.default_rng(seed)
    mask = rng.random(shape) < 0.5
    return SparseMatrix(np.where(mask, rng.standard_normal(shape) / 8, 0).astype(stored), mask)


def tiny_source(folder: Path, *, shape: TinyShape = WIDE, format: FormatName = "Q8_0") -> Checkpoint:
    return load_gguf(write_tiny_gguf(folder / "source.gguf", shape=shape, format=format))


def is_linear(name: str, tensor_shape: tuple[int, ...]) -> bool:
    return len(tensor_shape) > 1 and name.startswith("layers.")


def as_matrix(tensor_shape: tuple[int, ...]) -> tuple[int, int]:
    rows, columns = tensor_shape
    return rows, columns


def grids_for(source: Checkpoint, **form: object) -> dict[str, Weights]:
    """A random grid of one form for each linear layer; everything else as it is stored."""
    return {
        name: random_grid(as_matrix(tensor.shape), seed=seed, **form)  # type: ignore[arg-type]
        if is_linear(name, tensor.shape)
        else tensor
        for seed, (name, tensor) in enumerate(source.tensors.items())
    }


def write_artefact(
    folder: Path,
    source: Checkpoint,
    weights: Mapping[str, Weights],
    *,
    name: str = "tiny-compressed",
    report: Mapping[str, Any] | None = None,
) -> Path:
    writer = ArtefactWriter(folder, RECIPE, source)
    for tensor, each in weights.items():
        writer.put(tensor, each)
    return writer.finish(source.config, name, report)


def dequantised(weights: Weights) -> NDArray[np.float32]:
    return weights.dequantised()
