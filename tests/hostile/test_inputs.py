"""A real server answers every hostile input as it should, and its other callers notice nothing."""

from collections.abc import Iterator

import pytest

from service.settings import Settings
from tests.hostile import wire
from tests.hostile.assault import Report, assault
from tests.hostile.inputs import keyless_inputs
from tests.live import Live, live_server
from tests.tiny_model import TinyShape, write_tiny_gguf

KEY = "a-key"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=2048))
    with live_server(Settings.load({}, {"model": str(path), "kv_cache_bytes": 4 << 20})) as server:
        yield server


@pytest.fixture(scope="module")
def report(live: Live) -> Report:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "SECOND_ANSWER_S", 0.01)
        return assault(live.url)


@pytest.fixture(scope="module")
def report_with_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Report]:
    folder = tmp_path_factory.mktemp("keys")
    path = write_tiny_gguf(folder / "tiny.gguf", shape=TinyShape(context=2048))
    keys = folder / "keys"
    keys.write_text(KEY)
    settings = {"model": str(path), "kv_cache_bytes": 4 << 20, "keys_file": str(keys)}
    with live_server(Settings.load({}, settings)) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "SECOND_ANSWER_S", 0.01)
        yield assault(server.url, KEY)


@pytest.mark.parametrize("name", [hostile.name for hostile in keyless_inputs()])
def test_a_hostile_input_is_answered_as_it_should_be(name: str, report: Report) -> None:
    assert [] == report.problems.get(name, [])


def test_no_hostile_input_is_a_fault_of_the_server(report: Report) -> None:
    assert [] == report.faults


def test_no_bit_of_another_callers_answers_changes(report: Report) -> None:
    assert report.song.is_unchanged, report.song.heard


def test_nothing_is_left_of_it(live: Live, report: Report) -> None:
    live.wait_until_idle()

    assert report.song.heard
    assert 0 == live.samples()["tane_kv_cache_bytes leased"]


def test_where_keys_are_asked_for_it_is_answered_the_same_with_one_and_not_at_all_without(
    report_with_keys: Report,
) -> None:
    assert {} == report_with_keys.problems
    assert [] == report_with_keys.faults


def test_beside_it_the_answers_to_a_caller_with_a_key_keep_their_bits(report_with_keys: Report) -> None:
    assert report_with_keys.song.is_unchanged, report_with_keys.song.heard
