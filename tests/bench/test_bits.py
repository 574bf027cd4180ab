"""The script that compares bits counts what it compared, and fails when something differs."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.bench import bits
from tests.bits.conditions import Answers, Setting
from tests.tiny_model import TinyShape, write_tiny_gguf

FEW = ["--prompts", "2", "--half", "--new-tokens", "2", "--threads", "1", "--json"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=512), format="Q8_0")


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bits, "CACHE_BYTES", 1 << 20)


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(bits.main, [*FEW, *arguments])
    return result.exit_code, json.loads(result.stdout)


def test_every_question_is_asked_in_every_condition_named(model: Path) -> None:
    code, figures = run("--model", str(model), "--only", "streamed", "--only", "chunks of 7")

    counted = [
        (each["condition"], each["answers"], each["tokens"], each["different"]) for each in figures["conditions"]
    ]
    assert (0, [("streamed", 12, 24, 0), ("in chunks of 7", 12, 24, 0)]) == (code, counted)


def test_one_bit_that_differs_fails(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mixed_up(setting: Setting) -> Answers:
        laboratory = setting.laboratory()
        for question, other in zip(setting.questions, setting.questions[1:], strict=False):
            yield question, laboratory.ask(other)
        yield setting.questions[0], laboratory.ask(setting.questions[0])

    monkeypatch.setattr(bits, "CONDITIONS", {"mixed up": mixed_up})

    code, figures = run("--model", str(model))

    assert (1, 12, 11) == (code, figures["conditions"][0]["answers"], figures["conditions"][0]["different"])


def test_a_condition_that_does_not_exist_is_refused(model: Path) -> None:
    result = CliRunner().invoke(bits.main, ["--model", str(model), "--only", "upside down"])

    assert 2 == result.exit_code
    assert "--only must be a part of one of" in result.output
