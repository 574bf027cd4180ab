"""`tane export` writes a file that other programs read, says what it cost, and spoils nothing."""

import json
import re
import resource
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from click.testing import CliRunner, Result

from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf
from model.loading.model import load_model
from service.cli.main import main
from tests.compressed import grids_for, random_grid, tiny_source, write_artefact
from tests.tiny_model import TinyShape, write_tiny_gguf


def export(model: Path, out: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["export", str(model), "--out", str(out), *arguments])


def said(model: Path, out: Path, *arguments: str) -> dict[str, Any]:
    result = export(model, out, "--json", *arguments)
    assert 0 == result.exit_code, result.output
    values: dict[str, Any] = json.loads(result.stdout)
    return values


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return tiny_source(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, source: Checkpoint) -> Path:
    """A compressed model of 4 bits in groups of 64, which Q4_1 holds; one matrix has 5 bits."""
    weights = {**grids_for(source, group=64), "layers.1.down": random_grid((192, 192), bits=5)}
    return write_artefact(tmp_path_factory.mktemp("compressed") / "x", source, weights)


def test_a_compressed_model_becomes_a_file_with_the_same_weights(tmp_path: Path, folder: Path) -> None:
    export(folder, tmp_path / "x.gguf")

    compressed, found = load_model(folder), load_gguf(tmp_path / "x.gguf")
    for name, tensor in compressed.tensors.items():
        if name != "layers.1.down":
            assert tensor.dequantised().tolist() == found.tensors[name].dequantised().tolist(), name


def test_without_a_format_matrices_get_one_that_holds_them(tmp_path: Path, folder: Path) -> None:
    values = said(folder, tmp_path / "x.gguf")

    assert {"Q4_1": 13, "Q8_0": 1, "F16": 1, "F32": 5} == {
        name: share["tensors"] for name, share in values["formats"].items()
    }


def test_what_is_not_exact_is_named_with_its_error(tmp_path: Path, folder: Path) -> None:
    values = said(folder, tmp_path / "x.gguf")

    expected = load_model(folder).tensors["layers.1.down"].dequantised()
    error = np.linalg.norm(expected.astype(np.float16) - expected) / np.linalg.norm(expected)
    assert {"layers.1.down": {"format": "F16", "weights": 192 * 192, "relative_rms_error": pytest.approx(error)}} == (
        values["tensors"]
    )


def test_a_format_that_was_asked_for_tells_its_error_by_kind(tmp_path: Path, source: Checkpoint, folder: Path) -> None:
    values = said(folder, tmp_path / "x.gguf", "--format", "q4_0")

    assert {"query", "key", "value", "attention_output", "gate", "up", "down"} == values["kinds"].keys()
    assert 0.01 < min(each["relative_rms_error"] for each in values["kinds"].values())
    linear = sum(t.dequantised().size for name, t in source.tensors.items() if name.startswith("layers.")) - 4 * 192
    assert (linear, 320 * 192) == (values["rounded"], values["kept"])


def test_the_bytes_of_the_file_are_told(tmp_path: Path, folder: Path) -> None:
    values = said(folder, tmp_path / "x.gguf")

    assert (tmp_path / "x.gguf").stat().st_size == values["bytes"]
    assert sum(each.n_bytes for each in gguf.GGUFReader(tmp_path / "x.gguf").tensors) == sum(
        share["bytes"] for share in values["formats"].values()
    )


def test_the_table_names_what_matters(tmp_path: Path, folder: Path) -> None:
    lines = export(folder, tmp_path / "x.gguf").stdout.splitlines()

    values = {line[:14].strip(): line[16:] for line in lines}
    assert "13 tensors, 253,440 bytes" == values["in Q4_1"]
    assert "36,864 weights" == values["rounded"]
    assert re.fullmatch(r"0\.0\d+ %: down 0\.0\d+ %", values["relative error"])
    assert re.fullmatch(r"layers\.1\.down 0\.0\d+ %", values["not exact"])


