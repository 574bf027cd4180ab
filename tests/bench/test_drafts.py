"""The script that measures drafts answers with and without each, and says what its costs make expected."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from model.loading.gguf import load_gguf
from tests.bench import drafts, speculation
from tests.bench.drafts import expected_speed, guesses_per_step, table
from tests.compressed import grids_for, write_artefact
from tests.tiny_model import TinyShape, write_tiny_gguf


def test_a_draft_is_measured_on_every_kind_of_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", shape=TinyShape(context=1024, width=64, feed_forward=64))
    source = load_gguf(model)
    draft = write_artefact(tmp_path / "draft", source, grids_for(source))
    monkeypatch.setattr(drafts, "CACHE_BYTES", 4 << 20)
    options = ["--model", str(model), "--rounds", "1", "--new-tokens", "4", "--threads", "1", "--json"]

    result = CliRunner().invoke(drafts.main, [str(draft), *options])
    figures = json.loads(result.stdout)
    (row,) = figures["drafts"]

    assert 0 == result.exit_code
    assert list(speculation.KINDS) == [each["kind"] for each in row["kinds"]]
    assert all(each["drafted_tokens"] > 0 and each["speed"] > 0 for each in row["kinds"])
    assert "| draft |" in table(figures)


@pytest.mark.parametrize(
    ("acceptance", "guesses", "cost", "verification", "speed"),
    [
        (0.0, 3, 0.5, 1.5, 1 / 3),
        (1.0, 3, 0.25, 1.25, 2.0),
        (0.5, 1, 0.5, 1.0, 1.0),
    ],
)
def test_the_expected_speed_is_tokens_over_time(
    acceptance: float, guesses: float, cost: float, verification: float, speed: float
) -> None:
    assert speed == pytest.approx(expected_speed(acceptance, guesses, cost, verification))


def test_steps_are_tokens_that_no_guess_gave() -> None:
    assert 2.0 == guesses_per_step({"tokens": 30, "accepted_tokens": 10, "drafted_tokens": 40})
