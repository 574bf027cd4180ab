"""Block formats equal those of the `gguf` package, bit for bit."""

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from model.loading import ggml
from model.loading.tensor import BlockFormat

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


@pytest.mark.parametrize("format", [ggml.Q4_0, ggml.Q4_1, ggml.Q8_0], ids=lambda format: format.name)
def test_extreme_scales_unpack_to_the_same_bits_as_the_gguf_package(format: BlockFormat) -> None:
    blocks = random_blocks(format, len(EXTREMES) ** 2)
    pairs = np.array([(d, m) for d in EXTREMES for m in EXTREMES], dtype="<u2").view(np.uint8)
    blocks[:, :4] = pairs.reshape(-1, 4)  # formats without m read it as codes

    with np.errstate(all="ignore"):
        assert_same_bits(expected_weights(format, blocks), format.unpack(blocks))


@EVERY_FORMAT
def test_a_format_has_the_number_and_the_sizes_that_ggml_gives_it(format: BlockFormat) -> None:
    kind = gguf.GGMLQuantizationType[format.name]

    assert ggml.FORMATS[int(kind)] is format
    assert gguf.GGML_QUANT_SIZES[kind] == (format.block_size, format.block_bytes)


def test_every_type_of_ggml_is_either_supported_or_known_by_name() -> None:
    expected = {int(kind): kind.name for kind in gguf.GGMLQuantizationType}

    named = {number: format.name for number, format in ggml.FORMATS.items()} | dict(ggml.UNSUPPORTED_NAMES)

    assert expected == {number: name for number, name in named.items() if number in expected}


@EVERY_FORMAT
def test_the_check_for_finite_weights_agrees_with_the_weights(format: BlockFormat) -> None:
    blocks = random_blocks(format, 4096)

    with np.errstate(all="ignore"):
        finite = np.isfinite(format.unpack(blocks)).all(axis=1)

    assert finite.tolist() == [ggml.are_finite(format, blocks[i : i + 1]) for i in range(len(blocks))]
    assert ggml.are_finite(format, blocks[finite])
    assert not ggml.are_finite(format, blocks)
