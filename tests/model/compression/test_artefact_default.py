"""The default model, compressed for real: what lies on disk and in the native memory is what was simulated."""

from pathlib import Path

import numpy as np
import pytest

from model.compression.grids import GridSpec, round_to_nearest
from model.compression.packing import grid_bytes
from model.compression.scores import magnitude
from model.compression.selection import Share, kept
from model.compression.stored import Weights
from model.loading.gguf import load_gguf
from model.loading.model import load_model
from model.ops.native_ops import NativeOps
from tests.compressed import is_linear, write_artefact

pytestmark = pytest.mark.slow
CASES: dict[str, tuple[GridSpec, float]] = {
    "4 bits in groups of 64": (GridSpec(4, 64, "minimum"), 0.0),
    "symmetric 4 bits in groups of 96": (GridSpec(4, 96, "symmetric"), 0.0),
    "8 bits by the row": (GridSpec(8, "row", "uniform"), 0.0),
    "3 bits in groups of 64, half of them pruned": (GridSpec(3, 64, "affine"), 0.5),
}
LAYERS = ("layers.0.", "layers.17.")
"""Compressed; the others stay as they are."""


@pytest.mark.parametrize("case", CASES)
def test_what_is_stored_and_what_is_computed_on_is_what_was_simulated(
    tmp_path: Path, default_model_path: Path, case: str
) -> None:
    spec, sparsity = CASES[case]
    source = load_gguf(default_model_path)
    weights: dict[str, Weights] = dict(source.tensors)
    for name, tensor in source.tensors.items():
        if is_linear(name, tensor.shape) and name.startswith(LAYERS):
            dense = tensor.dequantised().astype(np.float64)
            mask = kept(magnitude(dense), Share(sparsity)) if sparsity else None
            weights[name] = round_to_nearest(dense, spec, mask)

    loaded = load_model(write_artefact(tmp_path / "x", source, weights))

    ops = NativeOps(loaded.config, 1)
    for name, each in weights.items():
        simulated, read = each.dequantised(), loaded.tensors[name]
        assert simulated.tobytes() == read.dequantised().tobytes(), name
        if is_linear(name, simulated.shape) and name.startswith(LAYERS):
            assert np.array_equal(simulated, ops.unpacked(ops.matrix(read))), name


def test_a_matrix_of_gptq_size_takes_four_and_some_bits(tmp_path: Path, default_model_path: Path) -> None:
    source = load_gguf(default_model_path)
    dense = source.tensors["layers.3.gate"].dequantised().astype(np.float64)
    weights: dict[str, Weights] = {
        **source.tensors,
        "layers.3.gate": round_to_nearest(dense, GridSpec(4, 64, "affine")),
    }

    loaded = load_model(write_artefact(tmp_path / "x", source, weights))

    assert grid_bytes(1536, 576, 4, 64, offset_bits=4) == loaded.tensors["layers.3.gate"].stored_bytes
