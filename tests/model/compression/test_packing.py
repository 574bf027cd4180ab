"""Codes as bits: little end first, no bit lost, and as many bytes as the formula says."""

import numpy as np
import pytest

from model.compression import packing
from model.compression.packing import (
    grid_bytes,
    pack_codes,
    pack_mask,
    packed_bytes,
    unpack_codes,
    unpack_mask,
)

BITS = range(1, 9)


def some_codes(count: int, bits: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.random.default_rng(bits).integers(0, 1 << bits, count).astype(np.uint8)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_codes_come_back(bits: int, count: int) -> None:
    codes = some_codes(count, bits)

    assert codes.tolist() == unpack_codes(pack_codes(codes, bits), count, bits).tolist()


@pytest.mark.parametrize("bits", BITS)
def test_codes_come_back_over_the_edges_of_chunks(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pack_codes(some_codes(100, bits), bits)
    monkeypatch.setattr(packing, "_CHUNK_CODES", 16)

    assert whole.tolist() == pack_codes(some_codes(100, bits), bits).tolist()
    assert some_codes(100, bits).tolist() == unpack_codes(whole, 100, bits).tolist()


@pytest.mark.parametrize("bits", BITS)
def test_codes_take_as_many_bytes_as_the_formula_says(bits: int) -> None:
    assert packed_bytes(1001, bits) == pack_codes(some_codes(1001, bits), bits).size


def test_bits_lie_little_end_first() -> None:
    codes = np.array([0b101, 0b011, 0b110], dtype=np.uint8)

    assert [0b10_011_101, 0b1] == pack_codes(codes, 3).tolist()


def test_bytes_of_another_count_are_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes for 4 codes of 4 bits, not 2"):
        unpack_codes(np.zeros(3, dtype=np.uint8), 4, 4)


def test_bits_past_the_last_code_are_refused() -> None:
    with pytest.raises(ValueError, match="bits are set past the last code"):
        unpack_codes(np.array([0b1000], dtype=np.uint8), 1, 3)


def test_masks_come_back() -> None:
    mask = some_codes(35, 1).astype(np.bool_).reshape(5, 7)

    assert mask.tolist() == unpack_mask(pack_mask(mask), (5, 7)).tolist()


def test_four_bits_in_groups_of_64_are_four_and_a_half_bits_a_weight() -> None:
    assert 4.5 * 576 * 1536 / 8 == grid_bytes(576, 1536, 4, 64)


def test_half_pruned_three_bits_are_half_of_them_and_the_mask() -> None:
    weights = 576 * 1536

    assert (0.5 * 3 + 1 + 32 / 64) * weights / 8 == grid_bytes(576, 1536, 3, 64, kept=weights // 2)
