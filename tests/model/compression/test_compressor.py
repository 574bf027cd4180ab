"""Whole tiny models by recipe: order of the work, shapes, resuming, and what is served at the end."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from model.compression.artefact import load_artefact
from model.compression.artefact_writer import ArtefactWriter
from model.compression.calibration import INPUT_OF, HiddenStates, Input, Layer
from model.compression.compress_layer import compress_layer, shrunk
from model.compression.compressor import compress, step_count
from model.compression.hessian import Matrix
from model.compression.recipe import RecipeError, parse
from model.config import ModelConfig
from model.loading.checkpoint import Checkpoint, layer_prefix
from model.loading.ggml import F32
from model.loading.tensor import StoredTensor
from tests.compressed import tiny_source
from tests.reference.forward import forward
from tests.tiny_model import FormatName

WINDOWS = np.random.default_rng(5).integers(3, 300, (6, 24)).tolist()
OTHER_WINDOWS = np.random.default_rng(6).integers(3, 300, (6, 24)).tolist()
NAMES = (
    "rtn-4bit-g64",
    "gptq-4bit-g64",
    "sparsegpt-2of4+gptq-4bit-g32",
    "wanda-50",
    "ffn-50",
    "heads-50",
    "layers-50",
    "ffn-50+heads-50+layers-50+gptq-8bit-g32",
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return tiny_source(tmp_path_factory.mktemp("source"), format="Q4_1")


class Interrupted(Exception):
    pass


def run(source: Checkpoint, name: str, folder: Path, *, stop_after: int | None = None) -> Path:
    recipe = parse(name)
    writer = ArtefactWriter(folder, recipe.described(), source)
    steps = 0

    def on_step() -> None:
        nonlocal steps
        steps += 1
        if steps == stop_after:
            raise Interrupted

    config, report = compress(source, recipe, WINDOWS, writer, on_step)
    assert step_count(source, recipe) == steps
    return writer.finish(config, "tiny", report)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", NAMES)
def test_the_folder_loads_with_the_shape_that_was_said(source: Checkpoint, name: str, tmp_path: Path) -> None:
    loaded = load_artefact(run(source, name, tmp_path / "out"))

    assert shrunk(source.config, parse(name)) == loaded.config
    assert name == (loaded.recipe or {})["name"]
    assert np.isfinite(forward(loaded, WINDOWS[0]).numpy()).all()


@pytest.mark.parametrize("name", ["rtn-4bit-g64", "wanda-50", "layers-50", NAMES[-1]])
def test_an_interrupted_run_ends_with_the_same_bytes(source: Checkpoint, name: str, tmp_path: Path) -> None:
    whole = contents(run(source, name, tmp_path / "whole"))
    for stop_after in range(1, step_count(source, parse(name)) + 1):
        with pytest.raises(Interrupted):
            run(source, name, tmp_path / "again", stop_after=stop_after)

    assert whole == contents(run(source, name, tmp_path / "again"))


def test_finished_layers_are_not_made_again(
    source: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Interrupted):
        run(source, "wanda-50", tmp_path / "out", stop_after=1)
    looked_at: list[int] = []
    hessians = HiddenStates.hessians

    def counted(self: HiddenStates, config: ModelConfig, layer: Layer) -> dict[Input, Matrix]:
        looked_at.append(len(layer))
        return hessians(self, config, layer)

    monkeypatch.setattr(HiddenStates, "hessians", counted)
    run(source, "wanda-50", tmp_path / "out")

    assert 1 == len(looked_at)


def test_later_layers_see_what_earlier_ones_became(source: Checkpoint, tmp_path: Path) -> None:
    """The second layer, compressed behind the compressed first, loses less on what it will really read."""
    loaded = load_artefact(run(source, "wanda-50", tmp_path / "out"))
    text, dense_text = (HiddenStates(source.tensors["embedding"], WINDOWS) for _ in range(2))
    text.advance(source.config, loaded.layer(0))
    dense_text.advance(source.config, source.layer(0))
    real, dense = (each.hessians(source.config, source.layer(1)) for each in (text, dense_text))

    again = compress_layer(source.layer(1), real, parse("wanda-50"), source.config)
    other = compress_layer(source.layer(1), dense, parse("wanda-50"), source.config)
    stored = loaded.layer(1)["down"].dequantised()

    assert stored.tobytes() == again.tensors["down"].dequantised().tobytes()
    assert stored.tobytes() != other.tensors["down"].dequantised().tobytes()


def test_what_is_no_matrix_of_a_layer_keeps_its_bytes(source: Checkpoint, tmp_path: Path) -> None:
    loaded = load_artefact(run(source, "wanda-50", tmp_path / "out"))
    others = [name for name in source.tensors if name.rpartition(".")[2] not in INPUT_OF]

    assert {name: source.tensors[name].rows().tobytes() for name in others} == {
        name: loaded.tensors[name].rows().tobytes() for name in others
    }


def test_rows_that_stay_keep_their_bytes_and_down_goes_back_to_its_grid(source: Checkpoint, tmp_path: Path) -> None:
    loaded = load_artefact(run(source, "ffn-50", tmp_path / "out"))
    before, after = source.layer(0), loaded.layer(0)
    rows = {row.tobytes() for row in before["gate"].rows()}

    assert all(row.tobytes() in rows for row in after["gate"].rows())
    assert ("Q4_1", (96, 192)) == (after["gate"].format.name, after["gate"].shape)
    assert before["query"].rows().tobytes() == after["query"].rows().tobytes()
    assert after["down"].grid is not None
    assert (4, 32) == (after["down"].grid().bits, after["down"].grid().group)
    assert after["down"].stored_bytes == before["down"].stored_bytes // 2


@pytest.mark.parametrize("format", ["F32", "F16", "Q8_0"])
def test_a_narrower_model_computes_what_the_masked_one_does(format: FormatName, tmp_path: Path) -> None:
    """Neurons that were removed could as well have been cut off from the output."""
    source = tiny_source(tmp_path, format=format)
    loaded = load_artefact(run(source, "ffn-50", tmp_path / "out"))
    masked = dataclasses.replace(
        source, tensors={**source.tensors, **dict(masked_down(source, loaded, index) for index in range(2))}
    )

    np.testing.assert_allclose(forward(loaded, WINDOWS[0]), forward(masked, WINDOWS[0]), rtol=1e-9, atol=1e-9)


def masked_down(source: Checkpoint, loaded: Checkpoint, index: int) -> tuple[str, StoredTensor]:
    """The layer's `down` as wide as it was, with zeros in the columns of neurons that are gone."""
    rows = {row.tobytes(): place for place, row in enumerate(source.layer(index)["gate"].rows())}
    kept = [rows[row.tobytes()] for row in loaded.layer(index)["gate"].rows()]
    assert source.layer(index)["up"].rows()[kept].tobytes() == loaded.layer(index)["up"].rows().tobytes()
    down = np.zeros(source.layer(index)["down"].shape, np.float32)
    down[:, kept] = loaded.layer(index)["down"].dequantised()
    name = f"{layer_prefix(index)}down"
    return name, StoredTensor(name, down.shape, F32, lambda: down.view(np.uint8))


