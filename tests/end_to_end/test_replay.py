"""Records of real servers, run again elsewhere: on another server, with other threads, on another model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from service.cli.main import main
from service.client import GenerateFields, Replay, TaneClient, record_of
from service.settings import Settings
from tests.live import Live, live_server
from tests.tiny_model import TinyShape, write_tiny_gguf

SHAPE = TinyShape(context=1024)
TEXT = "The seed lies in the ground and waits for the rain. " * 3
QUESTIONS: dict[str, dict[str, Any]] = {
    "greedy": {"prompt": TEXT, "temperature": 0, "max_new_tokens": 12, "logprobs": {"top": 3}},
    "seeded": {"prompt": TEXT, "temperature": 1.2, "top_p": 0.9, "seed": 8, "max_new_tokens": 24, "ignore_eos": True},
    "a seed drawn": {"prompt": TEXT, "temperature": 1.5, "max_new_tokens": 16, "logprobs": {"of": "sampled", "top": 5}},
    "several samples": {
        "prompt": TEXT,
        "temperature": 1,
        "num_return": 3,
        "max_new_tokens": 9,
        "logprobs": {},
        "seed": 3,
    },
    "of the prompt": {"prompt": TEXT, "max_new_tokens": 4, "logprobs": {"prompt": True, "top": 2}},
    "beams": {"prompt": TEXT, "beam_width": 3, "num_return": 2, "max_new_tokens": 9, "length_penalty": 1},
    "steps of beams": {"prompt": TEXT, "beam_width": 3, "num_return": 2, "max_new_tokens": 9, "explain": True},
    "a constraint": {"prompt": TEXT, "constraint": {"regex": "[a-c]{3,9}"}, "max_new_tokens": 24, "seed": 2},
    "guesses": {"prompt": TEXT, "temperature": 0, "max_new_tokens": 40, "speculation": "prompt_lookup"},
    "messages": {"messages": [{"role": "user", "content": "hi"}], "max_new_tokens": 9, "repetition_penalty": 1.3},
}


def write_model(folder: Path, seed: int = 0) -> Path:
    return write_tiny_gguf(folder / f"{seed}.gguf", shape=SHAPE, format="Q4_1", seed=seed)


def settings_for(path: Path, **given: Any) -> Settings:
    return Settings.load({}, {"model": str(path), "kv_cache_bytes": 4 << 20, "threads": 1, **given})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def recorded(model: Path) -> dict[str, dict[str, Any]]:
    """Records made on a warm session, each after another turn, of a server that is gone since."""
    records = {}
    with live_server(settings_for(model)) as live, TaneClient(live.url) as client:
        for name, fields in QUESTIONS.items():
            client.generate(prompt=TEXT + "Yes.", max_new_tokens=3, session_id="warm")
            asked = {**fields, "session_id": "warm"}
            answer = client.generate(**cast(GenerateFields, asked)).raw
            records[name] = json.loads(json.dumps(record_of(asked, answer)))
    return records


@pytest.fixture(scope="module")
def other_server(model: Path) -> Iterator[Live]:
    with live_server(settings_for(model, threads=2)) as live:
        yield live


def replay(live: Live, record: dict[str, Any]) -> Replay:
    with TaneClient(live.url) as client:
        return client.replay(record)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_record_holds_on_another_server(name: str, recorded: dict[str, dict[str, Any]], other_server: Live) -> None:
    """Cold there, warm here; the seed that was drawn and printed is the one that replays."""
    result = replay(other_server, recorded[name])

    assert (True, None, ()) == (result.equal, result.first_difference, result.reasons)
    assert "session_id" in result.dropped


def test_a_replay_leaves_the_session_alone(recorded: dict[str, dict[str, Any]], other_server: Live) -> None:
    replay(other_server, recorded["greedy"])

    with TaneClient(other_server.url) as client:
        assert [] == client.sessions()


def test_another_model_is_told_as_the_reason(recorded: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    with live_server(settings_for(write_model(tmp_path, seed=1))) as live:
        result = replay(live, recorded["seeded"])

    assert result.first_difference is not None
    assert (False, ("other_fingerprint",), "token_ids") == (
        result.equal,
        result.reasons,
        result.first_difference.field,
    )


def test_a_bit_of_a_log_probability_is_a_difference(recorded: dict[str, dict[str, Any]], other_server: Live) -> None:
    record = json.loads(json.dumps(recorded["greedy"]))
    entry = record["answer"]["logprobs"][5]
    entry["logprob"] *= 1 + 2**-52

    result = replay(other_server, record)

    assert result.first_difference is not None
    assert (False, "logprobs", 5, ("unexplained",)) == (
        result.equal,
        result.first_difference.field,
        result.first_difference.position,
        result.reasons,
    )


def test_what_the_command_line_records_holds_on_a_server(
    model: Path, other_server: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TANE_KV_CACHE_BYTES", str(4 << 20))
    file = str(tmp_path / "runs.jsonl")
    options = ["--max-new-tokens", "9", "--temperature", "1", "--logprobs", "2", "--record", file, "--append"]
    for prompt in ("The seed", "The rain"):
        CliRunner().invoke(main, ["generate", prompt, "--model", str(model), *options], catch_exceptions=False)

    result = CliRunner().invoke(main, ["replay", file, "--url", other_server.url], catch_exceptions=False)

    assert (0, "1: equal\n2: equal\n") == (result.exit_code, result.stdout)


def test_what_a_server_answered_holds_on_the_command_line(
    model: Path, recorded: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TANE_KV_CACHE_BYTES", str(4 << 20))
    file = tmp_path / "runs.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in recorded.values()), encoding="utf-8")

    result = CliRunner().invoke(main, ["replay", str(file), "--model", str(model)], catch_exceptions=False)

    expected = [f"{number}: equal · left out: session_id" for number in range(1, len(QUESTIONS) + 1)]
    assert 0 == result.exit_code
    assert expected == [line.removesuffix(", speculation") for line in result.stdout.splitlines()]


def test_the_token_that_a_server_changed_is_found(recorded: dict[str, dict[str, Any]], other_server: Live) -> None:
    record = json.loads(json.dumps(recorded["several samples"]))
    ids = record["answer"]["choices"][2]["token_ids"]
    assert len(ids) > 4, "the seed gives enough tokens"
    ids[4] += 1

    result = replay(other_server, record)

    assert result.first_difference is not None
    assert ("token_ids", 2, 4, ids[4], ids[4] - 1) == (
        result.first_difference.field,
        result.first_difference.index,
        result.first_difference.position,
        result.first_difference.expected,
        result.first_difference.found,
    )
