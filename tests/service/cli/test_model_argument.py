"""Commands that are about a model take it, or none, as their argument in the same way."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from model.loading.gguf import load_gguf
from service.cli.main import main
from tests.tiny_model import TinyShape, write_tiny_gguf

ABOUT_A_MODEL = ("info", "compress", "eval", "export")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds `model.gguf` and `text.txt`."""
    made = tmp_path_factory.mktemp("about")
    write_tiny_gguf(made / "model.gguf", shape=TinyShape(context=128), format="Q8_0")
    (made / "text.txt").write_text("The seed lies in the ground and waits for the rain. " * 12)
    return made


def run(command: str, folder: Path, out: Path, *model: str) -> Result:
    options: dict[str, tuple[str, ...]] = {
        "compress": ("--recipe", "rtn-8bit-row", "--out", str(out)),
        "eval": ("--corpus", str(folder / "text.txt"), "--tokens", "30", "--window", "32", "--threads", "1"),
        "export": ("--out", str(out)),
    }
    return CliRunner().invoke(main, [command, *model, *options.get(command, ()), "--json"])


def hash_of_the_source(command: str, result: Result, out: Path) -> str:
    """Of the model that a command was about, as far as what it made tells; its name for one that tells no hash."""
    assert 0 == result.exit_code, result.output
    said: dict[str, Any] = json.loads(result.stdout)
    match command:
        case "info":
            return str(said["sha256"])
        case "compress":
            return str(json.loads((out / "tane.json").read_text())["source"]["sha256"])
        case "eval":
            return str(said["model_sha256"])
        case _:
            return str(said["name"])


def expected_of(command: str, folder: Path) -> str:
    source = load_gguf(folder / "model.gguf")
    return source.name if command == "export" else source.sha256


@pytest.mark.parametrize("command", ABOUT_A_MODEL)
def test_the_model_is_the_argument(command: str, folder: Path, tmp_path: Path) -> None:
    result = run(command, folder, tmp_path / "out", str(folder / "model.gguf"))

    assert expected_of(command, folder) == hash_of_the_source(command, result, tmp_path / "out")


@pytest.mark.parametrize("command", ABOUT_A_MODEL)
def test_without_one_it_is_the_model_that_would_be_served(
    command: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TANE_MODEL", str(folder / "model.gguf"))

    result = run(command, folder, tmp_path / "out")

    assert expected_of(command, folder) == hash_of_the_source(command, result, tmp_path / "out")


@pytest.mark.parametrize("command", ABOUT_A_MODEL)
@pytest.mark.parametrize("name", ["missing.gguf", ""])
def test_one_that_is_not_there_is_refused_in_one_line(command: str, name: str, folder: Path, tmp_path: Path) -> None:
    result = run(command, folder, tmp_path / "out", name)

    assert (2, "", 1) == (result.exit_code, result.stdout, len(result.stderr.splitlines()))


@pytest.mark.parametrize("command", ABOUT_A_MODEL)
def test_shells_complete_it_as_a_path(command: str) -> None:
    completions = ShellComplete(main, {}, "tane", "_TANE_COMPLETE").get_completions([command], "mod")

    assert [("mod", "file")] == [(each.value, each.type) for each in completions]


@pytest.mark.parametrize("command", ABOUT_A_MODEL)
def test_help_says_what_it_is(command: str) -> None:
    shown = " ".join(CliRunner().invoke(main, [command, "--help"]).stdout.split())

    assert f"Usage: main {command} [OPTIONS] [MODEL]" in shown
    assert "MODEL is a GGUF file or a model's folder; without it, what `tane serve` would serve." in shown


def test_a_model_is_not_named_twice(folder: Path) -> None:
    path = str(folder / "model.gguf")

    refused = CliRunner().invoke(main, ["info", path, "--model", path])

    assert 2 == refused.exit_code
    assert "give one of them" in refused.stderr
