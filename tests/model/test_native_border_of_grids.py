"""What the compiled engine refuses of codes and scales: a ValueError, or False for what its form cannot hold."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.native import _native
from tests.model.test_native_border import SHAPE, VOCABULARY, WIDTH


def grid_arrays(rows: int = 2, inputs: int = WIDTH, groups: int = 2) -> list[NDArray[Any]]:
    scales = np.ones((rows, groups), dtype=np.float32)
    return [np.zeros((rows, inputs), dtype=np.uint8), scales, scales]


WRONG_GRIDS: dict[str, tuple[int, int, list[NDArray[Any]]]] = {
    "another matrix": (7, 0, grid_arrays()),
    "no matrix": (-1, 0, grid_arrays()),
    "a row before the first": (0, -1, grid_arrays()),
    "a row past the last": (0, VOCABULARY - 1, grid_arrays()),
    "narrow rows": (0, 0, grid_arrays(inputs=32)),
    "a group more": (0, 0, grid_arrays(groups=3)),
    "scales of fewer rows": (0, 0, [*grid_arrays()[:1], *grid_arrays(rows=1)[1:]]),
}


@pytest.mark.parametrize("name", WRONG_GRIDS)
def test_codes_that_do_not_fit_their_matrix_are_refused(name: str) -> None:
    engine = _native.Engine(**SHAPE)
    engine.add_matrix(False, False, True, VOCABULARY, WIDTH)
    matrix, first_row, arrays = WRONG_GRIDS[name]

    with pytest.raises(ValueError, match=r"no such weights|do not fit|lack scales"):
        engine.pack_codes(matrix, first_row, *arrays)


def test_codes_of_more_bits_than_the_form_has_are_not_packed() -> None:
    engine = _native.Engine(**SHAPE)
    matrix = engine.add_matrix(False, False, True, VOCABULARY, WIDTH)
    codes, d, m = grid_arrays()

    assert not engine.pack_codes(matrix, 0, codes + np.uint8(16), d, m)


def test_scales_that_float16_would_change_are_not_packed() -> None:
    engine = _native.Engine(**SHAPE)
    matrix = engine.add_matrix(False, False, True, VOCABULARY, WIDTH)
    codes, d, m = grid_arrays()

    assert not engine.pack_codes(matrix, 0, codes, d * np.float32(0.1), m)


@pytest.mark.parametrize(("first_row", "rows"), [(-1, 1), (0, -1), (0, VOCABULARY + 1), (VOCABULARY, 1)])
def test_rows_that_a_matrix_does_not_have_are_not_unpacked(first_row: int, rows: int) -> None:
    engine = _native.Engine(**SHAPE)
    matrix = engine.add_matrix(False, False, True, VOCABULARY, WIDTH)

    with pytest.raises(ValueError, match="rows do not fit the matrix"):
        engine.unpack(matrix, first_row, rows)
