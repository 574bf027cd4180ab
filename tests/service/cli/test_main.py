"""The `tane` command itself."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import service
from service.cli.main import NO_TORCH, TaneGroup, main
from tests.tiny_model import write_tiny_gguf

TANE = Path(sys.executable).parent / "tane"


def test_the_commands_are_these() -> None:
    assert [
        "serve",
        "generate",
        "replay",
        "pull",
        "models",
        "tokenize",
        "info",
        "compress",
        "eval",
        "export",
        "bench",
        "study",
    ] == list(main.commands)


@pytest.mark.parametrize("command", main.commands)
def test_every_command_explains_itself_with_examples(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])

    assert 0 == result.exit_code
    assert f"Examples:\n    tane {command}" in result.stdout


@pytest.mark.parametrize(
    "command", ["generate", "pull", "models", "tokenize", "info", "compress", "eval", "export", "bench"]
)
def test_every_command_with_results_can_print_json(command: str) -> None:
    assert "--json" in CliRunner().invoke(main, [command, "--help"]).stdout


def test_the_version_is_the_packages() -> None:
    assert f"tane, version {service.__version__}\n" == CliRunner().invoke(main, ["--version"]).stdout


def test_where_torch_is_left_out_what_needs_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setitem(sys.modules, "torch", None)

    result = CliRunner().invoke(main, ["generate", "a", "--model", str(model), "--engine", "torch"])

    assert (1, f"Error: {NO_TORCH}\n") == (result.exit_code, result.stderr)


def test_any_other_module_that_is_missing_is_a_bug() -> None:
    group = TaneGroup(
        "tane", commands={"sing": click.Command("sing", callback=lambda: import_module("no_such_module"))}
    )

    assert isinstance(CliRunner().invoke(group, ["sing"]).exception, ModuleNotFoundError)


def test_an_unknown_command_is_bad_usage() -> None:
    assert 2 == CliRunner().invoke(main, ["sing"]).exit_code


def test_it_is_installed_as_a_command() -> None:
    answer = subprocess.run([TANE, "--version"], capture_output=True, text=True, check=False)

    assert (0, "") == (answer.returncode, answer.stderr)