def test_layers_that_turn_their_input_least_go(source: Checkpoint, tmp_path: Path) -> None:
    text = HiddenStates(source.tensors["embedding"], WINDOWS)
    influences = [text.advance(source.config, source.layer(index)) for index in range(2)]
    stays = int(np.argmax(influences))
    loaded = load_artefact(run(source, "layers-50", tmp_path / "out"))

    assert source.layer(stays)["down"].rows().tobytes() == loaded.layer(0)["down"].rows().tobytes()
    assert stays == (loaded.recipe or {})["report"]["layers"][0]["layer"]


def test_a_compressed_model_can_be_compressed_again(source: Checkpoint, tmp_path: Path) -> None:
    first = load_artefact(run(source, "wanda-50", tmp_path / "first"))
    loaded = load_artefact(run(first, "ffn-50+rtn-4bit-g32", tmp_path / "second"))

    assert 96 == loaded.config.feed_forward_width


def pruned_places(folder: Path) -> NDArray[np.bool_]:
    loaded = load_artefact(folder)
    return np.concatenate(
        [loaded.layer(index)[name].dequantised().reshape(-1) == 0 for index in range(2) for name in INPUT_OF]
    )


def test_other_text_prunes_mostly_the_same_places(
    source: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Jaccard index of what two texts prune, where half is pruned: a third by chance, one for the same text."""
    first = pruned_places(run(source, "wanda-50", tmp_path / "first"))
    again = pruned_places(run(source, "wanda-50", tmp_path / "again"))
    monkeypatch.setattr("tests.model.compression.test_compressor.WINDOWS", OTHER_WINDOWS)
    other = pruned_places(run(source, "wanda-50", tmp_path / "other"))

    assert np.array_equal(first, again)
    assert 0.6 < (first & other).sum() / (first | other).sum() < 1


def test_bits_per_weight_are_the_bytes_on_disk(source: Checkpoint, tmp_path: Path) -> None:
    """4 bits, and for each group of 64 a scale of 16 bits and a code of zero of 4."""
    loaded = load_artefact(run(source, "rtn-4bit-g64", tmp_path / "out"))
    report = (loaded.recipe or {})["report"]
    matrices = [loaded.tensors[layer_prefix(index) + name] for index in range(2) for name in INPUT_OF]

    assert 4 + 20 / 64 == report["bits_per_weight"]
    assert sum(each.stored_bytes for each in matrices) == report["bytes"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("rtn-4bit-g128", "group is 128, which does not divide 192 columns"),
        ("ffn-50+rtn-4bit-g64", "group is 64, which does not divide 96 columns"),
        ("wanda-1of5", "no whole number of 5 neighbours"),
        ("layers-10", "removes 0 of 2 layers"),
        ("heads-99", "removes 2 of 2 key heads"),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused_before_anything_is_written(
    source: Checkpoint, name: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=reason):
        run(source, name, tmp_path / "out")


def test_text_is_asked_for_where_it_is_needed(source: Checkpoint, tmp_path: Path) -> None:
    recipe = parse("wanda-50")
    writer = ArtefactWriter(tmp_path / "out", recipe.described(), source)

    with pytest.raises(RecipeError, match="needs text"):
        compress(source, recipe, [], writer, lambda: None)


def test_the_work_of_another_recipe_is_not_taken_over(source: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run(source, "rtn-4bit-g64", tmp_path / "out", stop_after=1)

    with pytest.raises(Exception, match="unfinished work of another recipe"):
        run(source, "rtn-3bit-g64", tmp_path / "out")
    shutil.rmtree(tmp_path / "out.partial")
    run(source, "rtn-3bit-g64", tmp_path / "out")
