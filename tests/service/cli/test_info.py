"""`tane info` says what a model file holds."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from model.loading.gguf import load_gguf
from service.cli.main import main


def info(model: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["info", "--model", str(model), *arguments])


@pytest.fixture
def printed(tiny_gguf: Path) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(info(tiny_gguf, "--json").stdout)
    return described


def test_the_hash_is_the_files(tiny_gguf: Path, printed: dict[str, Any]) -> None:
    assert hashlib.sha256(tiny_gguf.read_bytes()).hexdigest() == printed["sha256"]


def test_parameters_are_the_numbers_of_all_tensors(tiny_gguf: Path, printed: dict[str, Any]) -> None:
    tensors = load_gguf(tiny_gguf).tensors.values()

    assert sum(tensor.dequantised().size for tensor in tensors) == printed["parameters"]


def test_formats_count_tensors_and_their_bytes(tiny_gguf: Path, printed: dict[str, Any]) -> None:
    tensors = load_gguf(tiny_gguf).tensors.values()
    stored = {
        name: {
            "tensors": sum(tensor.format.name == name for tensor in tensors),
            "bytes": sum(tensor.rows().nbytes for tensor in tensors if tensor.format.name == name),
        }
        for name in ("Q8_0", "F32")
    }

    assert stored == printed["formats"]


def test_the_price_of_a_token_in_the_cache_is_told(printed: dict[str, Any]) -> None:
    assert {"numbers_per_token": 2 * 2 * 2 * 16, "float32_bytes_per_token": 512} == printed["cache"]


def test_the_table_names_what_matters(tiny_gguf: Path) -> None:
    lines = info(tiny_gguf).stdout.splitlines()

    values = {line[:18].strip(): line[20:] for line in lines}
    assert ("64", "yes", "512 bytes a token in float32") == (
        values["width"],
        values["chat template"],
        values["cache"],
    )


@pytest.mark.parametrize("content", [b"", b"GGUF", b"no model at all" * 100])
def test_a_file_that_is_no_model_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)

    result = info(path)

    assert (2, "", 1) == (result.exit_code, result.stdout, len(result.stderr.splitlines()))
    assert result.stderr.startswith(f"Error: {path}: ")


def test_a_file_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    result = info(tmp_path / "none.gguf")

    assert (2, 1) == (result.exit_code, len(result.stderr.splitlines()))


def test_the_model_may_be_named_by_the_environment(tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANE_MODEL", str(tiny_gguf))

    result = CliRunner().invoke(main, ["info", "--json"])

    assert str(tiny_gguf) == json.loads(result.stdout)["path"]


def test_an_unknown_variable_is_refused(tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANE_MODLE", "x")

    result = info(tiny_gguf)

    assert (2, "Error: TANE_MODLE is no option; did you mean TANE_MODEL?\n") == (result.exit_code, result.stderr)
