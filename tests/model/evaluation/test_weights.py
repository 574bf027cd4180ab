"""Bits, bytes, zeros and errors are those of the files and of the weights that are read from them."""

from pathlib import Path

import numpy as np
import pytest

from model.evaluation.saved import write_evaluation
from model.evaluation.weights import bytes_on_disk, linear_weights, relative_error
from model.loading.checkpoint import Checkpoint
from model.loading.model import load_model
from tests.compressed import grids_for, is_linear, write_artefact


@pytest.fixture(scope="module")
def folder(source: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    weights = grids_for(source, bits=4, group=32, zero=8, pruned=0.5)
    return write_artefact(tmp_path_factory.mktemp("weights") / "pruned", source, weights)


def test_bits_are_those_of_codes_scales_zeros_and_masks(folder: Path) -> None:
    checkpoint = load_model(folder)
    grids = [tensor.grid() for name, tensor in checkpoint.tensors.items() if tensor.grid is not None]
    kept = sum(int(grid.mask.sum()) for grid in grids if grid.mask is not None)
    weights = sum(grid.codes.size for grid in grids)

    assert 4 * kept / weights + 1 + (16 + 4) / 32 == pytest.approx(linear_weights(checkpoint).bits_per_weight, abs=0.01)


def test_a_plain_file_has_the_bits_of_its_blocks(source: Checkpoint) -> None:
    assert 8.5 == linear_weights(source).bits_per_weight


def test_zeros_are_counted_exactly(folder: Path) -> None:
    checkpoint = load_model(folder)
    linear = [tensor for name, tensor in checkpoint.tensors.items() if is_linear(name, tensor.shape)]

    assert sum(int((tensor.dequantised() == 0).sum()) for tensor in linear) == linear_weights(checkpoint).zeros


def test_every_linear_layer_has_its_error(folder: Path, source: Checkpoint) -> None:
    errors = linear_weights(load_model(folder), source).errors

    assert {name for name, tensor in source.tensors.items() if is_linear(name, tensor.shape)} == set(errors)
    assert all(0.5 < error < 2 for error in errors.values())


def test_nothing_has_an_error_from_itself(source: Checkpoint) -> None:
    assert {0.0} == set(linear_weights(source, source).errors.values())


def test_an_error_is_relative_to_the_original() -> None:
    original = np.array([[3.0, 4.0]], dtype=np.float32)

    assert 0.6 == relative_error(original, np.array([[0.0, 4.0]], dtype=np.float32))


def test_a_folder_has_the_bytes_of_its_files_but_not_of_the_figures_in_it(folder: Path) -> None:
    files = sum(path.stat().st_size for path in folder.iterdir())

    write_evaluation(folder, {"model_sha256": "0" * 64})

    assert files == bytes_on_disk(folder)


def test_a_file_has_its_own_bytes(folder: Path) -> None:
    path = folder / "model.safetensors"

    assert path.stat().st_size == bytes_on_disk(path)
