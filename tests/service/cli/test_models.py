"""`tane models` lists what is at hand, and its names are what other commands take."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from model.loading.at_hand import ModelAtHand
from model.loading.hf_pull import pull_from_hub
from model.loading.hf_reference import HubAccess, HubReference
from service.cli.main import main
from service.cli.models import cells, line
from tests.fake_hub import COMMIT, FakeHub, running
from tests.tiny_model import write_tiny_gguf


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache folder into which a GGUF file of the hub was pulled."""
    content = write_tiny_gguf(tmp_path / "tiny.gguf").read_bytes()
    with running(FakeHub({"tiny.gguf": content})) as hub:
        reference = HubReference("ORG", "REPO", "tiny.gguf")
        pull_from_hub(reference, HubAccess(hub.endpoint), lambda done, total: None, folder=tmp_path / "cache")
    return tmp_path / "cache"


def run(cache: Path, *arguments: str) -> Result:
    return CliRunner(env={"TANE_CACHE_FOLDER": str(cache)}).invoke(main, list(arguments))


def test_names_states_and_places_are_printed(cache: Path) -> None:
    printed = run(cache, "models", str(cache)).stdout

    assert "│ gemma-3-270m" in printed
    assert "│ hf:ORG/REPO/tiny.gguf" in printed
    assert (
        f"hf:ORG/REPO/tiny.gguf: {cache}/hf-gguf/main/ORG/REPO/tiny.gguf/tiny.gguf, commit {COMMIT[:12]}\n" in printed
    )


def test_json_has_an_entry_for_each_model(cache: Path) -> None:
    listed = {model["name"]: model for model in json.loads(run(cache, "models", "--json").stdout)}

    assert ("ready", "llama", COMMIT) == tuple(
        listed["hf:ORG/REPO/tiny.gguf"][field] for field in ("state", "architecture", "commit")
    )
    assert "absent" == listed["gemma-3-270m"]["state"]


@pytest.mark.parametrize(("verify", "exit_code"), [((), 0), (("--verify",), 1)])
def test_a_changed_file_fails_the_command_that_compares_hashes(
    cache: Path, verify: tuple[str, ...], exit_code: int
) -> None:
    (path,) = cache.rglob("tiny.gguf/tiny.gguf")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    assert exit_code == run(cache, "models", *verify).exit_code


def test_a_name_that_is_listed_is_taken_by_other_commands(cache: Path) -> None:
    described = json.loads(run(cache, "info", "hf:ORG/REPO/tiny.gguf", "--json").stdout)

    assert str(cache / "hf-gguf" / "main" / "ORG" / "REPO" / "tiny.gguf" / "tiny.gguf") == described["path"]


def test_a_folder_that_is_not_there_is_bad_usage(cache: Path) -> None:
    assert 2 == run(cache, "models", "/no/such/folder").exit_code


def test_what_is_not_known_is_left_empty() -> None:
    model = ModelAtHand("x", "hub", "partial", Path("p"), 1_500_000)

    assert ("x", "partial", "1.5 MB", "", "", "", "") == cells(model)


def test_the_problem_of_a_damaged_model_is_told() -> None:
    model = ModelAtHand("x", "hub", "damaged", Path("p"), 0, problem="what is wrong")

    assert "x: p: what is wrong" == line(model)
