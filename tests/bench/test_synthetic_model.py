"""Random models of any size are files that load, in the format asked for."""

from math import prod
from pathlib import Path

import numpy as np
import pytest

from model.loading.gguf import load_gguf
from tests.bench.bare_engine import BareEngine
from tests.bench.synthetic_model import BILLION, parameters, plan_of, write
from tests.tiny_model import FORMAT_NAMES, FormatName, TinyShape

SMALL = TinyShape(layers=2, width=64, heads=4, kv_heads=2, head_width=16, feed_forward=96, vocabulary=2100)


def test_the_default_shape_has_about_a_billion_weights() -> None:
    assert 1.0e9 < parameters(plan_of(BILLION, "Q4_1")) < 1.1e9


@pytest.mark.parametrize("format", FORMAT_NAMES)
def test_the_file_loads_in_its_format(tmp_path: Path, format: FormatName) -> None:
    write(tmp_path / "model.gguf", shape=SMALL, format=format)

    tensors = load_gguf(tmp_path / "model.gguf").tensors.values()

    assert {format} == {tensor.format.name for tensor in tensors if len(tensor.shape) == 2}
    assert parameters(plan_of(SMALL, format)) == sum(prod(tensor.shape) for tensor in tensors)


def test_an_untied_model_has_a_head(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", shape=TinyShape(tied=False), format="Q8_0")

    assert "head" in load_gguf(tmp_path / "model.gguf").tensors


def test_weights_are_normal_and_shrink_with_the_inputs(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", shape=SMALL, format="F32")

    embedding = load_gguf(tmp_path / "model.gguf").tensors["embedding"].dequantised()

    assert 1 / 8 == pytest.approx(float(embedding.std()), rel=0.02)
    assert 0.68 == pytest.approx(float((np.abs(embedding) < 1 / 8).mean()), abs=0.01)


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, shape=SMALL, format="Q4_1", seed=3)

    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_native_op_set_runs_it(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", shape=SMALL, format="Q4_1")
    engine = BareEngine(load_gguf(tmp_path / "model.gguf"), sequences=1, room=40, threads=1)

    assert engine.prefill(33) > 0 < engine.decode(33)
