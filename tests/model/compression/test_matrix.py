"""A matrix on a grid: what it stands for, and what it refuses."""

from typing import Any

import numpy as np
import pytest

from model.compression.matrix import GridMatrix


def grid(**changes: Any) -> GridMatrix:
    """Two rows of four columns in groups of two; the zero of row 0 is code 2, of row 1 code 1."""
    fields: dict[str, Any] = {
        "bits": 2,
        "group": 2,
        "codes": np.array([[0, 1, 2, 3], [3, 2, 1, 0]], np.uint8),
        "scales": np.array([[0.5, 0.25], [1.0, 2.0]], np.float16),
        "offsets": np.array([[-1.0, -0.5], [-1.0, -2.0]], np.float32),
    }
    return GridMatrix(**fields | changes)


def test_a_weight_is_scale_times_code_plus_offset() -> None:
    expected = [[-1.0, -0.5, 0.0, 0.25], [2.0, 1.0, 0.0, -2.0]]

    assert expected == grid().dequantised().tolist()


def test_product_and_sum_are_each_rounded_to_float32() -> None:
    scale, offset = np.float32(0.1), np.float32(-0.7)
    matrix = grid(
        bits=3,
        group=4,
        codes=np.array([[7, 6, 5, 4]], np.uint8),
        scales=np.array([[scale]]),
        offsets=np.array([[offset]]),
    )

    expected = [float(np.float32(scale * np.float32(code)) + offset) for code in (7, 6, 5, 4)]

    assert expected == matrix.dequantised()[0].tolist()


def test_a_pruned_weight_is_exactly_zero() -> None:
    mask = np.array([[True, True, False, True], [True, True, False, True]])

    assert [0.0, 0.0] == grid(mask=mask).dequantised()[:, 2].tolist()
    assert 2 == grid(mask=mask).zeros


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bits", 0),
        ("bits", 9),
        ("group", 0),
        ("group", 3),
        ("codes", np.zeros((2, 4), np.int64)),
        ("codes", np.zeros(4, np.uint8)),
        ("codes", np.zeros((0, 4), np.uint8)),
        ("codes", np.full((2, 4), 4, np.uint8)),
        ("scales", np.ones((2, 2))),
        ("scales", np.ones((2, 4), np.float32)),
        ("scales", np.full((2, 2), np.inf, np.float32)),
        ("offsets", np.ones((2, 1), np.float32)),
        ("offsets", np.full((2, 2), np.nan, np.float32)),
        ("mask", np.ones((2, 4), np.uint8)),
        ("mask", np.ones((2, 2), np.bool_)),
        ("mask", np.zeros((2, 4), np.bool_)),
    ],
)
def test_what_is_not_a_grid_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{field} "):
        grid(**{field: value})
