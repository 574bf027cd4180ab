"""One matrix by every recipe: what is stored, and what is said of it."""

import numpy as np
import pytest

from model.compression.compress_matrix import CompressedMatrix, compress_matrix
from model.compression.hessian import Matrix, conditioned, quadratic_form
from model.compression.matrix import GridMatrix
from model.compression.recipe import RECIPES, parse
from model.compression.sparse import SparseMatrix
from tests.model.compression.layers import layer

SMALL = layer(7, rows=12, columns=64)
OF_A_MATRIX = [name for name in RECIPES if not parse(name).shrink]


def compressed(name: str, hessian: Matrix | None = SMALL.hessian) -> CompressedMatrix:
    return compress_matrix(SMALL.weights, hessian, parse(name))


def loss(name: str) -> float:
    damped = conditioned(SMALL.hessian).matrix
    return quadratic_form(compressed(name).weights.dequantised() - SMALL.weights, damped)


@pytest.mark.parametrize("name", OF_A_MATRIX)
def test_errors_are_those_of_what_is_stored(name: str) -> None:
    result = compressed(name)
    stored = result.weights.dequantised().astype(np.float64)

    error = np.linalg.norm(stored - SMALL.weights) / np.linalg.norm(SMALL.weights)
    outputs = np.linalg.norm((stored - SMALL.weights) @ SMALL.inputs.T) / np.linalg.norm(SMALL.weights @ SMALL.inputs.T)

    assert error == pytest.approx(result.figures.relative_error, rel=1e-9)
    assert outputs == pytest.approx(result.figures.relative_output_error, rel=1e-6)
    assert int((stored == 0).sum()) == result.figures.zeros


@pytest.mark.parametrize("name", [name for name in OF_A_MATRIX if parse(name).prune])
def test_half_of_the_weights_are_zero(name: str) -> None:
    result = compressed(name)

    assert result.weights.mask is not None
    assert 384 == int((~result.weights.mask).sum())
    assert not result.weights.dequantised()[~result.weights.mask].any()


@pytest.mark.parametrize("name", [name for name in OF_A_MATRIX if not parse(name).needs_text])
def test_without_text_nothing_is_said_of_outputs(name: str) -> None:
    result = compressed(name, None)

    assert result.figures.relative_output_error is None
    assert result.weights.dequantised().tobytes() == compressed(name).weights.dequantised().tobytes()


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("gptq-3bit-g64", "rtn-3bit-g64"),
        ("sparsegpt-50", "wanda-50"),
        ("sparsegpt-50", "magnitude-50"),
        ("obc-50", "sparsegpt-50"),
        ("magnitude-50+refit", "magnitude-50"),
        ("rtn-3bit-g64+refit", "rtn-3bit-g64"),
        ("sparsegpt-50+gptq-4bit-g64", "sparsegpt-50+rtn-4bit-g64"),
        ("wanda-50+gptq-4bit-g64", "wanda-50+rtn-4bit-g64"),
    ],
)
def test_making_up_for_errors_loses_less(better: str, worse: str) -> None:
    assert loss(better) < loss(worse)


@pytest.mark.parametrize("name", ["wanda-50", "magnitude-50", "obd-2of4"])
def test_a_grid_in_the_same_sweep_keeps_the_mask(name: str) -> None:
    alone, together = compressed(name).weights, compressed(f"{name}+gptq-4bit-g64").weights

    assert isinstance(alone, SparseMatrix)
    assert isinstance(together, GridMatrix)
    assert together.mask is not None
    assert alone.mask.tobytes() == together.mask.tobytes()


@pytest.mark.parametrize("name", ["gptq-4bit-g64", "sparsegpt-50", "saliency-50", "obc-50", "magnitude-50+refit"])
def test_a_hessian_that_cannot_be_inverted_is_told(name: str) -> None:
    broken = SMALL.hessian.copy()
    broken[0, 0] = np.inf

    with np.errstate(invalid="ignore"):
        figures = compressed(name, broken).figures

    assert (True, None) == (figures.fell_back, figures.dampening)


def test_weights_that_float16_does_not_reach_are_kept_in_float32() -> None:
    result = compress_matrix(SMALL.weights * 1e7, None, parse("magnitude-50"))

    assert np.float32 == result.weights.dequantised().dtype
    assert isinstance(result.weights, SparseMatrix)
    assert np.float32 == result.weights.values.dtype
