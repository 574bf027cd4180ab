"""The compiled uniform against NumPy's Philox, the published known answers and a version in plain integers."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.native._native import philox_uniform
from tests.reference import sampling as reference

WORDS = st.integers(min_value=0, max_value=2**64 - 1)

# Random123's known answers for philox4x64-10: zeros, ones, and the digits of π.
KNOWN_ANSWERS = [
    (
        (0, 0),
        (0, 0, 0, 0),
        (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B),
    ),
    (
        (2**64 - 1,) * 2,
        (2**64 - 1,) * 4,
        (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0),
    ),
    (
        (0x452821E638D01377, 0xBE5466CF34E90C6C),
        (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        (0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6),
    ),
]


@pytest.mark.parametrize(("key", "counter", "expected"), KNOWN_ANSWERS, ids=["zeros", "ones", "pi"])
def test_the_plain_philox_gives_the_published_blocks(
    key: tuple[int, int], counter: tuple[int, int, int, int], expected: tuple[int, int, int, int]
) -> None:
    """The reference that the compiled generator is compared with is Philox4x64-10."""
    assert expected == reference.philox4x64(key, counter)


def test_the_uniform_of_all_zeros_is_the_published_word() -> None:
    """The known answer for a zero key and counter, shifted to 53 bits."""
    assert (0x16554D9ECA36314C >> 11) * 2.0**-53 == philox_uniform(0, 0, 0)


@given(seed=WORDS, sample=WORDS, position=WORDS)
def test_the_uniform_equals_the_plain_version(seed: int, sample: int, position: int) -> None:
    """Every seed, sample index and position, to the last bit."""
    assert reference.uniform(seed, sample, position) == philox_uniform(seed, sample, position)


@given(seed=WORDS, sample=WORDS, position=WORDS)
def test_the_uniform_equals_numpys(seed: int, sample: int, position: int) -> None:
    """NumPy counts up before it draws, so its generator starts one below."""
    counter = (position - 1) % 2**256
    generator = np.random.Generator(
        np.random.Philox(
            key=np.array([seed, sample], dtype=np.uint64),
            counter=np.array([counter >> (64 * word) & 2**64 - 1 for word in range(4)], dtype=np.uint64),
        )
    )

    assert generator.random() == philox_uniform(seed, sample, position)


def test_uniforms_lie_in_the_half_open_unit_interval() -> None:
    """Never 1, which no cumulative sum would pass."""
    uniforms = [philox_uniform(3, sample, position) for sample in range(20) for position in range(50)]

    assert all(0.0 <= uniform < 1.0 for uniform in uniforms)


def test_neighbouring_seeds_samples_and_positions_share_no_uniform() -> None:
    """Streams that differ in any one number do not overlap."""
    names = [(seed, sample, position) for seed in range(8) for sample in range(8) for position in range(32)]

    assert len(names) == len({philox_uniform(*name) for name in names})


def test_samples_of_one_seed_are_independent() -> None:
    """Chi-square over pairs of neighbouring samples in a grid of 8 by 8, five deviations above its mean at most."""
    pairs = Counter(
        (int(8 * philox_uniform(seed, sample, 0)), int(8 * philox_uniform(seed, sample + 1, 0)))
        for seed in range(500)
        for sample in range(20)
    )
    expected = pairs.total() / 64

    statistic = sum((pairs[x, y] - expected) ** 2 / expected for x in range(8) for y in range(8))

    assert statistic < 63 + 5 * (2 * 63) ** 0.5


@pytest.mark.parametrize("name", [(-1, 0, 0), (2**64, 0, 0), (0, -1, 0), (0, 0, 2**64)])
def test_numbers_outside_64_bits_are_refused(name: tuple[int, int, int]) -> None:
    """Nothing is cut to 64 bits in silence."""
    with pytest.raises(TypeError):
        philox_uniform(*name)
