"""`--draft`: which model may guess for which, and what is said of one that may not."""

from pathlib import Path
from typing import Any

import pytest

from model.loading.checkpoint import ModelFileError
from service.settings import Settings
from service.startup import Loaded, load
from tests.tiny_model import TinyShape, write_tiny_gguf

CACHE = 1 << 20
TARGET = TinyShape()
SMALL = TinyShape(layers=1, width=32, heads=2, kv_heads=1, feed_forward=32)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_tiny_gguf(folder / "target.gguf", shape=TARGET, format="Q8_0")
    write_tiny_gguf(folder / "small.gguf", shape=SMALL, format="Q8_0", seed=1)
    write_tiny_gguf(folder / "other.gguf", shape=TinyShape(vocabulary=352), format="Q8_0")
    return folder


def loaded(models: Path, draft: str | None, **settings: Any) -> Loaded:
    flags = {"model": str(models / "target.gguf"), "kv_cache_bytes": CACHE, "draft_cache_bytes": CACHE, "threads": 1}
    given = {} if draft is None else {"draft": str(models / draft)}
    return load(Settings.load({}, flags | given | settings))


def test_without_the_option_there_is_no_draft_model(models: Path) -> None:
    assert loaded(models, None).model.draft is None


def test_a_model_of_the_same_tokens_may_guess(models: Path) -> None:
    draft = loaded(models, "small.gguf").model.draft

    assert draft is not None
    assert 64 == len(draft.sha256)
    assert 0 < draft.kv_cache_bytes <= CACHE


def test_a_model_may_guess_for_itself(models: Path) -> None:
    both = loaded(models, "target.gguf").model

    assert both.draft is not None
    assert both.sha256 == both.draft.sha256


def test_a_model_of_other_tokens_is_refused_by_name(models: Path) -> None:
    with pytest.raises(ModelFileError) as caught:
        loaded(models, "other.gguf")

    message = str(caught.value)
    assert "other.gguf" in message
    assert "the draft model's vocabulary is not that of the served one" in message
    assert "352 and 320 tokens, and token 320 is the first that differs" in message


def test_a_cache_that_holds_no_page_of_the_draft_model_is_refused(models: Path, tmp_path: Path) -> None:
    wide = TinyShape(layers=8, kv_heads=8, heads=8, head_width=256)
    write_tiny_gguf(tmp_path / "wide.gguf", shape=wide)

    with pytest.raises(ModelFileError, match=r"--draft-cache-bytes allows 1048576"):
        loaded(models, str(tmp_path / "wide.gguf"))


def test_a_missing_draft_model_is_told(models: Path) -> None:
    with pytest.raises(ModelFileError, match=r"gone\.gguf"):
        loaded(models, "gone.gguf")


def test_the_draft_model_is_no_part_of_the_fingerprint(models: Path) -> None:
    assert loaded(models, None).info.fingerprint == loaded(models, "small.gguf").info.fingerprint


@pytest.mark.parametrize(("engine", "repeats"), [("native", True), ("torch", False)])
def test_the_door_knows_whether_guesses_are_exact(engine: str, repeats: bool, models: Path) -> None:
    assert repeats == loaded(models, "small.gguf", engine=engine).model.repeats_bits
