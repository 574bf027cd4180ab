"""Each matrix gets a format that holds it where there is one, and what another format changes is measured."""

from dataclasses import replace

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from model.compression.gguf_blocks import BlockName
from model.compression.gguf_choice import Wanted, convert, format_of
from model.compression.grids import Form, GridSpec, round_to_nearest
from model.compression.matrix import GridMatrix
from model.compression.sparse import SparseMatrix
from model.loading.ggml import F32, FORMAT_BY_NAME
from model.loading.tensor import StoredTensor
from tests.compressed import random_grid, random_sparse

SHAPE = (24, 192)


def of_grid(grid: GridMatrix, name: str = "layers.0.up") -> StoredTensor:
    shape = (grid.rows, grid.columns)
    format = replace(F32, name="grid")
    return StoredTensor(name, shape, format, lambda: grid.dequantised().view(np.uint8), lambda: grid)


def of_sparse(matrix: SparseMatrix) -> StoredTensor:
    format = replace(F32, name="pruned")
    read = matrix.dequantised
    return StoredTensor("layers.0.up", SHAPE, format, lambda: read().view(np.uint8), pruned=lambda: matrix)


def of_floats(weights: NDArray[np.float32], name: str = "layers.0.up") -> StoredTensor:
    return StoredTensor(name, weights.shape, F32, lambda: weights.view(np.uint8))


def of_blocks(format: str, name: str) -> StoredTensor:
    kind = gguf.GGMLQuantizationType[format]
    rows = gguf.quants.quantize(normal(), kind).view(np.uint8).reshape(SHAPE[0], -1)
    return StoredTensor(name, SHAPE, FORMAT_BY_NAME[format], lambda: rows)


def normal(shape: tuple[int, int] = SHAPE) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def fitted(bits: int, form: Form, group: int = 64) -> StoredTensor:
    """A grid as rounding makes it of weights that are not about zero, so that each group has a zero of its own."""
    return of_grid(round_to_nearest(normal().astype(np.float64) + 0.3, GridSpec(bits, group, form)))


def read_by_another_program(tensor: StoredTensor, format: str) -> NDArray[np.float32]:
    rows = convert(tensor, FORMAT_BY_NAME[format]).rows
    kind = gguf.GGMLQuantizationType[format]
    data = rows.view(np.float16) if format == "F16" else rows.view(np.float32) if format == "F32" else rows
    read: NDArray[np.float32] = gguf.quants.dequantize(data, kind)
    return read.reshape(tensor.shape)


EXACT: dict[tuple[int, Form], str] = {
    (4, "minimum"): "Q4_1",
    (4, "uniform"): "Q4_1",
    (4, "symmetric"): "Q4_0",
    (4, "affine"): "Q8_0",
    (3, "minimum"): "Q4_1",
    (3, "affine"): "Q4_0",
    (2, "affine"): "Q4_0",
    (5, "affine"): "Q8_0",
    (7, "affine"): "Q8_0",
    (8, "symmetric"): "Q8_0",
}


@pytest.mark.parametrize(("bits", "form"), EXACT)
def test_a_grid_gets_the_smallest_format_that_holds_it(bits: int, form: Form) -> None:
    assert EXACT[bits, form] == format_of(fitted(bits, form), "auto").name


@pytest.mark.parametrize(("bits", "form"), EXACT)
def test_another_program_reads_every_weight_of_a_grid_that_is_held(bits: int, form: Form) -> None:
    tensor = fitted(bits, form)

    found = read_by_another_program(tensor, EXACT[bits, form])

    assert tensor.dequantised().tolist() == found.tolist()


@pytest.mark.parametrize(("bits", "form"), EXACT)
def test_what_is_held_is_said_to_be_exact(bits: int, form: Form) -> None:
    assert convert(fitted(bits, form), FORMAT_BY_NAME[EXACT[bits, form]]).rounding is None


@pytest.mark.parametrize(("bits", "form", "group"), [(8, "uniform", 64), (6, "minimum", 64), (4, "minimum", 48)])
def test_a_grid_that_no_format_holds_becomes_float16_and_says_so(bits: int, form: Form, group: int) -> None:
    tensor = fitted(bits, form, group)

    format = format_of(tensor, "auto")

    rounding = convert(tensor, format).rounding
    assert "F16" == format.name
    assert rounding is not None
    assert 0 < rounding.relative_rms_error < 5e-4


def test_a_grid_with_groups_of_no_width_stays_at_zero_in_q8_0() -> None:
    grid = random_grid(SHAPE, zero=3, pruned=0.5)
    scales = grid.scales.copy()
    scales[:, 0] = 0
    offsets = (-3 * scales.astype(np.float32)).astype(np.float32)
    tensor = of_grid(GridMatrix(4, 32, grid.codes, scales, offsets, grid.mask))

    assert tensor.dequantised().tolist() == (read_by_another_program(tensor, "Q8_0") + 0).tolist()
    assert convert(tensor, FORMAT_BY_NAME["Q8_0"]).rounding is None


