"""The script that compares compressed models pairs them token by token, goes on where it stopped, and hides nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from model.compression.artefact_writer import ArtefactWriter
from model.compression.grids import GridSpec, round_to_nearest
from model.compression.stored import Weights
from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf
from model.loading.tensor import StoredTensor
from tests.bench import compression
from tests.bench.compression import asked, main, pair
from tests.bench.compression_report import frontier, layer_means, table
from tests.bench.compression_scratch import Scratch
from tests.bench.record import recorded, table_of
from tests.compressed import is_linear
from tests.source_files import ROOT
from tests.tiny_model import TinyShape, write_tiny_gguf

SENTENCE = "The seed lies in the ground and waits for the rain. "
CALIBRATION = {"corpus": "other texts", "corpus_sha256": "ab" * 32, "tokens": 64, "seed": 5}


@pytest.fixture(autouse=True)
def _threads_of_torch() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def compress(folder: Path, source: Checkpoint, name: str, spec: GridSpec) -> None:
    writer = ArtefactWriter(folder / name, {"name": name, "calibration": CALIBRATION}, source)
    for tensor_name, tensor in source.tensors.items():
        writer.put(tensor_name, _weights(tensor_name, tensor, spec))
    writer.finish(source.config, name, {"most_dampening": 0.01, "fallbacks": 2})


def _weights(name: str, tensor: StoredTensor, spec: GridSpec) -> Weights:
    if not is_linear(name, tensor.shape):
        return tensor
    return round_to_nearest(tensor.dequantised().astype(np.float64), spec)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the source, a text and, in `compressed`, three models, one of which no kernel runs."""
    root = tmp_path_factory.mktemp("compression")
    source = load_gguf(write_tiny_gguf(root / "model.gguf", shape=TinyShape(context=128), format="Q8_0"))
    for name in ("first", "second"):
        (root / "texts").mkdir(exist_ok=True)
        (root / "texts" / f"{name}.txt").write_text(f"{name} {SENTENCE * 12}")
    compress(root / "compressed", source, "rtn-4bit-g64", GridSpec(3, 32))
    compress(root / "compressed", source, "gptq-4bit-g64", GridSpec(5, 32))
    compress(root / "compressed", source, "rtn-8bit-g16", GridSpec(8, 16))
    return root


def run(folder: Path, scratch: Path, *options: str) -> Result:
    arguments = ["--folder", str(folder / "compressed"), "--model", str(folder / "model.gguf"), "--threads", "1"]
    arguments += ["--corpus", str(folder / "texts"), "--tokens", "120", "--window", "32", "--scratch", str(scratch)]
    return CliRunner().invoke(main, [*arguments, *options], catch_exceptions=False)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def figures(folder: Path, scratch: Path) -> dict[str, Any]:
    result = run(folder, scratch, "--json", "--check", "gptq-4bit-g64", "--together", "2")
    assert 0 == result.exit_code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_every_model_that_runs_has_a_row(figures: dict[str, Any]) -> None:
    assert ["gptq-4bit-g64", "rtn-4bit-g64"] == [row["recipe"] for row in figures["rows"]]


def test_a_model_that_no_kernel_runs_is_named_with_the_reason(figures: dict[str, Any]) -> None:
    (refused,) = figures["refused"]

    assert "rtn-8bit-g16" == refused["recipe"]
    assert refused["reason"] in table(figures)


def test_a_row_has_what_the_documentation_promises(figures: dict[str, Any]) -> None:
    row = figures["rows"][0]

    assert {"bits": 4, "group": 64, "sparsity": None, "damping": 0.01, "fallbacks": 2}.items() <= row.items()
    assert CALIBRATION == row["calibration"]
    assert {
        *("bits_per_weight", "bytes", "zeros", "perplexity", "relative_perplexity_percent", "standard_error_percent"),
        *("mean_divergence", "same_top_percent", "tokens_per_second", "speed_ratio", "acceptance"),
    } <= row.keys()


def test_the_finer_grid_is_closer_to_the_model_as_published(figures: dict[str, Any]) -> None:
    finer, coarser = figures["rows"]

    assert finer["mean_divergence"] < coarser["mean_divergence"]
    assert finer["acceptance"] > coarser["acceptance"]
    assert max(finer["errors"]) < min(coarser["errors"])


