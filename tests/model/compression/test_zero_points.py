"""Every code may be the one that stands for zero: fitted, written down, read again and run, it stays that code."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from model.compression.grids import GridSpec, round_to_nearest
from model.compression.matrix import GridMatrix
from model.compression.stored import zero_codes
from model.loading.model import load_model
from tests.compressed import grids_for, tiny_source, write_artefact
from tests.model.test_native_grids import packed, stored

BITS = range(2, 9)
SIDE, GROUP = 192, 32


def grid_of_every_zero(bits: int) -> tuple[GridMatrix, NDArray[np.uint8]]:
    """A matrix whose groups go through all zero points in turn, and those; zeros of weights are among the codes."""
    rng = np.random.default_rng(bits)
    shape = (SIDE, SIDE // GROUP)
    zeros = (np.arange(SIDE * SIDE // GROUP) % (1 << bits)).astype(np.uint8).reshape(shape)
    codes = rng.integers(0, 1 << bits, (*shape, GROUP)).astype(np.uint8)
    codes[..., 7] = zeros
    scales = rng.uniform(0.001, 0.1, shape).astype(np.float16)
    offsets = -zeros.astype(np.float32) * scales.astype(np.float32)
    return GridMatrix(bits, GROUP, codes.reshape(SIDE, SIDE), scales, offsets), zeros


def weights_of_every_zero(bits: int) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """A row for each zero point z, from -z to 2^bits - 1 - z times a step that float16 holds."""
    codes = np.arange(1 << bits, dtype=np.float64)
    return (codes[None, :] - codes[:, None]) * 0.015625, codes.astype(np.uint8)


@pytest.mark.parametrize("bits", BITS)
def test_every_zero_point_is_found_where_it_is(bits: int) -> None:
    exact, zeros = weights_of_every_zero(bits)

    matrix = round_to_nearest(exact, GridSpec(bits, 1 << bits))

    found = zero_codes(matrix)
    assert found is not None
    assert zeros.tolist() == found[:, 0].tolist()
    assert exact.tolist() == matrix.dequantised().tolist()


@pytest.mark.parametrize("bits", BITS)
def test_a_code_is_the_weight_in_steps_plus_the_zero_point(bits: int) -> None:
    """Clamped to what the bits hold, and no weight in the range is moved by more than half a step."""
    whole, _ = weights_of_every_zero(bits)
    exact = whole + np.random.default_rng(bits).uniform(-0.4, 0.4, whole.shape) * 0.015625

    matrix = round_to_nearest(exact, GridSpec(bits, 1 << bits))

    steps, zeros = matrix.scales.astype(np.float64), zero_codes(matrix)
    assert zeros is not None
    assert np.clip(np.rint(exact / steps) + zeros, 0, (1 << bits) - 1).tolist() == matrix.codes.tolist()
    assert (np.abs(matrix.dequantised() - exact) <= steps / 2 * (1 + 2**-10)).all()


@pytest.mark.parametrize("bits", BITS)
def test_every_zero_point_comes_back_from_a_folder(bits: int, tmp_path: Path) -> None:
    source = tiny_source(tmp_path)
    grid, zeros = grid_of_every_zero(bits)

    folder = write_artefact(tmp_path / "x", source, grids_for(source) | {"layers.1.down": grid})
    read = load_model(folder).tensors["layers.1.down"].grid

    assert read is not None
    found = zero_codes(read())
    assert found is not None
    assert zeros.tolist() == found.tolist()
    assert grid.dequantised().tobytes() == read().dequantised().tobytes()


@pytest.mark.parametrize("bits", BITS)
def test_every_zero_point_is_run_as_stored(bits: int) -> None:
    grid, _ = grid_of_every_zero(bits)

    weights = packed(stored(grid))

    assert np.array_equal(grid.dequantised(), weights)
    assert (weights.reshape(SIDE, -1, GROUP)[..., 7] == 0).all()