def test_pruned_halves_become_f16_and_pruned_floats_f32() -> None:
    found = [format_of(of_sparse(random_sparse(SHAPE, stored=kind)), "auto").name for kind in (np.float16, np.float32)]

    assert ["F16", "F32"] == found


@pytest.mark.parametrize("stored", [np.float16, np.float32])
def test_another_program_reads_every_pruned_float(stored: type) -> None:
    tensor = of_sparse(random_sparse(SHAPE, stored=stored))

    found = read_by_another_program(tensor, format_of(tensor, "auto").name)

    assert tensor.dequantised().tolist() == found.tolist()


@pytest.mark.parametrize("format", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0"])
def test_what_gguf_has_stays_as_it_is_stored(format: str) -> None:
    assert format == format_of(of_blocks(format, "layers.0.up"), "auto").name


def test_rows_that_blocks_do_not_divide_become_f16() -> None:
    grid = random_grid((8, 48), bits=4, group=48)

    assert "F16" == format_of(of_grid(grid), "auto").name


@pytest.mark.parametrize("wanted", ["Q4_0", "Q4_1", "Q8_0", "F16", "auto"])
def test_gains_are_floats(wanted: Wanted) -> None:
    gain = StoredTensor("output_norm", (192,), FORMAT_BY_NAME["F16"], lambda: np.ones(192, np.float16).view(np.uint8))

    assert "F32" == format_of(gain, wanted).name
    assert [1.0] * 192 == convert(gain, F32).rows.view(np.float32).tolist()


TABLES: dict[tuple[str, BlockName], str] = {
    ("Q8_0", "Q4_0"): "Q8_0",
    ("Q4_1", "Q4_0"): "Q4_1",
    ("Q8_0", "F16"): "Q8_0",
    ("F32", "Q4_0"): "Q8_0",
    ("F16", "Q4_1"): "Q8_0",
    ("F32", "Q8_0"): "Q8_0",
    ("F32", "F16"): "F16",
    ("BF16", "F16"): "F16",
}


@pytest.mark.parametrize(("stored", "wanted"), TABLES)
@pytest.mark.parametrize("name", ["embedding", "head"])
def test_embedding_and_head_lose_little(name: str, stored: str, wanted: BlockName) -> None:
    assert TABLES[stored, wanted] == format_of(of_blocks(stored, name), wanted).name


def test_an_embedding_that_is_a_grid_of_4_bits_gets_4_bits() -> None:
    assert "Q4_1" == format_of(of_grid(random_grid(SHAPE), name="embedding"), "Q4_1").name


def test_codes_are_kept_where_only_an_offset_is_rounded() -> None:
    """The offset −scale · z of an affine grid is seldom a float16. Fitted anew, the grid would move far more."""
    tensor = fitted(4, "affine")

    rounding = convert(tensor, FORMAT_BY_NAME["Q4_1"]).rounding

    assert rounding is not None
    assert 0 < rounding.relative_rms_error < 5e-4


def test_codes_are_kept_where_only_a_scale_is_rounded() -> None:
    tensor = of_grid(random_grid(SHAPE, bits=8, zero=128, scale_type=np.float32))

    rounding = convert(tensor, FORMAT_BY_NAME["Q8_0"]).rounding

    assert rounding is not None
    assert 0 < rounding.relative_rms_error < 5e-4


@pytest.mark.parametrize("format", ["Q4_0", "Q4_1", "Q8_0", "F16"])
def test_the_error_is_that_of_what_another_program_reads(format: str) -> None:
    tensor = of_floats(normal())

    rounding = convert(tensor, FORMAT_BY_NAME[format]).rounding

    assert rounding is not None
    error = np.linalg.norm(read_by_another_program(tensor, format) - normal()) / np.linalg.norm(normal())
    assert error == pytest.approx(rounding.relative_rms_error, rel=1e-5)


def test_floats_that_happen_to_be_held_are_exact() -> None:
    halves = normal().astype(np.float16).astype(np.float32)

    assert convert(of_floats(halves), FORMAT_BY_NAME["F16"]).rounding is None


@pytest.mark.parametrize("format", ["Q4_0", "Q4_1", "Q8_0"])
def test_scales_that_float16_does_not_hold_are_refused_by_name(format: str) -> None:
    grid = random_grid(SHAPE, zero=8, scale_type=np.float32)
    huge = GridMatrix(4, 32, grid.codes, grid.scales * np.float32(1e9), grid.offsets * np.float32(1e9))

    with pytest.raises(ValueError, match=rf"layers\.0\.up cannot be written as {format}: .*too great for float16"):
        convert(of_grid(huge), FORMAT_BY_NAME[format])
