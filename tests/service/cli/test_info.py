"""`tane info` says what a model file holds."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from model.loading.gguf import load_gguf
from service.cli.main import main
from tests.tiny_model import FOR_EVERY_FORMAT, FormatName, TinyShape, write_tiny_gguf


def info(model: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["info", "--model", str(model), *arguments])


@pytest.fixture(scope="module")
def float_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "floats.gguf", format="F32")


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


def test_weights_that_the_kernels_know_are_kept_as_stored(printed: dict[str, Any]) -> None:
    matrices = printed["parameters"] - 5 * 64  # gains

    assert printed["native_weights"] == {
        "kept": matrices,
        "rounded": 0,
        "rounded_to": None,
        "relative_rms_error": 0,
        "kinds": {},
    }


def test_the_error_of_rounded_weights_is_told_for_each_kind(float_gguf: Path) -> None:
    described = json.loads(info(float_gguf, "--json").stdout)["native_weights"]

    errors = {kind: each["relative_rms_error"] for kind, each in described["kinds"].items()}
    assert {"embedding", "query", "key", "value", "attention_output", "gate", "up", "down"} == set(errors)
    assert 0.004 < min(errors.values()) <= described["relative_rms_error"] <= max(errors.values()) < 0.007


def test_the_table_tells_the_error_of_rounded_weights(float_gguf: Path) -> None:
    lines = info(float_gguf, "--weights", "int4").stdout.splitlines()

    values = {line[:18].strip(): line[20:] for line in lines}
    assert "81,920 weights" == values["rounded to int4"]
    assert re.fullmatch(r"7\.\d\d %: embedding 7\.\d\d %, query .*", values["relative error"])


@pytest.mark.parametrize("format", ["Q5_1", "IQ4_NL", "Q3_K", "Q4_K"])
def test_blocks_that_codes_hold_are_said_to_be_kept(tmp_path: Path, format: FormatName) -> None:
    path = write_tiny_gguf(tmp_path / "x.gguf", shape=FOR_EVERY_FORMAT, format=format)

    described = json.loads(info(path, "--json").stdout)

    assert {format, "F32"} == set(described["formats"])
    assert (0, None) == (described["native_weights"]["rounded"], described["native_weights"]["rounded_to"])


@pytest.mark.parametrize("format", ["Q2_K", "Q6_K"])
def test_blocks_that_no_code_holds_are_said_to_be_rounded(tmp_path: Path, format: FormatName) -> None:
    lines = info(write_tiny_gguf(tmp_path / "x.gguf", shape=FOR_EVERY_FORMAT, format=format)).stdout.splitlines()

    values = {line[:18].strip(): line[20:] for line in lines}
    assert ("0 weights", "475,136 weights") == (values["kept as stored"], values["rounded to int8"])
    assert re.fullmatch(r"0\.\d+ %: embedding 0\.\d+ %, query .*", values["relative error"])


def test_a_shape_that_the_native_op_set_refuses_is_named(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "narrow.gguf", shape=TinyShape(width=48))

    described = json.loads(info(path, "--json").stdout)

    assert "multiple of 32" in described["native_weights"]["refused"]


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
