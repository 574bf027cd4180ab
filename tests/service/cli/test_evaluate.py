"""`tane eval` tells what a model costs, beside the model it came from."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from click.testing import CliRunner, Result

from model.compression.artefact_writer import ArtefactWriter
from model.evaluation.corpus import local_corpus
from model.evaluation.saved import EVALUATION, read_evaluation
from model.loading.gguf import load_gguf
from model.loading.model import load_model
from service.cli import evaluate as command
from service.cli.evaluation_report import draw_errors
from service.cli.main import main
from tests.compressed import as_matrix, grids_for, is_linear, random_sparse, write_artefact
from tests.tiny_model import TinyShape, write_tiny_gguf

SHAPE = TinyShape(context=128)
SENTENCE = "The seed lies in the ground and waits for the rain. "


@pytest.fixture(autouse=True)
def _threads_of_torch() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the source `model.gguf`, texts in `texts`, and compressed models."""
    root = tmp_path_factory.mktemp("evaluate")
    source = load_gguf(write_tiny_gguf(root / "model.gguf", shape=SHAPE, format="Q8_0"))
    (root / "texts").mkdir()
    for name in ("first", "second"):
        (root / "texts" / f"{name}.txt").write_text(f"{name} {SENTENCE * 12}")
    write_artefact(root / "four-bits", source, grids_for(source, bits=4, group=32))
    write_artefact(root / "no-kernel", source, grids_for(source, bits=4, group=16))
    sparse = {
        name: random_sparse(as_matrix(tensor.shape), seed=seed) if is_linear(name, tensor.shape) else tensor
        for seed, (name, tensor) in enumerate(source.tensors.items())
    }
    write_artefact(root / "sparse", source, sparse)
    seen = local_corpus(root / "texts")
    documents = [document.name for document in seen.documents]
    calibration = {"corpus": seen.name, "corpus_sha256": seen.sha256, "documents": documents}
    recipe = {"name": "seen", "calibration": calibration}
    writer = ArtefactWriter(root / "calibrated", recipe, source)
    for name, weights in source.tensors.items():
        writer.put(name, weights)
    writer.finish(source.config, "calibrated")
    return root


def run(folder: Path, model: str, *options: str) -> Result:
    arguments = ["eval", str(folder / model), "--corpus", str(folder / "texts"), "--tokens", "120", "--window", "32"]
    return CliRunner().invoke(main, [*arguments, "--threads", "1", *options])


def figures_of(folder: Path, model: str, *options: str) -> dict[str, Any]:
    result = run(folder, model, "--json", *options)
    assert 0 == result.exit_code, result.stderr
    figures: dict[str, Any] = json.loads(result.stdout)
    return figures


@pytest.fixture(scope="module")
def compared(folder: Path) -> dict[str, Any]:
    return figures_of(folder, "four-bits", "--against", str(folder / "model.gguf"))


@pytest.fixture(scope="module")
def itself(folder: Path) -> dict[str, Any]:
    return figures_of(folder, "model.gguf", "--against", str(folder / "model.gguf"))


def test_a_model_beside_itself_costs_nothing_and_guesses_all(itself: dict[str, Any]) -> None:
    names = ("relative_perplexity_percent", "mean_divergence", "same_top_percent", "acceptance")
    assert [0, 0, 100, 1] == [itself[name] for name in names]
    assert {0.0} == set(itself["layer_errors"].values())


def test_at_least_as_many_tokens_are_scored_as_asked_for(compared: dict[str, Any]) -> None:
    assert (124, 4, 60) == (compared["tokens"], compared["windows"], compared["second_half"]["tokens"])


def test_the_figures_name_models_and_text(folder: Path, compared: dict[str, Any]) -> None:
    assert {
        "model": "tiny-compressed",
        "recipe": "random-codes",
        "against_sha256": load_model(folder / "model.gguf").sha256,
        "model_sha256": load_model(folder / "four-bits").sha256,
        "corpus_sha256": local_corpus(folder / "texts").sha256,
        "documents": ["first", "second"],
    }.items() <= compared.items()


def test_random_weights_are_far_from_the_source(compared: dict[str, Any]) -> None:
    assert compared["acceptance"] < 0.5
    assert min(compared["layer_errors"].values()) > 0.3
    assert compared["mean_divergence"] > 0.1


def test_size_and_speed_are_told(compared: dict[str, Any]) -> None:
    assert 5.0 == compared["bits_per_weight"]
    assert 0 < compared["zeros"] < 0.1
    assert compared["tokens_per_second"] > 0


def test_alone_a_model_has_perplexity_and_no_comparison(folder: Path, compared: dict[str, Any]) -> None:
    alone = figures_of(folder, "four-bits")

    assert compared["perplexity"] == alone["perplexity"]
    assert (None, None, {}) == (alone["against"], alone["acceptance"], alone["layer_errors"])
    assert "mean_divergence" not in alone


def test_torch_is_close_to_the_native_op_set(folder: Path, compared: dict[str, Any]) -> None:
    by_torch = figures_of(folder, "four-bits", "--engine", "torch")

    assert compared["perplexity"] == pytest.approx(by_torch["perplexity"], rel=0.05)
    assert ("torch", None) == (by_torch["engine"], by_torch["kv_type"])


