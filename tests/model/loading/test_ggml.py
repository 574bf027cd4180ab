"""Block formats equal those of the `gguf` package, bit for bit."""

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from model.loading import ggml
from model.loading.tensor import BlockFormat
from tests.block_formats import SCALES, set_scales

FORMAT_BY_NAME = {format.name: format for format in ggml.FORMATS.values()}
EVERY_FORMAT = pytest.mark.parametrize("format", ggml.FORMATS.values(), ids=lambda format: format.name)
EXTREMES = (0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFDFF)
"""Zeros, the smallest and largest subnormals and normals, infinities and NaNs, as float16."""


def random_blocks(format: BlockFormat, count: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, format.block_bytes), dtype=np.uint8)


def expected_weights(format: BlockFormat, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    kind = gguf.GGMLQuantizationType[format.name]
    weights: NDArray[np.float32] = gguf.quants.dequantize(blocks, kind)
    return weights.reshape(-1, format.block_size)


def assert_same_bits(expected: NDArray[np.float32], actual: NDArray[np.float32]) -> None:
    assert np.float32 == actual.dtype
    assert expected.shape == actual.shape
    assert expected.tobytes() == actual.tobytes()


@EVERY_FORMAT
def test_random_blocks_unpack_to_the_same_bits_as_the_gguf_package(format: BlockFormat) -> None:
    blocks = random_blocks(format, 4096)

    with np.errstate(all="ignore"):
        assert_same_bits(expected_weights(format, blocks), format.unpack(blocks))


@pytest.mark.parametrize("format", SCALES)
def test_extreme_scales_unpack_to_the_same_bits_as_the_gguf_package(format: str) -> None:
    block_format = FORMAT_BY_NAME[format]
    pairs = np.array([(d, m) for d in EXTREMES for m in EXTREMES], dtype="<u2").view(np.float16)
    blocks = random_blocks(block_format, len(pairs))
    set_scales(format, blocks, pairs)

    with np.errstate(all="ignore"):
        assert_same_bits(expected_weights(block_format, blocks), block_format.unpack(blocks))


@pytest.mark.parametrize("byte", [0x00, 0xFF])
@pytest.mark.parametrize("format", SCALES)
def test_the_least_and_greatest_fields_unpack_to_the_same_bits_as_the_gguf_package(format: str, byte: int) -> None:
    block_format = FORMAT_BY_NAME[format]
    blocks = np.full((2, block_format.block_bytes), byte, dtype=np.uint8)
    set_scales(format, blocks, np.array(((0.5, 0.25), (-65504, 65504)), np.float16))

    assert_same_bits(expected_weights(block_format, blocks), block_format.unpack(blocks))


@EVERY_FORMAT
def test_a_format_has_the_number_and_the_sizes_that_ggml_gives_it(format: BlockFormat) -> None:
    kind = gguf.GGMLQuantizationType[format.name]

    assert ggml.FORMATS[int(kind)] is format
    assert gguf.GGML_QUANT_SIZES[kind] == (format.block_size, format.block_bytes)


def test_every_type_of_ggml_is_either_supported_or_known_by_name() -> None:
    expected = {int(kind): kind.name for kind in gguf.GGMLQuantizationType}

    named = {number: format.name for number, format in ggml.FORMATS.items()} | {
        number: name for number, (name, _) in ggml.UNSUPPORTED.items()
    }

    assert expected == {number: name for number, name in named.items() if number in expected}


@EVERY_FORMAT
def test_the_check_for_finite_weights_agrees_with_the_weights(format: BlockFormat) -> None:
    blocks = random_blocks(format, 4096)

    with np.errstate(all="ignore"):
        finite = np.isfinite(format.unpack(blocks)).all(axis=1)

    assert finite.tolist() == [ggml.are_finite(format, blocks[i : i + 1]) for i in range(len(blocks))]
    assert ggml.are_finite(format, blocks[finite])
    assert not ggml.are_finite(format, blocks)
