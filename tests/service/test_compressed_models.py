"""A compressed model's folder is served as any file is, on both op sets, or refused before the first request."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from model.decoding.params import LogprobOptions
from model.loading.checkpoint import ModelFileError
from service.cli.main import main
from service.request import Finished
from service.settings import Settings
from service.startup import load
from tests.bits.questions import greedy
from tests.compressed import grids_for, tiny_source, write_artefact
from tests.tiny_model import TinyShape

ENGINES = ("native", "torch")
SHAPE = TinyShape(width=64, feed_forward=128)


def compressed(folder: Path, **form: Any) -> Path:
    source = tiny_source(folder, shape=SHAPE)
    return write_artefact(folder / "compressed", source, grids_for(source, **form))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compressed(tmp_path_factory.mktemp("model"), bits=3, group=64)


def settings(model: Path, **flags: Any) -> Settings:
    return Settings.load({}, {"model": str(model), "kv_cache_bytes": 1 << 20, "threads": 1, **flags})


def info(model: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["info", "--model", str(model), *arguments])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_compressed_model_answers(model: Path, engine: str) -> None:
    loaded = load(settings(model, engine=engine)).engine
    loaded.submit(greedy(range(3, 40), 3, logprobs=LogprobOptions(1)).request("r"), 0.0)
    events = []
    while not loaded.is_idle:
        events += loaded.step()[0]

    assert isinstance(events[-1], Finished)


def test_it_is_known_by_its_own_name(model: Path) -> None:
    assert "tiny-compressed" == load(settings(model)).model.name


def test_its_fingerprint_is_not_its_sources(model: Path) -> None:
    source = model.parent / "source.gguf"

    assert load(settings(source)).info.fingerprint != load(settings(model)).info.fingerprint


def test_it_guesses_for_its_source(model: Path) -> None:
    draft = load(settings(model.parent / "source.gguf", draft=str(model))).model.draft

    assert draft is not None
    assert "tiny-compressed" == draft.name


def test_a_grid_that_the_native_engine_cannot_run_is_refused_by_name(tmp_path: Path) -> None:
    folder = compressed(tmp_path, group=16)

    with pytest.raises(ModelFileError, match=r"layers\.0\.query has groups of 16 columns"):
        load(settings(folder, engine="native"))


def test_torch_runs_a_grid_that_the_native_engine_cannot(tmp_path: Path) -> None:
    assert "torch" == load(settings(compressed(tmp_path, group=16), engine="torch")).info.engine


def test_a_folder_without_a_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"a folder with neither tane\.json nor config\.json is no model"):
        load(settings(tmp_path))


def test_info_counts_the_bytes_of_codes_and_scales(model: Path) -> None:
    described = json.loads(info(model, "--json").stdout)

    weights = 2 * (64 * (64 + 32 + 32 + 64) + 3 * 64 * 128)
    assert {"tensors": 14, "bytes": weights * 3 // 8 + weights // 64 * 4} == described["formats"][
        "3-bit grid, groups of 64"
    ]


def test_info_tells_the_recipe(model: Path) -> None:
    assert ["recipe", "name", "random-codes,", "seed", "0"] == info(model).stdout.splitlines()[-1].split()
    assert {"name": "random-codes", "seed": 0} == json.loads(info(model, "--json").stdout)["recipe"]


def test_info_says_that_every_weight_is_kept_as_stored(model: Path) -> None:
    assert 0 == json.loads(info(model, "--json").stdout)["native_weights"]["rounded"]


def test_info_tells_what_the_native_engine_refuses(tmp_path: Path) -> None:
    native = json.loads(info(compressed(tmp_path, group=16), "--json").stdout)["native_weights"]

    assert "layers.0.query has groups of 16 columns" in native["refused"]


def test_info_tells_of_a_damaged_folder_in_one_line(tmp_path: Path) -> None:
    folder = compressed(tmp_path)
    (folder / "tane.json").write_text("{")

    answer = info(folder)

    assert 2 == answer.exit_code
    assert 1 == len(answer.stderr.strip().splitlines())
    assert "tane.json: not valid JSON" in answer.stderr
