"""`tane pull` prints where the default model is, or why it could not be had."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from model.loading.hub import DEFAULT_MODEL
from model.loading.wheels import PullError
from service.cli.main import main

Progress = Callable[[int, int], None]
PLACE = Path("/somewhere/model.gguf")


def pull(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["pull", *arguments])


@pytest.fixture
def _pulls(monkeypatch: pytest.MonkeyPatch) -> None:
    def pulled(progress: Progress, folder: Path | None) -> Path:
        progress(1, 2)
        progress(2, 2)
        return PLACE

    monkeypatch.setattr("model.loading.hub.pull", pulled)


@pytest.mark.usefixtures("_pulls")
def test_the_path_is_all_that_is_printed() -> None:
    result = pull()

    assert (0, f"{PLACE}\n", "") == (result.exit_code, result.stdout, result.stderr)


@pytest.mark.usefixtures("_pulls")
def test_json_names_the_model_its_path_and_its_hash() -> None:
    printed = json.loads(pull("--json").stdout)

    assert (DEFAULT_MODEL.name, str(PLACE), DEFAULT_MODEL.sha256) == (
        printed["name"],
        printed["path"],
        printed["sha256"],
    )


def test_a_failed_pull_says_why_and_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(progress: Progress, folder: Path | None) -> Path:
        raise PullError("no index is reachable")

    monkeypatch.setattr("model.loading.hub.pull", failed)

    result = pull()

    assert (1, "Error: no index is reachable\n") == (result.exit_code, result.stderr)
