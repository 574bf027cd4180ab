"""A cache that does not fit beside the weights is refused, and the default one is made to fit."""

import logging
from pathlib import Path
from typing import Any

import pytest

from model.loading.checkpoint import Checkpoint, ModelFileError
from model.loading.gguf import load_gguf
from service.cache_size import fitted
from service.memory import MemoryUse
from service.model_report import parameters_of
from service.settings import Settings
from tests.tiny_model import write_tiny_gguf

MIB = 1 << 20
DEFAULT = Settings().kv_cache_bytes


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return load_gguf(write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf"))


def memory(limit: int, used: int = 50 * MIB) -> tuple[MemoryUse, ...]:
    return (MemoryUse(used, limit),)


def test_where_there_is_room_nothing_changes(model: Checkpoint) -> None:
    assert Settings() == fitted(Settings(), [model], [], memory(8 << 30))


def test_the_default_is_what_leaves_a_quarter_and_that_is_told(
    model: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        size = fitted(Settings(), [model], [], memory(512 * MIB)).kv_cache_bytes

    assert 512 * MIB * 3 // 4 - 51 * MIB < size <= 512 * MIB * 3 // 4 - 50 * MIB
    assert ["smaller_cache"] == [record.__dict__["event"] for record in caplog.records]


def test_models_share_what_is_left(model: Checkpoint) -> None:
    alone, shared = (fitted(Settings(), [model] * count, [], memory(512 * MIB)).kv_cache_bytes for count in (1, 2))

    assert alone // 2 - MIB < shared <= alone // 2


def test_the_draft_models_cache_is_counted(model: Checkpoint) -> None:
    settings = Settings(draft="draft", draft_cache_bytes=100 * MIB)
    alone, beside = (fitted(settings, [model], drafts, memory(512 * MIB)).kv_cache_bytes for drafts in ([], [model]))

    assert 100 * MIB <= alone - beside < 101 * MIB


def test_the_tightest_bound_counts(model: Checkpoint) -> None:
    bounds = (*memory(8 << 30), *memory(512 * MIB))

    assert fitted(Settings(), [model], [], memory(512 * MIB)) == fitted(Settings(), [model], [], bounds)


@pytest.mark.parametrize("given", [DEFAULT, 450 * MIB])
def test_a_size_that_was_asked_for_and_does_not_fit_is_refused_with_the_numbers(model: Checkpoint, given: int) -> None:
    settings = Settings.load({}, {"kv_cache_bytes": given})

    with pytest.raises(ModelFileError, match=rf"of 512 MiB .* --kv-cache-bytes than {given}"):
        fitted(settings, [model], [], memory(512 * MIB))


def test_a_size_that_was_asked_for_and_fits_is_kept(model: Checkpoint) -> None:
    settings = Settings.load({}, {"kv_cache_bytes": 400 * MIB})

    assert settings == fitted(settings, [model], [], memory(512 * MIB))


def test_a_model_beside_which_nothing_fits_is_refused(model: Checkpoint) -> None:
    with pytest.raises(ModelFileError, match="need"):
        fitted(Settings(), [model], [], memory(52 * MIB))


def test_torch_holds_float32(model: Checkpoint) -> None:
    def cache(**flags: Any) -> int:
        return fitted(Settings(**flags), [model] * 1000, [], memory(2 << 30)).kv_cache_bytes

    assert 2 * parameters_of(model) < cache(engine="native") - cache(engine="torch") < 4 * parameters_of(model)


def test_where_nothing_is_known_of_memory_nothing_is_refused(model: Checkpoint) -> None:
    assert Settings() == fitted(Settings(), [model], [], ())


def test_a_server_that_lacks_memory_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from service.startup import load

    def lacking(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("service.startup._loaded", lacking)
    with pytest.raises(ModelFileError, match="not enough memory"):
        load(Settings(model=str(write_tiny_gguf(tmp_path / "tiny.gguf"))))
