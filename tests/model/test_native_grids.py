"""Grids in the native memory: the weights that are stored, in the fewest bits that hold them, or a refusal by name."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.batch import Batch, Segment
from model.compression.matrix import GridMatrix
from model.loading.ggml import F32
from model.loading.model import load_model
from model.loading.tensor import StoredTensor
from model.ops.native_forms import weight_form
from model.ops.native_ops import NativeOps
from model.ops.torch_ops import TorchOps
from model.ops.weight_error import weights_as_loaded
from model.runner import ModelRunner
from tests.compressed import WIDE, grids_for, random_grid, random_sparse, tiny_source, write_artefact
from tests.memory_checkpoint import config_of, stored_in_memory
from tests.model.compression.test_artefact import FORMS

SHAPE = (48, 192)
RUNNABLE = {
    name: form
    for name, form in FORMS.items()
    if name not in ("groups of 16", "pruned with float32 scales", "float32 scales")
}


def stored(grid: GridMatrix, name: str = "layers.0.up") -> StoredTensor:
    def rows() -> NDArray[np.uint8]:
        return grid.dequantised().view(np.uint8)

    return StoredTensor(name, (grid.rows, grid.columns), replace(F32, name="grid"), rows, lambda: grid)


def packed(*parts: StoredTensor) -> NDArray[np.float32]:
    ops = NativeOps(config_of(WIDE), 1)
    return ops.unpacked(ops.matrix(*parts))


def grid_weights(*grids: GridMatrix) -> NDArray[np.float32]:
    return np.concatenate([grid.dequantised() for grid in grids])


@pytest.mark.parametrize("form", RUNNABLE)
def test_the_native_weights_are_those_of_the_grid(form: str) -> None:
    grid = random_grid(SHAPE, **RUNNABLE[form])

    assert np.array_equal(grid.dequantised(), packed(stored(grid)))


@pytest.mark.parametrize("form", FORMS)
def test_the_torch_weights_have_the_bits_of_the_grid(form: str) -> None:
    grid = random_grid(SHAPE, **FORMS[form])

    assert grid.dequantised().tobytes() == TorchOps(config_of(WIDE), 1).matrix(stored(grid)).numpy().tobytes()


def test_with_float32_scales_the_native_weights_are_rounded_once() -> None:
    grid = random_grid(SHAPE, scale_type=np.float32)
    by_group = grid.codes.reshape(*grid.scales.shape, grid.group).astype(np.float64)
    exact = by_group * grid.scales[..., None].astype(np.float64) + grid.offsets[..., None].astype(np.float64)

    assert np.array_equal(exact.astype(np.float32).reshape(SHAPE), packed(stored(grid)))


@pytest.mark.parametrize(("bits", "eight"), [(1, False), (3, False), (4, False), (5, True), (7, True), (8, True)])
def test_codes_are_held_in_four_bits_or_eight(bits: int, eight: bool) -> None:
    assert eight == weight_form([stored(random_grid(SHAPE, bits=bits))], "int8").eight_bits


def test_scales_stay_float16_where_that_holds_them() -> None:
    assert weight_form([stored(random_grid(SHAPE))], "int8").half_scales


def test_scales_are_float32_where_float16_would_change_them() -> None:
    assert not weight_form([stored(random_grid(SHAPE, scale_type=np.float32))], "int8").half_scales


@pytest.mark.parametrize(("bits", "zero"), [(2, 2), (3, 4), (4, 8), (6, 32), (8, 128)])
def test_a_symmetric_grid_is_held_without_offsets(bits: int, zero: int) -> None:
    assert weight_form([stored(random_grid(SHAPE, bits=bits, zero=zero))], "int8").centred


def test_a_zero_too_far_from_the_middle_keeps_the_offsets() -> None:
    assert not weight_form([stored(random_grid(SHAPE, bits=4, zero=0))], "int8").centred


def test_grids_of_several_forms_are_stacked_exactly() -> None:
    grids = [random_grid(SHAPE, **FORMS[form]) for form in ("3 bits", "8 bits", "half pruned", "groups of 64")]

    assert np.array_equal(grid_weights(*grids), packed(*map(stored, grids)))


@pytest.mark.parametrize("format", ["Q4_0", "Q4_1", "Q8_0"])
def test_grids_are_stacked_exactly_with_blocks(tmp_path: Path, format: Any) -> None:
    blocks = tiny_source(tmp_path, format=format).tensors["layers.0.key"]
    grid = random_grid(SHAPE, bits=3)

    assert np.array_equal(np.concatenate((grid.dequantised(), blocks.dequantised())), packed(stored(grid), blocks))


def test_floats_beside_a_grid_are_rounded_and_the_grid_is_not() -> None:
    grid = random_grid(SHAPE, bits=4, group=64)
    floats = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)

    found = packed(stored(grid), stored_in_memory("layers.0.gate", floats))

    assert np.array_equal(grid.dequantised(), found[: SHAPE[0]])
    np.testing.assert_allclose(floats, found[SHAPE[0] :], atol=0.02)


def test_pruned_floats_stay_zero_when_they_are_rounded(tmp_path: Path) -> None:
    source = tiny_source(tmp_path)
    sparse = random_sparse((192, 192))
    loaded = load_model(write_artefact(tmp_path / "x", source, {**source.tensors, "layers.0.attention_output": sparse}))

    found = packed(loaded.tensors["layers.0.attention_output"])

    assert not found[~sparse.mask].any()


def test_groups_that_are_no_multiple_of_32_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"layers\.0\.up has groups of 16 columns: the native engine runs"):
        packed(stored(random_grid(SHAPE, group=16)))


def test_pruned_weights_that_are_zero_only_by_rounding_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"layers\.0\.up has pruned weights that are zero only when"):
        packed(stored(random_grid(SHAPE, **FORMS["pruned with float32 scales"])))


@pytest.mark.parametrize("form", ["3 bits", "8 bits", "groups of 96", "half pruned"])
def test_a_compressed_model_computes_on_the_native_engine_what_it_does_on_torch(tmp_path: Path, form: str) -> None:
    source = tiny_source(tmp_path)
    loaded = load_model(write_artefact(tmp_path / "x", source, grids_for(source, **FORMS[form])))
    batch = Batch((Segment(tuple(range(10, 40)), 0, (0,), asks=1),), ())
    expected = ModelRunner(TorchOps(loaded.config, 1), loaded).forward(batch).numpy()

    found = ModelRunner(NativeOps(loaded.config, 1, kv_type="float16"), loaded).forward(batch).numpy()

    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


def test_a_compressed_model_keeps_every_weight_as_stored(tmp_path: Path) -> None:
    source = tiny_source(tmp_path)
    loaded = load_model(write_artefact(tmp_path / "x", source, grids_for(source, bits=3, group=64)))

    found = weights_as_loaded(loaded, "int8")

    assert {} == found.rounded
    assert sum(tensor.dequantised().size for tensor in loaded.tensors.values() if len(tensor.shape) > 1) == found.kept
