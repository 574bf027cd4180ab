"""Names of models stand wherever paths do: for the main model, its variants and its draft."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model.loading.checkpoint import ModelFileError
from model.loading.hub import TermsNotAccepted
from service.settings import Settings
from service.startup import build_service, load
from tests.fake_hub import FakeHub, running
from tests.tiny_model import write_tiny_gguf

NAME = "hf:ORG/REPO/tiny.gguf"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    content = write_tiny_gguf(tmp_path / "tiny.gguf").read_bytes()
    with running(FakeHub({"tiny.gguf": content})) as hub:
        yield hub


def settings(folder: Path, hub: FakeHub, **flags: Any) -> Settings:
    given = {"model": NAME, "cache_folder": str(folder / "cache"), "kv_cache_bytes": 1 << 20, "threads": 1}
    return Settings.load({"HF_ENDPOINT": hub.endpoint}, {**given, **flags})


def test_the_main_model_is_pulled_by_its_name_with_progress(tmp_path: Path, hub: FakeHub) -> None:
    seen: list[tuple[int, int]] = []

    loaded = load(settings(tmp_path, hub), progress=lambda done, total: seen.append((done, total)))

    size = len(hub.files["tiny.gguf"])
    assert "tiny" == loaded.model.name
    assert (size, size) == seen[-1]


def test_variant_and_draft_may_be_names_and_each_is_pulled_once(tmp_path: Path, hub: FakeHub) -> None:
    service = build_service(settings(tmp_path, hub, variant=(f"other={NAME}",), draft=NAME, draft_cache_bytes=1 << 20))

    draft = service.models["tiny"].model.draft
    assert ["tiny", "other"] == list(service.models)
    assert draft is not None
    assert "tiny" == draft.name
    assert ["tiny.gguf"] == hub.asked_files


def test_a_variant_whose_name_is_none_is_told_with_the_form_of_one(tmp_path: Path, hub: FakeHub) -> None:
    with pytest.raises(ModelFileError, match="--variant other: no model of the hub: its name must be hf:ORG/REPO"):
        build_service(settings(tmp_path, hub, variant=("other=hf:ORG",)))


def test_a_model_whose_terms_were_not_agreed_to_is_not_served(tmp_path: Path, hub: FakeHub) -> None:
    with pytest.raises(TermsNotAccepted):
        load(settings(tmp_path, hub, model="gemma-3-270m"))