def test_known_pairs_are_compared(figures: dict[str, Any]) -> None:
    assert [("gptq-4bit-g64", "rtn-4bit-g64")] == [(each["recipe"], each["than"]) for each in figures["pairs"]]


def test_the_native_engine_is_closer_to_its_simulation_than_to_float32(figures: dict[str, Any]) -> None:
    (found,) = figures["checks"]

    assert "gptq-4bit-g64" == found["recipe"]
    assert abs(found["simulated"]["native_relative_percent"]) < abs(found["float32"]["native_relative_percent"]) + 0.1
    assert found["simulated"]["standard_error_percent"] < found["float32"]["standard_error_percent"]


def test_what_was_found_is_not_measured_again(
    folder: Path, scratch: Path, figures: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: object, **options: object) -> None:
        raise AssertionError("scored again")

    monkeypatch.setattr(compression, "score_windows", never)
    again = json.loads(run(folder, scratch, "--json", "--check", "gptq-4bit-g64").stdout)

    assert (figures["rows"], figures["pairs"], figures["checks"]) == (again["rows"], again["pairs"], again["checks"])


def test_the_table_has_a_row_for_each_model_and_each_comparison(figures: dict[str, Any]) -> None:
    text = table(figures)

    assert (2 + 3) + (2 + 1) + (2 + 1) == sum(line.startswith("|") for line in text.splitlines())
    assert "Calibrated on 64 tokens of other texts (seed 5, hash abababababab)." in text


def test_sizes_and_errors_are_drawn(folder: Path, scratch: Path, figures: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    run(folder, scratch, "--plots", str(tmp_path))

    for name in ("sizes", "errors"):
        assert "gptq-4bit-g64" in (tmp_path / f"compression-{name}.svg").read_text()


def test_nothing_to_compare_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--folder", str(tmp_path)])

    assert (1, "Error: name compressed models with --folder or --artefact\n") == (result.exit_code, result.stderr)


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("gptq-3bit-g64-clip", (3, 64, None)),
        ("uniform-8bit-row", (8, "row", None)),
        ("sparsegpt-50+gptq-4bit-g64", (4, 64, "50")),
        ("wanda-2of4", (None, None, "2of4")),
        ("ffn-50", (None, None, None)),
    ],
)
def test_a_name_says_what_was_asked_for(recipe: str, expected: tuple[object, ...]) -> None:
    assert expected == tuple(asked(recipe).values())


def test_a_pair_is_judged_by_its_paired_differences() -> None:
    nlls = {"a": np.array([1.0, 2.0, 4.0, 3.0]), "b": np.array([1.5, 2.0, 4.5, 3.0])}

    found = pair(nlls, "a", "b", windows=2)

    error = np.std([-0.5, 0, -0.5, 0], ddof=1) / 2
    assert 100 * (np.exp(-0.25) - 1) == pytest.approx(found["relative_perplexity_percent"])
    assert -0.25 / error == pytest.approx(found["standard_errors"])


def test_the_frontier_is_what_nothing_smaller_beats() -> None:
    points = [(4.0, 20.0, "a"), (3.0, 25.0, "b"), (3.5, 26.0, "c"), (5.0, 20.0, "d")]

    assert ["b", "a"] == [name for _, _, name in frontier(points)]


def test_errors_of_a_layer_are_averaged() -> None:
    assert [0.2, 0.5] == pytest.approx(
        layer_means({"layers.1.up": 0.5, "layers.0.up": 0.1, "layers.0.down": 0.3}) or []
    )
    assert layer_means({}) is None


def test_what_was_not_found_yet_is_missing(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "scratch")

    assert (None, None, None) == (scratch.figures("ab" * 32), scratch.scores("ab" * 32), scratch.nll("ab" * 32, "x"))


def test_the_page_says_what_the_figures_say() -> None:
    docs = ROOT / "docs"
    said = table_of((docs / "compression.md").read_text(encoding="utf-8"), "compression")

    assert said == (table(recorded("compression", folder=docs)) if (docs / "compression.json").exists() else "")
