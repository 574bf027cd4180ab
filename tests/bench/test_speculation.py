"""The script that measures guesses answers everything in both modes, and fails when something differs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from model.decoding.params import Speculation
from tests.bench import speculation
from tests.bench.speculation import KINDS, MODES, table
from tests.tiny_model import TinyShape, write_tiny_gguf


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=1024))


def run(model: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, dict[str, Any]]:
    monkeypatch.setattr(speculation, "CACHE_BYTES", 4 << 20)
    options = ["--model", str(model), "--rounds", "1", "--new-tokens", "4", "--threads", "1", "--json"]
    result = CliRunner().invoke(speculation.main, options)
    return result.exit_code, json.loads(result.stdout)


def test_every_kind_is_answered_in_both_modes(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, figures = run(model, monkeypatch)

    assert 0 == code
    assert list(KINDS) == [each["kind"] for each in figures["kinds"]]
    assert all(set(MODES) == each["tokens_per_second"].keys() and each["tokens"] > 0 for each in figures["kinds"])
    assert all(kind in table(figures) for kind in KINDS)


def test_one_bit_that_differs_fails(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = speculation.answer

    def mixed_up(laboratory: Any, kind: Any, prompt: str, mode: Speculation, **given: Any) -> float:
        return honest(laboratory, replace(kind, temperature=2.0) if mode == "auto" else kind, prompt, mode, **given)

    monkeypatch.setattr(speculation, "answer", mixed_up)

    code, figures = run(model, monkeypatch)

    assert 1 == code
    assert 0 < sum(each["different"] for each in figures["kinds"])
