"""The costs of shapes are the chapter's figures; tests of the claims count the same in the real runner."""

import pytest

from model.studies.kv_cost import EXAMPLES, CostShape, study

FOUND = {(each.shape.partition(":")[0], each.n): each for each in study(EXAMPLES)}


@pytest.mark.parametrize(
    ("n", "cached", "full", "ratio"),
    [
        (8, 201_216, 910_848, "4.53"),
        (16, 410_624, 3_533_824, "8.61"),
        (32, 854_016, 14_440_448, "16.91"),
        (64, 1_839_104, 62_566_400, "34.02"),
    ],
)
def test_section_7(n: int, cached: int, full: int, ratio: str) -> None:
    found = FOUND["section 7", n]

    assert (cached, full, ratio) == (found.cached, found.full, f"{found.ratio:.2f}")


def test_section_7_caches_8192_numbers() -> None:
    assert 8192 == FOUND["section 7", 64].numbers


def test_example_7_4() -> None:
    found = FOUND["example 7.4", 1000]

    assert (13_001_000_000, "6.6737e+12", "513.3") == (found.cached, f"{found.full:.4e}", f"{found.ratio:.1f}")


def test_exercise_10_3() -> None:
    found = FOUND["exercise 10.3", 1024]

    assert (18_874_368, 75_497_472, 8_650_752) == (found.numbers, found.float32_bytes, found.last_position)
    assert "18%" == f"{found.attention_share:.0%}"


@pytest.mark.parametrize(
    "shape", [CostShape.plain(10), CostShape(2, 24, 24, 8, 40, 3), CostShape.plain(7, feed_forward=5)]
)
def test_attention_overtakes_the_linear_maps_where_it_is_said(shape: CostShape) -> None:
    def attention_minus_linear(n: int) -> int:
        return shape.cached(n) - 2 * shape.layers * n * shape.linear

    assert attention_minus_linear(shape.overtaken_at) > 0
    assert attention_minus_linear(shape.overtaken_at - 1) <= 0


def test_twelve_widths_are_where_attention_overtakes() -> None:
    assert 12_000 == CostShape.plain(1000).overtaken_at


def test_every_case_is_looked_at_at_each_of_its_lengths() -> None:
    found = [(cost.shape, cost.n) for cost in study(EXAMPLES)]

    assert [(case.name, n) for case in EXAMPLES for n in case.lengths] == found
