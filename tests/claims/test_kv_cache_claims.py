"""The KV cache: definition 7.1 to example 7.4, exercise 10.3, and the code of section 7.

Multiplications are counted in the real runner.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model.kv_cache import PAGE_SIZE
from model.ops.torch_ops import TorchOps
from model.studies.kv_cost import CostShape
from tests.claims.counted import Counted, with_cache, without_cache
from tests.memory_checkpoint import config_of
from tests.reference import forward as reference
from tests.tiny_model import TinyShape


def square_shape(width: int, *, layers: int = 1, context: int = 256) -> TinyShape:
    """As the theorem has it: as many key heads as heads, and a feed-forward four times as wide."""
    return TinyShape(
        layers=layers,
        width=width,
        heads=4,
        kv_heads=4,
        head_width=width // 4,
        feed_forward=4 * width,
        vocabulary=50,
        tied=False,
        context=context,
    )


SECTION_7 = square_shape(32, layers=2)
"""V = 50, d = 32, d_ff = 128, L = 2."""
OURS = TinyShape(layers=1, width=576, heads=9, kv_heads=3, head_width=64, feed_forward=1536, vocabulary=50)
"""One layer of the default model's sizes."""


def ids_of(count: int) -> list[int]:
    return [(11 * i * i + 5 * i) % 50 for i in range(count)]


def test_d7_1_a_step_computes_one_row_and_appends_its_keys_and_values() -> None:
    """D7.1: every layer runs row t alone, and no earlier position is touched."""
    counted = Counted(SECTION_7, 20)
    counted.feed(ids_of(12))
    before = counted.cached.clone()
    counted.ops.counts.clear()

    counted.feed([9], start=12)

    assert 2 * 32 * 32 == counted.ops.counts["query"]
    assert torch.equal(before[:, :12], counted.cached[:, :12])
    is_written = counted.cached.isnan().logical_not()
    assert [[True] * 13 + [False] * 19] * 2 == is_written.all(dim=2).tolist() == is_written.any(dim=2).tolist()


@pytest.mark.parametrize("i", [1, 17, 39])
def test_t7_2_1_later_tokens_change_no_bit_of_what_came_before(i: int) -> None:
    """T7.2.1: at one shape, h, k and v of every layer before position i are the same bits whatever follows."""
    runs = [Counted(SECTION_7, 40) for _ in range(2)]

    runs[0].feed(ids_of(40))
    runs[1].feed([*ids_of(i), *[3] * (40 - i)])

    for first, second in zip(runs[0].ops.hidden, runs[1].ops.hidden, strict=True):
        assert torch.equal(first[:i], second[:i])
        assert not torch.equal(first[i], second[i])
    assert torch.equal(runs[0].cached[:, :i], runs[1].cached[:, :i])


