"""Paths, names of the catalogue and names of the hub all find their model."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from model.loading.catalogue import CATALOGUE, DEFAULT_MODEL, GEMMA_3_270M, PublishedModel
from model.loading.checkpoint import ModelFileError
from model.loading.hf_reference import HubAccess, HubReference
from model.loading.hub import TermsNotAccepted
from model.loading.locate import locate, named, named_anywhere
from tests.fake_hub import FakeHub, running

CONTENT = b"a model"


@pytest.fixture
def pulled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishedModel:
    """A model of the catalogue that was pulled into `tmp_path`."""
    part = replace(DEFAULT_MODEL.parts[0], sha256=hashlib.sha256(CONTENT).hexdigest(), bytes=len(CONTENT))
    model = replace(DEFAULT_MODEL, name="Some-Model", file="some.gguf", sha256=part.sha256, parts=(part,))
    monkeypatch.setitem(CATALOGUE, model.key, model)
    (tmp_path / model.file).write_bytes(CONTENT)
    return model


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with running(FakeHub({"config.json": b"{}", "model.safetensors": b"weights"})) as hub:
        yield hub


@pytest.mark.parametrize("text", ["gemma-3-270m", "Gemma-3-270M"])
def test_a_name_of_the_catalogue_is_known_whatever_its_capitals(text: str) -> None:
    assert GEMMA_3_270M == named(text)


def test_a_name_of_the_hub_is_known() -> None:
    assert HubReference("ORG", "REPO") == named("hf:ORG/REPO")


@pytest.mark.parametrize("text", ["gemma-3-270m", "hf:ORG", "hf:ORG/REPO"])
def test_a_path_that_exists_wins_over_a_name(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(text).mkdir(parents=True)

    assert Path(text) == named(text)


@pytest.mark.parametrize("text", ["./other.gguf", "/no/such/folder", "a\0b", "x" * 5000, ""])
def test_what_is_no_name_is_a_path_that_its_loader_judges(text: str) -> None:
    assert Path(text) == named(text)


@pytest.mark.parametrize("text", ["gemma-3-27m", "smollm2-135m"])
def test_what_is_nearly_a_name_is_answered_with_it(text: str) -> None:
    with pytest.raises(ModelFileError, match="no such file or folder; did you mean the model "):
        named(text)


def test_a_word_that_is_no_name_is_answered_with_the_names_that_there_are() -> None:
    with pytest.raises(
        ModelFileError, match="no such file or folder; names of models are smollm2-135m-instruct, gemma-3"
    ):
        named("mistral")


def test_a_name_that_nothing_can_be_pulled_by_is_answered_with_those_that_can(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is no name of a model; known are smollm2-135m-instruct, gemma-3-270m"):
        named_anywhere(str(tmp_path))


def test_a_pulled_model_is_found(tmp_path: Path, pulled: PublishedModel) -> None:
    assert tmp_path / "some.gguf" == locate("some-model", folder=tmp_path)


def test_a_model_with_terms_is_not_pulled_by_using_it(tmp_path: Path) -> None:
    with pytest.raises(TermsNotAccepted, match="agree with `tane pull gemma-3-270m --accept-terms`"):
        locate("gemma-3-270m", folder=tmp_path)


def test_a_model_of_the_hub_is_pulled_when_it_is_missing(tmp_path: Path, hub: FakeHub) -> None:
    path = locate("hf:ORG/REPO", folder=tmp_path, hub=HubAccess(hub.endpoint))

    assert b"weights" == (path / "model.safetensors").read_bytes()


def test_a_pulled_model_of_the_hub_is_found_without_the_network(tmp_path: Path, hub: FakeHub) -> None:
    first = locate("hf:ORG/REPO", folder=tmp_path, hub=HubAccess(hub.endpoint))
    hub.requests.clear()

    assert first == locate("hf:ORG/REPO", folder=tmp_path, hub=HubAccess(hub.endpoint))
    assert [] == hub.requests


def test_a_pull_that_is_not_finished_is_taken_up(tmp_path: Path, hub: FakeHub) -> None:
    partial = tmp_path / "hf" / "main" / "ORG" / "REPO+partial"
    partial.mkdir(parents=True)
    (partial / "config.json").write_bytes(b"{}")

    path = locate("hf:ORG/REPO", folder=tmp_path, hub=HubAccess(hub.endpoint))

    assert ["model.safetensors"] == hub.asked_files
    assert {} == json.loads((path / "config.json").read_text())