def test_zeros_of_a_pruned_model_are_counted(folder: Path) -> None:
    assert 0.5 == pytest.approx(figures_of(folder, "sparse")["zeros"], abs=0.02)


def test_what_no_kernel_runs_is_refused_with_the_way_out(folder: Path) -> None:
    result = run(folder, "no-kernel")

    assert (2, "") == (result.exit_code, result.stdout)
    assert "--engine torch runs every model" in result.stderr


def test_what_no_kernel_runs_has_no_speed_on_torch(folder: Path) -> None:
    assert figures_of(folder, "no-kernel", "--engine", "torch")["tokens_per_second"] is None


def test_the_table_says_what_matters(folder: Path) -> None:
    lines = run(folder, "four-bits", "--against", str(folder / "model.gguf")).stdout.splitlines()

    values = {line[:17].strip(): line[19:] for line in lines}
    assert ("tiny-compressed", "124 tokens of 2 documents: texts", "5.000 in the linear layers") == (
        values["model"],
        values["text"],
        values["bits per weight"],
    )
    assert " ± " in values["relative"]
    assert "greedy tokens guessed" in values["as a draft"]


def test_text_of_the_calibration_is_warned_of(folder: Path) -> None:
    result = run(folder, "calibrated", "--json")

    warning = "the model was calibrated on 2 of the 2 documents of this text: first, second"
    assert f"warning: {warning}\n" == result.stderr
    assert [warning] == json.loads(result.stdout)["warnings"]


def test_a_warning_cannot_command_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "warnings_of", lambda *_: ["calibrated on a\x1b[31m"])

    assert "warning: calibrated on a␛[31m\n" == run(folder, "four-bits").stderr


def test_any_name_of_a_model_may_stand_above_its_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    draw_errors({"layers.0.query": 0.1}, "a\x1b[31m$x", tmp_path / "e.svg")

    assert "a\ufffd[31m$x" in "".join(ElementTree.parse(tmp_path / "e.svg").getroot().itertext())


def test_saved_figures_are_those_that_were_printed(folder: Path) -> None:
    figures = figures_of(folder, "sparse", "--save")

    assert figures == read_evaluation(folder / "sparse", load_model(folder / "sparse").sha256)


def test_figures_are_kept_in_folders_only(folder: Path) -> None:
    result = run(folder, "model.gguf", "--save")

    assert 2 == result.exit_code
    assert "MODEL is none" in result.stderr


def test_figures_that_cannot_be_kept_are_told(folder: Path) -> None:
    (folder / "calibrated" / EVALUATION).mkdir()

    result = run(folder, "calibrated", "--save")

    assert 1 == result.exit_code
    assert "cannot keep the figures" in result.stderr


def test_errors_are_drawn_layer_by_layer(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    run(folder, "four-bits", "--against", str(folder / "model.gguf"), "--plot", str(tmp_path / "e.svg"))

    drawn = (tmp_path / "e.svg").read_text()
    assert [True] * 3 == [word in drawn for word in ("tiny-compressed", "attention output", "gate")]


def test_errors_are_not_drawn_of_a_model_alone(folder: Path, tmp_path: Path) -> None:
    result = run(folder, "four-bits", "--plot", str(tmp_path / "e.svg"))

    assert 2 == result.exit_code
    assert "need --against" in result.stderr


@pytest.mark.parametrize(
    ("options", "exit_code", "message"),
    [
        (("--tokens", "100000"), 1, "texts has "),
        (("--window", "200"), 2, "has a context of 128, less than 200"),
        (("--window", "4"), 2, "4 is not in the range x>=5"),
    ],
)
def test_text_or_context_that_is_too_short_is_told(
    folder: Path, options: tuple[str, str], exit_code: int, message: str
) -> None:
    result = run(folder, "model.gguf", *options)

    assert exit_code == result.exit_code
    assert message in result.stderr


def test_the_least_text_has_finite_figures(folder: Path) -> None:
    options = ("--against", str(folder / "model.gguf"), "--window", "5", "--tokens", "1")

    assert math.isfinite(figures_of(folder, "four-bits", *options)["second_half"]["standard_error_percent"])


def test_what_torch_cannot_run_either_is_not_sent_to_torch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr(command, "make_predictor", fail)

    assert "Error: no\n" == run(folder, "model.gguf", "--engine", "torch").stderr


def test_models_of_different_vocabularies_are_not_compared(folder: Path, tmp_path: Path) -> None:
    other = write_tiny_gguf(tmp_path / "other.gguf", shape=TinyShape(context=128, vocabulary=SHAPE.vocabulary + 32))

    result = run(folder, "model.gguf", "--against", str(other))

    assert 2 == result.exit_code
    assert "another vocabulary" in result.stderr


def test_the_reference_is_looked_for_by_its_name(folder: Path) -> None:
    result = run(folder, "model.gguf", "--against", "gemma-3-270", "--window", "5", "--tokens", "1")

    assert 2 == result.exit_code
    assert "did you mean the model gemma-3-270m?" in result.stderr