@pytest.mark.parametrize("i", [1, 17, 39])
def test_t7_2_1_the_total_length_changes_nothing_that_came_before(i: int) -> None:
    """T7.2.1: h, k and v of the first i positions are those of a sequence of i tokens."""
    whole, prefix = Counted(SECTION_7, 40), Counted(SECTION_7, 40)

    whole.feed(ids_of(40))
    prefix.feed(ids_of(i))

    for first, second in zip(whole.ops.hidden, prefix.ops.hidden, strict=True):
        torch.testing.assert_close(second, first[:i], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(prefix.cached[:, :i], whole.cached[:, :i], rtol=1e-12, atol=1e-12)


def test_t7_2_2_cached_rows_are_those_of_a_full_computation() -> None:
    """T7.2.2: h of every layer, and the logits, of each position."""
    cached, full = Counted(SECTION_7, 40), Counted(SECTION_7, 40)

    logits = with_cache(cached, ids_of(40))
    full.feed(ids_of(40))

    sums = len(full.ops.hidden)
    for index, whole in enumerate(full.ops.hidden):
        torch.testing.assert_close(torch.cat(cached.ops.hidden[index::sums]), whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(logits, reference.forward(full.checkpoint, ids_of(40)), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("i", [0, 5, 31, 32])
def test_t7_2_2_an_edited_token_invalidates_its_position_and_all_after_it(i: int) -> None:
    """T7.2.2: in the last layer no key or value from i on is still true, and every one before i is."""
    original, edited = Counted(SECTION_7, 40), Counted(SECTION_7, 40)
    original.feed(ids_of(40))

    edited.feed([*ids_of(i), 49, *ids_of(40)[i + 1 :]])

    is_same = (original.cached[-1, :40] == edited.cached[-1, :40]).all(dim=1)
    assert [True] * i + [False] * (40 - i) == is_same.tolist()


@pytest.mark.parametrize("i", [0, 5, 31, 32])
def test_t7_2_2_the_positions_before_an_edit_stay_valid(i: int) -> None:
    """T7.2.2: computing from the edit on gives the logits of the edited sequence."""
    counted = Counted(SECTION_7, 40)
    counted.feed(ids_of(40))
    edited = [*ids_of(i), 49, *ids_of(40)[i + 1 :]]

    logits = counted.feed(edited[i:], start=i)

    expected = reference.forward(counted.checkpoint, edited)[-1]
    torch.testing.assert_close(logits, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("d_ff", [20, 64])
@pytest.mark.parametrize("n", [1, 2, 33])
def test_t7_3_1_multiplications_with_a_cache(n: int, d_ff: int) -> None:
    """T7.3.1: d·n(n+1) + n(4d² + 2d·d_ff) for a layer, for any width of the feed-forward."""
    counted = Counted(replace(square_shape(16), feed_forward=d_ff), n)

    with_cache(counted, ids_of(n))

    assert CostShape.plain(16, feed_forward=d_ff).cached(n) == counted.chapter_count


@pytest.mark.parametrize("t", [1, 31, 32, 33, 64])
def test_t7_3_1_multiplications_of_one_position(t: int) -> None:
    """T7.3.1: 2td + 4d² + 2d·d_ff for position t of a layer."""
    counted = Counted(square_shape(16), 64)

    counted.feed([1], start=t - 1)

    assert 2 * t * 16 + 4 * 16**2 + 2 * 16 * 64 == CostShape.plain(16).position(t) == counted.chapter_count


@pytest.mark.parametrize("d_ff", [20, 64])
@pytest.mark.parametrize("n", [1, 2, 33])
def test_t7_3_2_multiplications_without_a_cache(n: int, d_ff: int) -> None:
    """T7.3.2: d·n(n+1)(2n+1)/3 + n(n+1)/2·(4d² + 2d·d_ff) for a layer."""
    counted = Counted(replace(square_shape(16), feed_forward=d_ff), n)

    without_cache(counted, ids_of(n))

    assert CostShape.plain(16, feed_forward=d_ff).full(n) == counted.chapter_count


@pytest.mark.parametrize("n", [1, 10, 40])
def test_t7_3_3_a_feed_forward_four_times_as_wide(n: int) -> None:
    """T7.3.3: d·n(n+1) + 12nd² with a cache, ⅓d·n(n+1)(2n+1) + 6d²n(n+1) without."""
    d = 16
    cached, full = Counted(square_shape(d), n), Counted(square_shape(d), n)

    with_cache(cached, ids_of(n))
    without_cache(full, ids_of(n))

    assert d * n * (n + 1) + 12 * n * d**2 == cached.chapter_count
    assert d * n * (n + 1) * (2 * n + 1) // 3 + 6 * d**2 * n * (n + 1) == full.chapter_count


@pytest.mark.parametrize("n", [1, 32, 40])
def test_t7_3_4_numbers_in_the_cache(n: int) -> None:
    """T7.3.4: 2·L·n·d numbers are written, and no other."""
    counted = Counted(SECTION_7, n)

    counted.feed(ids_of(n))

    assert 2 * 2 * n * 32 == int(counted.cached.isfinite().sum())


def test_t7_3_4_grouped_heads_keep_a_third() -> None:
    """T7.3.4 for the default model's sizes: 2·L·3·64 numbers a position, not 2·L·d."""
    config = config_of(replace(OURS, layers=30))
    counted = Counted(OURS, 1)

    counted.feed([7])

    assert 11_520 == config.cached_numbers_per_position == 30 * int(counted.cached.isfinite().sum())
    assert 46_080 == 4 * config.cached_numbers_per_position
    assert 34_560 == 2 * 30 * 576 == 3 * config.cached_numbers_per_position


def test_t7_3_linear_maps_of_the_default_models_sizes() -> None:
    """T7.3 for grouped heads and SwiGLU: 2d² + 2d·192 + 3d·d_ff for a position of a layer."""
    counted = Counted(OURS, 1)

    counted.feed([7])

    counts = counted.ops.counts
    linear = counts.total() - counts["attention"] - counts["embedding"]
    assert 3_538_944 == 2 * 576**2 + 2 * 576 * 192 + 3 * 576 * 1536 == CostShape.of(config_of(OURS)).linear == linear
    assert 106_168_320 == 30 * linear


@pytest.mark.parametrize("n", [1, 2, 33])
def test_t7_3_grouped_heads_and_a_gate_are_counted_too(n: int) -> None:
    """T7.3 for any model: what the runner computes, but for embedding and head."""
    shape = replace(OURS, layers=2, width=24, heads=3, kv_heads=1, head_width=8, feed_forward=40)
    cached, full = Counted(shape, n), Counted(shape, n)

    with_cache(cached, ids_of(n))
    without_cache(full, ids_of(n))

    expected = CostShape.of(config_of(shape))
    counts = [run.ops.counts.total() - run.ops.counts["head"] - run.ops.counts["embedding"] for run in (cached, full)]
    assert [expected.cached(n), expected.full(n)] == counts


def test_e7_4_a_thousand_positions_of_width_a_thousand() -> None:
    """E7.4: 1.3001·10¹⁰ against 6.6737·10¹², 513.3 times as many."""
    cached, full = CostShape.plain(1000).cached(1000), CostShape.plain(1000).full(1000)

    assert 13_001_000_000 == cached
    assert "6.6737e+12" == f"{full:.4e}"
    assert "513.3" == f"{full / cached:.1f}"


def test_e7_4_attention_overtakes_the_linear_maps_past_twelve_times_the_width() -> None:
    """E7.4: both are equal after 12d − 1 positions, where d·n(n+1) = 12nd²."""
    d = 16
    counted = Counted(square_shape(d), 12 * d)
    with_cache(counted, ids_of(12 * d - 1))

    def sides() -> tuple[int, int]:
        attention = counted.ops.counts["attention"]
        return attention, counted.chapter_count - attention

    attention, linear = sides()
    counted.feed([1], start=12 * d - 1)
    attention_after, linear_after = sides()

    assert linear == attention
    assert linear_after < attention_after


def greedy(counted: Counted, n: int, following: Callable[[list[int]], Tensor]) -> tuple[list[int], Tensor]:
    """Token 7 and what n greedy steps add, with the logits [n, vocabulary] that chose them."""
    ids, logits = [7], []
    for _ in range(n):
        logits.append(following(ids))
        ids.append(int(logits[-1].argmax()))
    return ids, torch.stack(logits)


C7 = {
    8: (201_216, 910_848, "4.53"),
    16: (410_624, 3_533_824, "8.61"),
    32: (854_016, 14_440_448, "16.91"),
    64: (1_839_104, 62_566_400, "34.02"),
}
"""For each n: multiplications with and without a cache, and their ratio, as printed in section 7."""


@pytest.mark.parametrize("n", C7)
def test_c7_greedy_decoding_with_and_without_a_cache(n: int) -> None:
    """C7: the same tokens and logits, and the printed multiplications; the gate and the head come on top."""
    cached, full = Counted(SECTION_7, n), Counted(SECTION_7, n)

    ids, logits = greedy(cached, n, lambda ids: cached.feed(ids[-1:], start=len(ids) - 1))
    full_ids, full_logits = greedy(full, n, full.feed)

    assert full_ids == ids
    torch.testing.assert_close(logits, full_logits, rtol=1e-12, atol=1e-12)
    counts = cached.chapter_count, full.chapter_count
    assert C7[n] == (*counts, f"{counts[1] / counts[0]:.2f}")
    shape = CostShape.plain(32, layers=2)
    assert (shape.cached(n), shape.full(n)) == counts
    rows = n, n * (n + 1) // 2
    assert [2 * count * 32 * 128 for count in rows] == [run.ops.counts["gate"] for run in (cached, full)]
    assert [n * 32 * 50] * 2 == [run.ops.counts["head"] for run in (cached, full)]


def test_c7_numbers_in_the_cache() -> None:
    """C7: 8192 = 2·L·n·d after 64 positions."""
    counted = Counted(SECTION_7, 64)

    greedy(counted, 64, lambda ids: counted.feed(ids[-1:], start=len(ids) - 1))

    assert 8192 == 2 * 2 * 64 * 32 == int(counted.cached.isfinite().sum())


def test_x10_3_memory_of_1024_positions() -> None:
    """X10.3 (1): L = 12, d = 768: 18,874,368 numbers, 75,497,472 bytes in float32."""
    config = config_of(TinyShape(layers=12, width=768, heads=12, kv_heads=12, head_width=64, context=1024))
    pages = TorchOps(config, 1024 // PAGE_SIZE).pages

    assert 18_874_368 == 1024 * config.cached_numbers_per_position == pages.numel()
    assert 75_497_472 == pages.numel() * pages.element_size()


def test_x10_3_multiplications_of_position_1024() -> None:
    """X10.3 (2): 8,650,752 in a layer, of which attention's are 18 %."""
    counted = Counted(square_shape(768, context=1024), 1024)

    counted.feed([7], start=1023)

    assert 8_650_752 == counted.chapter_count
    assert 1_572_864 == counted.ops.counts["attention"]
    assert "18%" == f"{1_572_864 / 8_650_752:.0%}"