def test_of_many_tensors_the_worst_are_named(tmp_path: Path, folder: Path) -> None:
    last = export(folder, tmp_path / "x.gguf", "--format", "q4_0").stdout.splitlines()[-1]

    assert last.startswith("not exact")
    assert last.endswith(", and 6 more")
    assert 8 == last.count("%")


def test_where_nothing_is_lost_no_error_is_told(tmp_path: Path, source: Checkpoint) -> None:
    folder = write_artefact(tmp_path / "x", source, source.tensors)

    lines = export(folder, tmp_path / "x.gguf").stdout.splitlines()

    assert ["path", "bytes", "in Q8_0", "in F32", "kept as stored"] == [line[:14].strip() for line in lines]


def test_a_gguf_file_is_written_in_another_format(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", format="F32")

    values = said(model, tmp_path / "x.gguf", "--format", "q8_0")

    assert ["Q8_0", "F32"] == list(values["formats"])


def test_a_file_that_is_there_is_kept(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"mine")

    result = export(folder, tmp_path / "x.gguf")

    message = f"Error: --out {tmp_path / 'x.gguf'} exists; name another file, or replace it with --force\n"
    assert (2, message, b"mine") == (result.exit_code, result.stderr, (tmp_path / "x.gguf").read_bytes())


def test_force_replaces_it(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"mine")

    export(folder, tmp_path / "x.gguf", "--force")

    assert "tiny-compressed" == load_gguf(tmp_path / "x.gguf").name


@pytest.mark.parametrize(("place", "reason"), [("", "is a folder"), ("none/x.gguf", "there is no folder")])
def test_a_place_that_cannot_be_is_refused_before_the_model_is_read(tmp_path: Path, place: str, reason: str) -> None:
    result = export(tmp_path / "no model", tmp_path / place)

    assert (2, 1) == (result.exit_code, len(result.stderr.splitlines()))
    assert reason in result.stderr


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        result = export(folder, tmp_path / "x.gguf")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert (1, f"Error: {tmp_path / 'x.gguf'} cannot be written: File too large\n") == (result.exit_code, result.stderr)
    assert [] == list(tmp_path.iterdir())


def test_what_a_format_cannot_hold_is_refused_by_name(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", shape=TinyShape(feed_forward=100))

    result = export(model, tmp_path / "x.gguf", "--format", "q4_1")

    assert (2, "Error: layers.0.down has rows of 100, which Q4_1 does not divide\n") == (
        result.exit_code,
        result.stderr,
    )


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"no model")

    result = export(tmp_path / "bad.gguf", tmp_path / "x.gguf")

    assert (2, True) == (result.exit_code, result.stderr.startswith(f"Error: {tmp_path / 'bad.gguf'}: "))


def test_a_source_that_changes_meanwhile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf")
    checkpoint = load_gguf(model)
    monkeypatch.setattr("service.cli.loading.load_checkpoint_of", lambda path: checkpoint)
    model.write_bytes(b"changed")

    result = export(model, tmp_path / "x.gguf")

    assert (2, 1) == (result.exit_code, len(result.stderr.splitlines()))
    assert ["tiny.gguf"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("through_a_link", [False, True])
def test_a_model_is_not_replaced_by_what_became_of_it(tmp_path: Path, through_a_link: bool) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf")
    before, out = path.read_bytes(), path
    if through_a_link:
        out = tmp_path / "link.gguf"
        out.symlink_to(path)

    result = export(path, out, "--format", "q8_0", "--force")

    assert 2 == result.exit_code
    assert "is the model itself" in result.output
    assert before == path.read_bytes()


def test_nothing_is_written_into_a_models_folder(folder: Path) -> None:
    before = sorted(folder.iterdir())

    result = export(folder, folder / "x.gguf")

    assert 2 == result.exit_code
    assert before == sorted(folder.iterdir())
