"""The default model's own weights: they lie on a grid already, and tie where a pattern must choose."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from model.compression.grids import GridSpec, round_to_nearest
from model.compression.selection import Pattern, kept
from model.loading.gguf import load_gguf

pytestmark = pytest.mark.slow

TENSORS = ["layers.0.query", "layers.14.gate", "layers.29.down"]


@cache
def weights(path: Path, name: str) -> NDArray[np.float32]:
    return load_gguf(path).tensors[name].dequantised()


@pytest.mark.parametrize("name", TENSORS)
def test_its_weights_lie_on_a_4_bit_grid_with_a_minimum(default_model_path: Path, name: str) -> None:
    """So quantising them like that again moves none: a fact about the file, and no merit of the method."""
    exact = weights(default_model_path, name)

    again = round_to_nearest(exact.astype(np.float64), GridSpec(4, 32, "minimum"))

    assert (exact == again.dequantised()).all()


@pytest.mark.parametrize("name", TENSORS)
def test_a_coarser_grid_moves_them(default_model_path: Path, name: str) -> None:
    exact = weights(default_model_path, name)
    found = round_to_nearest(exact.astype(np.float64), GridSpec(4, 64)).dequantised()

    assert 0.05 < np.linalg.norm(found - exact) / np.linalg.norm(exact) < 0.15


@pytest.mark.parametrize("name", TENSORS)
def test_many_fours_tie_where_two_go_and_the_count_is_exact(default_model_path: Path, name: str) -> None:
    scores = np.abs(weights(default_model_path, name).astype(np.float64))
    ordered = np.sort(scores.reshape(-1, 4), axis=1)
    ties = float((ordered[:, 1] == ordered[:, 2]).mean())

    assert 0.1 < ties < 0.25
    assert {2} == set((~kept(scores, Pattern(2, 4))).reshape(-1, 4).sum(axis=1).tolist())
