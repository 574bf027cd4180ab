"""Layers that were compressed before, and what becomes of matrices that only became narrower."""

from pathlib import Path

import numpy as np
import pytest

from model.compression.artefact import load_artefact
from model.compression.artefact_writer import ArtefactWriter
from model.compression.calibration import INPUT_OF, HiddenStates
from model.compression.compress_layer import CompressedLayer, compress_layer
from model.compression.compressor import compress
from model.compression.matrix import GridMatrix, Mask
from model.compression.recipe import parse
from model.compression.sparse import SparseMatrix
from model.compression.stored import zero_codes
from model.loading.checkpoint import Checkpoint
from model.loading.ggml import F32
from model.loading.tensor import StoredTensor
from tests.compressed import tiny_source

WINDOWS = np.random.default_rng(5).integers(3, 300, (6, 24)).tolist()


@pytest.fixture(scope="module")
def pruned(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return made(tmp_path_factory.mktemp("pruned"), "sparsegpt-50")


def made(folder: Path, name: str) -> Checkpoint:
    """A tiny model by a recipe."""
    source, recipe = tiny_source(folder), parse(name)
    writer = ArtefactWriter(folder / "out", recipe.described(), source)
    config, report = compress(source, recipe, WINDOWS, writer, lambda: None)
    return load_artefact(writer.finish(config, "tiny", report))


def again(model: Checkpoint, name: str) -> CompressedLayer:
    """Its first layer by another recipe."""
    hessians = HiddenStates(model.tensors["embedding"], WINDOWS).hessians(model.config, model.layer(0))
    return compress_layer(model.layer(0), hessians, parse(name), model.config)


def mask_before(model: Checkpoint, name: str) -> Mask:
    tensor = model.layer(0)[name]
    matrix = tensor.grid() if tensor.grid is not None else tensor.pruned() if tensor.pruned is not None else None
    assert matrix is not None
    assert matrix.mask is not None
    return matrix.mask


def mask_after(layer: CompressedLayer, name: str) -> Mask:
    matrix = layer.tensors[name]
    assert isinstance(matrix, GridMatrix | SparseMatrix)
    assert matrix.mask is not None
    return matrix.mask


def columns_left(model: Checkpoint, layer: CompressedLayer) -> list[int]:
    """Of `down`, told by the rows of `gate` that stay."""
    rows = {row.tobytes(): index for index, row in enumerate(model.layer(0)["gate"].dequantised())}
    return [rows[row.tobytes()] for row in layer.tensors["gate"].dequantised()]


@pytest.mark.parametrize("name", ["rtn-4bit-g32", "gptq-4bit-g32", "gptq-8bit-row-sym", "rtn-4bit-g32+refit"])
def test_what_was_pruned_stays_zero_on_a_grid(pruned: Checkpoint, name: str) -> None:
    layer = again(pruned, name)

    for matrix in INPUT_OF:
        mask = mask_before(pruned, matrix)
        assert mask.tobytes() == mask_after(layer, matrix).tobytes()
        assert not layer.tensors[matrix].dequantised()[~mask].any()


def test_what_was_pruned_goes_to_no_grid_without_a_zero(pruned: Checkpoint) -> None:
    with pytest.raises(ValueError, match="no exact zero"):
        again(pruned, "rtn-4bit-g32-min")


def test_a_recipe_that_prunes_chooses_anew(pruned: Checkpoint) -> None:
    layer = again(pruned, "magnitude-75")

    assert round(0.75 * 192 * 192) == int((~mask_after(layer, "down")).sum())
    assert not mask_after(layer, "down")[~mask_before(pruned, "down")].any()


@pytest.mark.parametrize("name", ["sparsegpt-50", "sparsegpt-50+gptq-4bit-g32"])
def test_what_was_pruned_stays_zero_in_a_smaller_matrix(name: str, tmp_path: Path) -> None:
    before = made(tmp_path, name)
    layer = again(before, "ffn-50")
    columns = columns_left(before, layer)

    assert mask_before(before, "down")[:, columns].tobytes() == mask_after(layer, "down").tobytes()
    assert mask_before(before, "gate")[columns].tobytes() == mask_after(layer, "gate").tobytes()
    assert not layer.tensors["down"].dequantised()[~mask_after(layer, "down")].any()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("rtn-3bit-g64", (3, 32, True)), ("gptq-4bit-row", (4, 96, True)), ("rtn-8bit-g32-min", (8, 32, False))],
)
def test_a_narrower_matrix_goes_back_to_a_grid_like_its_own(
    name: str, expected: tuple[int, int, bool], tmp_path: Path
) -> None:
    down = again(made(tmp_path, name), "ffn-50").tensors["down"]

    assert isinstance(down, GridMatrix)
    assert expected == (down.bits, down.group, zero_codes(down) is not None)


def floats(name: str, weights: np.ndarray) -> StoredTensor:
    return StoredTensor(name, weights.shape, F32, lambda: np.ascontiguousarray(weights).view(np.uint8))


def test_a_narrower_matrix_of_floats_has_its_figures(tmp_path: Path) -> None:
    source = tiny_source(tmp_path, format="F16")
    layer = again(source, "ffn-50")
    whole = source.layer(0)["down"].dequantised().astype(np.float64)
    result = np.zeros_like(whole)
    result[:, columns_left(source, layer)] = layer.tensors["down"].dequantised()

    assert {"down"} == set(layer.figures)
    assert np.linalg.norm(whole - result) / np.linalg.norm(whole) == pytest.approx(layer.figures["down"].relative_error)
    assert 0 < (layer.figures["down"].relative_output_error or 0) < 1


def test_floats_that_float16_does_not_reach_are_kept_in_float32(tmp_path: Path) -> None:
    source = tiny_source(tmp_path, format="F32")
    own = source.layer(0)
    great = floats("down", own["down"].dequantised() * np.float32(1e7))
    hessians = HiddenStates(source.tensors["embedding"], WINDOWS).hessians(source.config, own)

    layer = compress_layer({**own, "down": great}, hessians, parse("ffn-50"), source.config)

    assert np.isfinite(layer.tensors["down"].dequantised()).all()
    assert layer.figures["down"].relative_error < 1
