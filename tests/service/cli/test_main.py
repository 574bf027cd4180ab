"""The `tane` command itself."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import service
from service.cli.main import main

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


def test_an_unknown_command_is_bad_usage() -> None:
    assert 2 == CliRunner().invoke(main, ["sing"]).exit_code


def test_it_is_installed_as_a_command() -> None:
    answer = subprocess.run([TANE, "--version"], capture_output=True, text=True, check=False)

    assert (0, "") == (answer.returncode, answer.stderr)
