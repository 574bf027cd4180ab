"""What packing changes of weights that cannot be held as stored."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf
from model.ops.weight_error import LoadedWeights, weights_as_loaded
from tests.memory_checkpoint import memory_checkpoint
from tests.tiny_families import CONFIGS, family_checkpoint
from tests.tiny_model import FOR_EVERY_FORMAT, FormatName, TinyShape, write_tiny_gguf

Matrix = NDArray[np.float32]


def as_float16(numbers: Matrix) -> Matrix:
    return numbers.astype(np.float16).astype(np.float32)


def to_int8(matrix: Matrix) -> Matrix:
    """Groups of 32 with one float16 scale, codes from -127 to 127."""
    groups = matrix.reshape(-1, 32)
    scales = as_float16(np.abs(groups).max(axis=1, keepdims=True) / 127)
    rounded: Matrix = scales * np.clip(np.rint(groups / scales), -127, 127)
    return rounded.reshape(matrix.shape)


def to_int4(matrix: Matrix) -> Matrix:
    """Groups of 32 with a float16 scale and minimum, codes from 0 to 15."""
    groups = matrix.reshape(-1, 32)
    least = as_float16(groups.min(axis=1, keepdims=True))
    scales = as_float16((groups.max(axis=1, keepdims=True) - least) / 15)
    rounded: Matrix = scales * np.clip(np.rint((groups - least) / scales), 0, 15) + least
    return rounded.reshape(matrix.shape)


def relative_error(matrix: Matrix, rounded: Matrix) -> float:
    return float(np.linalg.norm(rounded - matrix) / np.linalg.norm(matrix))


def stored(tmp_path: Path, format: FormatName) -> Checkpoint:
    return load_gguf(write_tiny_gguf(tmp_path / f"{format}.gguf", format=format))


def test_int8_moves_floats_as_far_as_the_plain_definition() -> None:
    checkpoint = memory_checkpoint()
    embedding = checkpoint.tensors["embedding"].dequantised()

    found = weights_as_loaded(checkpoint, "int8").rounded["embedding"].relative_rms_error

    assert relative_error(embedding, to_int8(embedding)) == pytest.approx(found, rel=1e-5)


def test_int4_moves_floats_as_far_as_the_plain_definition() -> None:
    checkpoint = memory_checkpoint()
    embedding = checkpoint.tensors["embedding"].dequantised()

    found = weights_as_loaded(checkpoint, "int4").rounded["embedding"].relative_rms_error

    assert relative_error(embedding, to_int4(embedding)) == pytest.approx(found, rel=1e-3)


def test_a_kind_is_the_tensors_of_all_layers_together() -> None:
    checkpoint = memory_checkpoint(TinyShape(layers=3))
    down = np.concatenate([checkpoint.tensors[f"layers.{i}.down"].dequantised() for i in range(3)])

    found = weights_as_loaded(checkpoint, "int8").rounded["down"]

    assert down.size == found.weights
    assert relative_error(down, to_int8(down)) == pytest.approx(found.relative_rms_error, rel=1e-5)


def test_overall_is_every_matrix_together() -> None:
    checkpoint = memory_checkpoint()
    matrices = [tensor.dequantised().ravel() for tensor in checkpoint.tensors.values() if len(tensor.shape) == 2]
    weights = np.concatenate(matrices)

    overall = weights_as_loaded(checkpoint, "int8").overall

    assert weights.size == overall.weights
    assert relative_error(weights, to_int8(weights)) == pytest.approx(overall.relative_rms_error, rel=1e-5)


@pytest.mark.parametrize("format", ["Q4_0", "Q4_1", "Q8_0"])
def test_block_formats_are_kept_as_stored(tmp_path: Path, format: FormatName) -> None:
    checkpoint = stored(tmp_path, format)
    weights = sum(tensor.dequantised().size for tensor in checkpoint.tensors.values() if len(tensor.shape) == 2)

    assert LoadedWeights(weights, {}) == weights_as_loaded(checkpoint, "int8")


@pytest.mark.parametrize("format", ["Q5_0", "Q5_1", "IQ4_NL", "Q3_K", "Q4_K", "Q5_K"])
def test_newer_block_formats_are_kept_as_stored(tmp_path: Path, format: FormatName) -> None:
    checkpoint = load_gguf(write_tiny_gguf(tmp_path / "x.gguf", shape=FOR_EVERY_FORMAT, format=format))
    weights = sum(tensor.dequantised().size for tensor in checkpoint.tensors.values() if len(tensor.shape) == 2)

    assert LoadedWeights(weights, {}) == weights_as_loaded(checkpoint, "int8")


@pytest.mark.parametrize(("format", "most"), [("Q2_K", 0.009), ("Q6_K", 0.007)])
def test_blocks_whose_scales_are_of_16_weights_are_rounded(tmp_path: Path, format: FormatName, most: float) -> None:
    checkpoint = load_gguf(write_tiny_gguf(tmp_path / "x.gguf", shape=FOR_EVERY_FORMAT, format=format))
    down = checkpoint.tensors["layers.0.down"].dequantised()

    found = weights_as_loaded(checkpoint, "int8")

    assert 0 == found.kept
    assert relative_error(down, to_int8(down)) == pytest.approx(found.rounded["down"].relative_rms_error, rel=1e-5)
    assert 0 < found.overall.relative_rms_error < most


def test_what_shares_a_matrix_with_floats_is_kept_as_stored(tmp_path: Path) -> None:
    checkpoint, other = stored(tmp_path, "Q8_0"), stored(tmp_path, "F16")
    keys = {f"layers.{i}.key" for i in range(2)}
    mixed = {name: other.tensors[name] if name in keys else tensor for name, tensor in checkpoint.tensors.items()}

    loaded = weights_as_loaded(replace(checkpoint, tensors=mixed), "int8")

    assert {"key"} == set(loaded.rounded)


def test_a_matrix_of_zeros_has_no_error() -> None:
    checkpoint = memory_checkpoint()
    embedding = checkpoint.tensors["embedding"]
    zeros = replace(embedding, read=lambda: np.zeros_like(embedding.rows()))

    loaded = weights_as_loaded(replace(checkpoint, tensors={**checkpoint.tensors, "embedding": zeros}), "int8")

    assert 0 == loaded.rounded["embedding"].relative_rms_error


def test_a_width_that_no_kernel_has_is_refused() -> None:
    checkpoint = memory_checkpoint(TinyShape(width=48))

    with pytest.raises(ValueError, match="multiple of 32"):
        weights_as_loaded(checkpoint, "int8")


@pytest.mark.parametrize("family", CONFIGS)
def test_the_matrices_of_every_family_are_counted_and_its_vectors_left_alone(family: str) -> None:
    checkpoint = family_checkpoint(family)

    found = weights_as_loaded(checkpoint, "int8")

    matrices = [tensor for tensor in checkpoint.tensors.values() if len(tensor.shape) == 2]
    assert sum(int(np.prod(tensor.shape)) for tensor in matrices) == found.overall.weights
    assert {tensor.name.rpartition(".")[2] for tensor in matrices} == set(found.rounded)
