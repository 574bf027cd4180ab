"""`tane generate` with real engines instead of scripts."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from service.cli.main import main

TANE = Path(sys.executable).parent / "tane"


@pytest.fixture(autouse=True)
def _small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANE_KV_CACHE_BYTES", str(64 << 20))


def generate(model: Path, *arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["generate", "--json", "--model", str(model), *arguments])
    assert 0 == result.exit_code, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_the_same_seed_gives_the_same_tokens(tiny_gguf: Path) -> None:
    arguments = ("the seed", "--seed", "3", "--temperature", "1", "--max-new-tokens", "12", "--ignore-eos")

    first, second = generate(tiny_gguf, *arguments), generate(tiny_gguf, *arguments)

    assert 12 == len(first["token_ids"])
    assert first["token_ids"] == second["token_ids"]


def test_several_samples_differ(tiny_gguf: Path) -> None:
    arguments = ("the seed", "--seed", "3", "--temperature", "2", "--max-new-tokens", "12", "--num-return", "2")

    first, second = generate(tiny_gguf, *arguments)["choices"]

    assert first["token_ids"] != second["token_ids"]


@pytest.mark.slow
def test_the_default_model_knows_the_capital_of_france(default_model_path: Path) -> None:
    command = [str(TANE), "generate", "The capital of France is", "--temperature", "0", "--max-new-tokens", "4"]

    answer = subprocess.run(command, capture_output=True, text=True, check=False)

    assert 0 == answer.returncode, answer.stderr
    assert "Paris" in answer.stdout
