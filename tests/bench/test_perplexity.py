"""The perplexity script scores what the served model predicts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from model.batch import Batch, Segment
from model.evaluation.predictors import native_predictor, torch_predictor
from model.kv_cache import pages_for
from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf
from model.ops.native_ops import NativeOps
from model.ops.torch_ops import TorchOps
from model.runner import ModelRunner
from tests.bench.perplexity import main, table
from tests.tiny_model import TinyShape, write_tiny_gguf

IDS = tuple(range(3, 43))


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=512), format="Q4_1")


@pytest.fixture(scope="module")
def checkpoint(model_path: Path) -> Checkpoint:
    return load_gguf(model_path)


@pytest.fixture(scope="module")
def figures(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("texts")
    for year in (2010, 2024):
        (folder / f"{year}-A-1.txt").write_text("The seed lies in the ground and waits for the rain. " * 20)
    options = ["--model", str(model_path), "--corpus", str(folder), "--tokens", "120", "--window", "32", "--json"]
    found: dict[str, Any] = json.loads(CliRunner().invoke(main, options, catch_exceptions=False).stdout)
    return found


def last_logits(runner: ModelRunner, ids: tuple[int, ...]) -> Any:
    return runner.forward(Batch((Segment(ids, 0, tuple(range(pages_for(len(ids)))), asks=1),))).numpy()[0]


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 40])
def test_every_native_row_has_the_bits_of_its_prefix_alone(checkpoint: Checkpoint, length: int) -> None:
    alone = ModelRunner(NativeOps(checkpoint.config, 2), checkpoint)

    together = native_predictor(checkpoint, len(IDS), threads=2).logits(IDS)

    assert last_logits(alone, IDS[:length]).tobytes() == together[length - 1].tobytes()


def test_every_row_of_the_reference_is_its_prefix_alone(checkpoint: Checkpoint) -> None:
    alone = ModelRunner(TorchOps(checkpoint.config, 2, dtype=torch.float64), checkpoint)
    expected = np.stack([last_logits(alone, IDS[: length + 1]) for length in range(len(IDS))])

    np.testing.assert_allclose(expected, torch_predictor(checkpoint, len(IDS)).logits(IDS), rtol=0, atol=1e-4)


def test_at_least_as_many_tokens_are_scored_as_asked_for(figures: dict[str, Any]) -> None:
    assert [4 * 31] * 3 == [row["all"]["tokens"] for row in figures["comparisons"]]


def test_the_second_half_of_each_window_is_scored_apart(figures: dict[str, Any]) -> None:
    assert 4 * 15 == figures["comparisons"][0]["second_half"]["tokens"]


def test_both_forms_of_the_cache_are_close_to_the_reference(figures: dict[str, Any]) -> None:
    divergences = {row["compared"]: row["all"]["mean_divergence"] for row in figures["comparisons"]}

    assert ["int8 cache against float32", "float16 cache against float32", "float16 cache against int8"] == list(
        divergences
    )
    assert max(divergences.values()) < 0.01


def test_the_table_has_a_row_for_each_comparison(figures: dict[str, Any]) -> None:
    assert 2 + 3 == sum(line.startswith("|") for line in table(figures).splitlines())


def test_too_little_text_is_refused(model_path: Path, tmp_path: Path) -> None:
    (tmp_path / "2010-A-1.txt").write_text("Too short.")

    result = CliRunner().invoke(main, ["--model", str(model_path), "--corpus", str(tmp_path)])

    assert (1, f"Error: {tmp_path.name} has 0 windows of 512 tokens, and 20 are asked for\n") == (
        result.exit_code,
        result.stderr,
    )
