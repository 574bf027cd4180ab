"""Block formats in the native memory: the weights that a file stands for, in the fewest bits that hold them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from model.batch import Batch, Segment
from model.compression.codes import codes_of
from model.loading.ggml import FORMATS
from model.loading.gguf import load_gguf
from model.loading.tensor import StoredTensor
from model.ops import native_ops
from model.ops.native_forms import weight_form
from model.ops.native_ops import NativeOps
from model.ops.torch_ops import TorchOps
from model.runner import ModelRunner
from tests.block_formats import SCALES, random_blocks, set_scales, stored_rows
from tests.compressed import random_sparse
from tests.memory_checkpoint import config_of, stored_in_memory
from tests.tiny_model import EVERY_FORMAT, FOR_EVERY_FORMAT, FormatName, write_tiny_gguf

SHAPE = (40, 512)
EXACT: dict[str, tuple[bool, bool, bool]] = {
    "Q4_0": (False, True, True),
    "Q4_1": (False, False, True),
    "Q5_0": (True, True, True),
    "Q5_1": (True, False, True),
    "Q8_0": (True, True, True),
    "IQ4_NL": (True, True, True),
    "Q3_K": (True, True, True),
    "Q4_K": (False, False, False),
    "Q5_K": (True, False, False),
}
"""Whether codes have 8 bits, whether they are centred, and whether scales are float16."""
FORMAT_BY_NAME = {format.name: format for format in FORMATS.values()}


def of_rows(format: str, rows: NDArray[np.generic], name: str = "layers.0.up") -> StoredTensor:
    block_format = FORMAT_BY_NAME[format]
    as_bytes = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    width = as_bytes.shape[1] // block_format.block_bytes * block_format.block_size
    return StoredTensor(name, (len(rows), width), block_format, lambda: as_bytes)


def of_normal(format: str, seed: int = 0) -> StoredTensor:
    return of_rows(format, stored_rows(np.random.default_rng(seed).standard_normal(SHAPE, dtype=np.float32), format))


def of_any_bytes(format: str) -> StoredTensor:
    """Random codes and integer scales, and any finite float16 for each other scale."""
    rng = np.random.default_rng(1)
    block_format = FORMAT_BY_NAME[format]
    blocks = random_blocks(format, SHAPE[0] * SHAPE[1] // block_format.block_size, rng)
    any_half = rng.integers(0, 0x7C00, (len(blocks), 2)) | rng.integers(0, 2, (len(blocks), 2)) << 15
    set_scales(format, blocks, any_half.astype(np.uint16).view(np.float16))
    return of_rows(format, blocks.reshape(SHAPE[0], -1))


def packed(*parts: StoredTensor) -> NDArray[np.float32]:
    ops = NativeOps(config_of(FOR_EVERY_FORMAT), 1)
    return ops.unpacked(ops.matrix(*parts))


def dequantised(parts: Sequence[StoredTensor]) -> NDArray[np.float32]:
    return np.concatenate([part.dequantised() for part in parts])


def bits(weights: NDArray[np.float32]) -> bytes:
    """All of them but the sign of zeros, which no sum of products shows."""
    return (weights + np.float32(0)).tobytes()


@pytest.mark.parametrize("format", EXACT)
def test_the_native_weights_have_the_bits_that_the_format_defines(format: str) -> None:
    tensor = of_any_bytes(format)

    assert bits(tensor.dequantised()) == bits(packed(tensor))


@pytest.mark.parametrize("byte", [0x00, 0xFF])
@pytest.mark.parametrize("format", EXACT)
def test_the_least_and_greatest_fields_are_held_too(format: str, byte: int) -> None:
    blocks = np.full((2 * SHAPE[0], FORMAT_BY_NAME[format].block_bytes), byte, dtype=np.uint8)
    set_scales(format, blocks, np.full((len(blocks), 2), 0.375, np.float16))
    tensor = of_rows(format, blocks)

    assert bits(tensor.dequantised()) == bits(packed(tensor))


def test_the_greatest_product_of_q3_k_is_held() -> None:
    """Scale −32 times code −4 is 128, which is no 8-bit code less 128; with the sign of d changed, −128 is."""
    blocks = np.zeros((2, 110), dtype=np.uint8)
    set_scales("Q3_K", blocks, np.array(((1, 0), (-1, 0)), np.float16))
    tensor = of_rows("Q3_K", blocks)

    assert [[128.0] * 256, [-128.0] * 256] == tensor.dequantised().tolist()
    assert tensor.dequantised().tolist() == packed(tensor).tolist()


@pytest.mark.parametrize("format", EXACT)
def test_many_rows_are_packed_in_pieces(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_ops, "PACK_ROWS", 7)
    tensor = of_normal(format)

    assert bits(tensor.dequantised()) == bits(packed(tensor))


@pytest.mark.parametrize("format", EXACT)
def test_a_format_is_held_in_the_fewest_bits(format: str) -> None:
    form = weight_form([of_normal(format)], "int8")

    assert EXACT[format] == (form.eight_bits, form.centred, form.half_scales)


@pytest.mark.parametrize("format", EXACT)
def test_the_form_asked_for_others_does_not_matter_to_what_is_kept(format: str) -> None:
    assert weight_form([of_normal(format)], "int8") == weight_form([of_normal(format)], "int4")


@pytest.mark.parametrize("format", EXACT)
def test_codes_stand_for_the_weights(format: str) -> None:
    tensor = of_any_bytes(format)
    codes = codes_of(tensor)

    assert codes is not None
    by_group = codes.codes.reshape(*codes.d.shape, 32).astype(np.float64)
    weights = codes.d.astype(np.float64)[..., None] * by_group + codes.m.astype(np.float64)[..., None]
    assert np.array_equal(tensor.dequantised(), weights.astype(np.float32).reshape(SHAPE))


@pytest.mark.parametrize("format", ["Q2_K", "Q6_K"])
def test_scales_of_16_weights_are_rounded_away(format: str) -> None:
    tensor = of_normal(format)

    assert (False,) == weight_form([tensor], "int8").kept
    error = np.linalg.norm(packed(tensor) - tensor.dequantised()) / np.linalg.norm(tensor.dequantised())
    assert 0 < error < 0.01


@pytest.mark.parametrize(
    "formats",
    [("Q4_K", "Q4_K", "Q5_K"), ("Q5_0", "Q8_0", "IQ4_NL"), ("Q4_0", "Q3_K"), ("Q4_1", "Q5_0"), ("Q5_1", "Q4_K")],
    ids="+".join,
)
def test_formats_that_share_a_matrix_are_all_kept(formats: tuple[str, ...]) -> None:
    parts = [of_normal(format, seed) for seed, format in enumerate(formats)]

    assert (True,) * len(parts) == weight_form(parts, "int8").kept
    assert bits(dequantised(parts)) == bits(packed(*parts))


@pytest.mark.parametrize("format", EXACT)
@pytest.mark.parametrize("other", ["Q6_K", "F16"])
def test_what_is_rounded_takes_nothing_from_what_shares_its_matrix(format: str, other: str) -> None:
    parts = [of_normal(format), of_normal(other, 1), of_normal(format, 2)]

    found = np.split(packed(*parts), 3)

    assert (True, False, True) == weight_form(parts, "int8").kept
    assert bits(dequantised(parts[::2])) == bits(np.concatenate(found[::2]))
    np.testing.assert_allclose(parts[1].dequantised(), found[1], atol=0.05)


def test_pruned_floats_stay_zero_beside_blocks() -> None:
    sparse = random_sparse(SHAPE)
    floats = stored_in_memory("layers.0.gate", sparse.dequantised())
    pruned = replace(floats, format=replace(floats.format, name="pruned float16"), pruned=lambda: sparse)

    found = packed(of_normal("Q4_K"), pruned)

    assert not found[SHAPE[0] :][~sparse.mask].any()


@pytest.mark.parametrize("format", SCALES)
def test_a_model_in_blocks_computes_on_the_native_engine_what_it_does_on_torch(
    tmp_path: Path, format: FormatName
) -> None:
    """Within what activations of 8 bits explain: weights in floats, rounded to 8 bits, are as far off."""
    loaded = load_gguf(write_tiny_gguf(tmp_path / "x.gguf", shape=FOR_EVERY_FORMAT, format=format))
    batch = Batch((Segment(tuple(range(10, 40)), 0, (0,), asks=1),), ())
    expected = ModelRunner(TorchOps(loaded.config, 1), loaded).forward(batch).numpy()

    found = ModelRunner(NativeOps(loaded.config, 1, kv_type="float16"), loaded).forward(batch).numpy()

    assert np.linalg.norm(found - expected) < 0.08 * np.linalg.norm(expected)


@pytest.mark.parametrize("format", EVERY_FORMAT)
def test_the_torch_weights_have_the_bits_that_the_format_defines(format: str) -> None:
    tensor = of_normal(format)

    assert tensor.dequantised().tobytes() == TorchOps(config_of(FOR_EVERY_FORMAT), 1).matrix(tensor).numpy().tobytes()
