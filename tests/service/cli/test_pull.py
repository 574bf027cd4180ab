"""`tane pull` prints where a model is, or why it could not be had, and fetches nothing before terms are agreed to."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from model.loading.catalogue import CATALOGUE, DEFAULT_MODEL, GEMMA_3_270M, PublishedModel
from model.loading.wheels import PullError
from service.cli.main import main
from tests.fake_hub import COMMIT, FakeHub, running

Progress = Callable[[int, int], None]
PLACE = Path("/somewhere/model.gguf")
TERMS = "https://ai.google.dev/gemma/terms"


def pull(*arguments: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(main, ["pull", *arguments])


class FakePull:
    """Stands for the fetching of models of the catalogue, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[PublishedModel, bool]] = []

    def __call__(self, progress: Progress, *, model: PublishedModel, accept_terms: bool, **place: Any) -> Path:
        progress(1, 2)
        progress(2, 2)
        self.asked.append((model, accept_terms))
        return PLACE


@pytest.fixture
def pulls(monkeypatch: pytest.MonkeyPatch) -> FakePull:
    fake = FakePull()
    monkeypatch.setattr("model.loading.hub.pull", fake)
    monkeypatch.setattr("model.loading.hub.is_pulled", lambda folder, model: False)
    return fake


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with running(FakeHub({"config.json": b"{}", "model.safetensors": b"weights"})) as hub:
        yield hub


def test_the_path_is_all_that_is_printed(pulls: FakePull) -> None:
    result = pull()

    assert (0, f"{PLACE}\n", "") == (result.exit_code, result.stdout, result.stderr)


def test_without_a_name_it_is_the_default_model(pulls: FakePull) -> None:
    pull()

    assert [DEFAULT_MODEL] == [model for model, _ in pulls.asked]


def test_a_name_is_that_of_the_catalogue(pulls: FakePull) -> None:
    pull("SmolLM2-135M-Instruct")

    assert [DEFAULT_MODEL] == [model for model, _ in pulls.asked]


def test_json_names_the_model_its_path_its_hash_and_its_licence(pulls: FakePull) -> None:
    assert {
        "name": DEFAULT_MODEL.name,
        "path": str(PLACE),
        "sha256": DEFAULT_MODEL.sha256,
        "bytes": DEFAULT_MODEL.bytes,
        "license": "Apache-2.0",
    } == json.loads(pull("--json").stdout)


def test_a_failed_pull_says_why_and_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(progress: Progress, **how: Any) -> Path:
        raise PullError("no index is reachable")

    monkeypatch.setattr("model.loading.hub.pull", failed)

    result = pull()

    assert (1, "Error: no index is reachable\n") == (result.exit_code, result.stderr)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    result = pull("gemma-3-27b")

    assert 2 == result.exit_code
    assert "did you mean the model gemma-3-270m?" in result.stderr
    assert all(name in result.stderr for name in (*CATALOGUE, "hf:ORG/REPO"))


def test_the_catalogue_is_listed_with_sizes_and_licences() -> None:
    lines = pull("--list").stdout.splitlines()

    assert ["smollm2-135m-instruct", "gemma-3-270m"] == [line.split()[0] for line in lines]
    assert "253 MB  Gemma Terms of Use" in lines[1]


def test_terms_are_shown_and_nothing_is_fetched_before_they_are_agreed_to(pulls: FakePull) -> None:
    result = pull("gemma-3-270m")

    assert 2 == result.exit_code
    assert TERMS in result.stderr
    assert "--accept-terms; nothing was fetched" in result.stderr
    assert [] == pulls.asked


def test_terms_are_agreed_to_by_an_option_and_still_shown(pulls: FakePull) -> None:
    result = pull("gemma-3-270m", "--accept-terms")

    assert (0, f"{PLACE}\n") == (result.exit_code, result.stdout)
    assert TERMS in result.stderr
    assert [(GEMMA_3_270M, True)] == pulls.asked


@pytest.mark.parametrize(("answer", "exit_code", "asked"), [(True, 0, [(GEMMA_3_270M, True)]), (False, 2, [])])
def test_on_a_terminal_agreement_is_asked_for(
    pulls: FakePull, monkeypatch: pytest.MonkeyPatch, answer: bool, exit_code: int, asked: list[Any]
) -> None:
    monkeypatch.setattr("service.cli.pull.can_ask", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda text, **how: answer)

    assert exit_code == pull("gemma-3-270m").exit_code
    assert asked == pulls.asked


def test_a_model_that_is_there_asks_for_no_agreement(pulls: FakePull, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.loading.hub.is_pulled", lambda folder, model: True)

    result = pull("gemma-3-270m")

    assert (0, "") == (result.exit_code, result.stderr)


def test_a_model_of_the_hub_is_pulled_from_the_hub_that_is_named(tmp_path: Path, hub: FakeHub) -> None:
    result = pull("hf:ORG/REPO", "--cache-folder", str(tmp_path), HF_ENDPOINT=hub.endpoint, HF_TOKEN="hf_s3cret")

    assert (0, f"{tmp_path / 'hf' / 'main' / 'ORG' / 'REPO'}\n") == (result.exit_code, result.stdout)
    assert "licence: apache-2.0" in result.stderr
    assert {"Bearer hf_s3cret"} == {request.headers["authorization"] for request in hub.requests}


def test_json_names_commit_and_files_of_a_model_of_the_hub(tmp_path: Path, hub: FakeHub) -> None:
    result = pull("hf:ORG/REPO", "--json", "--cache-folder", str(tmp_path), HF_ENDPOINT=hub.endpoint)

    printed = json.loads(result.stdout)
    assert ("hf:ORG/REPO", COMMIT, 9) == (printed["name"], printed["commit"], printed["bytes"])
    assert {"bytes": 7, "sha256": hub.sibling("model.safetensors")["lfs"]["sha256"]} == printed["files"][
        "model.safetensors"
    ]


def test_the_hub_asks_for_agreement_itself(hub: FakeHub) -> None:
    result = pull("hf:ORG/REPO", "--accept-terms", HF_ENDPOINT=hub.endpoint)

    assert 2 == result.exit_code
    assert [] == hub.requests


def test_a_refusal_of_the_hub_is_one_line(tmp_path: Path, hub: FakeHub) -> None:
    result = pull("hf:ORG/OTHER", "--cache-folder", str(tmp_path), HF_ENDPOINT=hub.endpoint)

    assert (1, "Error: the hub has no repository ORG/OTHER\n") == (result.exit_code, result.stderr)
