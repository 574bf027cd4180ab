"""`tane replay` as a person meets it: on a server or here, what is printed, and what the exit code says."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from service.app import create_app
from service.cli.main import main
from service.keys import Keys
from tests.fake_runtime import MODEL, FakeRuntime, Script, failing, make_service, plain
from tests.service.cli.fake_generator import FakeGenerator
from tests.serving import serving

EQUAL = "equal · the same bits were not promised"
"""What is said of a record that holds, where its engine promised nothing."""

SUNRISE = plain("sun", "rise")


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGenerator.script, FakeGenerator.settings = SUNRISE, None
    monkeypatch.setattr("service.local_generator.LocalGenerator", FakeGenerator)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def record(path: Path, *arguments: str) -> None:
    result = invoke("generate", "hi", "--record", str(path), "--append", *arguments)
    assert 0 == result.exit_code, result.output


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two records."""
    path = tmp_path / "runs.jsonl"
    record(path, "--seed", "1", "--logprobs", "1")
    record(path, "--num-return", "2")
    return path


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[FakeRuntime, str]]:
    runtime = FakeRuntime()
    with serving(create_app(make_service(runtime))) as url:
        yield runtime, url


@pytest.fixture(params=["here", "on a server"])
def replay(request: pytest.FixtureRequest, server: tuple[FakeRuntime, str]) -> Any:
    """Replay a file where the model answers by a script."""

    def run(path: Path, *arguments: str, script: Script = SUNRISE) -> Result:
        FakeGenerator.script = server[0].script = script
        where = [] if request.param == "here" else ["--url", server[1]]
        return invoke("replay", str(path), *where, *arguments)

    return run


def test_equal_answers_are_success(replay: Any, file: Path) -> None:
    result = replay(file)

    assert (0, f"1: {EQUAL}\n2: {EQUAL}\n") == (result.exit_code, result.stdout)


def test_a_difference_is_told_with_its_place(replay: Any, file: Path) -> None:
    result = replay(file, script=plain("sunset!"))

    expected, found = MODEL.tokenizer.encode("rs")
    place = f"in token_ids of choice 0 at 3: {expected} was recorded, now {found}"
    why = "the same bits were not promised"
    assert 1 == result.exit_code
    assert f"1: different {place} · {why}\n2: different {place} · {why}\n" == result.stdout


def test_json_is_a_list_of_what_the_route_answers(replay: Any, file: Path) -> None:
    first, second = json.loads(replay(file, "--json", script=plain("sunset!")).stdout)

    fields = {"record", "equal", "first_difference", "reasons", "notes", "dropped", "refusal", "answer"}
    assert fields == first.keys() == second.keys()
    assert (1, False, "sunset!") == (first["record"], first["equal"], first["answer"]["text"])


def test_trouble_outweighs_a_difference_and_hides_none(replay: Any, file: Path) -> None:
    file.write_text('{"request":{}}\n' + file.read_text())

    result = replay(file, script=plain("moon"))

    assert 2 == result.exit_code
    first, *others = result.stdout.splitlines()
    assert "1: error: answer is needed" == first
    assert ["2: different", "3: different"] == [line[:12] for line in others]


def test_a_bad_field_of_a_record_is_named(replay: Any, file: Path) -> None:
    file.write_text(file.read_text().replace('"seed":1', '"seed":1,"temperature":9', 1))

    result = replay(file)

    assert 2 == result.exit_code
    assert f"1: error: request.temperature must be: number in [0, 2]\n2: {EQUAL}\n" == result.stdout


def test_a_run_that_fails_is_trouble(replay: Any, file: Path) -> None:
    result = replay(file, script=failing("numerical_error"))

    assert 2 == result.exit_code
    assert "1: error: the model gave a value that is not a number\n" == result.stdout.splitlines(keepends=True)[0]


def test_what_was_left_out_is_told(replay: Any, file: Path) -> None:
    file.write_text(file.read_text().replace('"seed":1', '"seed":1,"session_id":"s"', 1))

    assert f"1: {EQUAL} · left out: session_id" == replay(file).stdout.splitlines()[0]


def test_a_request_that_is_refused_differs_and_says_why(replay: Any, file: Path) -> None:
    text = file.read_text().replace('"fingerprint":"fp"', '"fingerprint":"old"', 1)
    text = text.replace('"max_new_tokens":62', '"max_new_tokens":100', 1)
    file.write_text(text.replace('"seed":1', '"seed":1,"max_new_tokens":100', 1))

    result = replay(file)

    line = (
        "1: different · max_new_tokens must be in [1, 64] · another fingerprint · the request is not accepted"
        " · the same bits were not promised"
    )
    assert (1, line) == (result.exit_code, result.stdout.splitlines()[0])


def test_json_tells_an_error_in_its_records_place(replay: Any, file: Path) -> None:
    file.write_text("{\n" + file.read_text())

    first, *others = json.loads(replay(file, "--json").stdout)

    error = {"code": "invalid_json", "message": "the record is not valid JSON", "param": None}
    assert {"record": 1, "error": error} == first
    assert [2, 3] == [other["record"] for other in others]


def test_settings_choose_the_model_here(file: Path) -> None:
    invoke("replay", str(file), "--model", "some.gguf", "--engine", "torch")

    assert FakeGenerator.settings is not None
    assert ("some.gguf", "torch") == (FakeGenerator.settings.model, FakeGenerator.settings.engine)


def test_a_server_is_asked_without_loading_a_model(file: Path, server: tuple[FakeRuntime, str]) -> None:
    FakeGenerator.settings = None

    invoke("replay", str(file), "--url", server[1])

    assert FakeGenerator.settings is None


def test_a_server_that_asks_for_a_key_gets_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANE_API_KEY", "secret")
    with serving(create_app(make_service(FakeRuntime(SUNRISE), keys=Keys([b"secret"])))) as url:
        result = invoke("replay", str(file), "--url", url)

    assert 0 == result.exit_code


def test_a_key_without_a_server_is_refused(file: Path) -> None:
    result = invoke("replay", str(file), "--api-key", "secret")

    assert "leave out --api-key, which would change nothing: no server is asked without --url" in result.stderr


@pytest.mark.parametrize("option", [("--model", "m.gguf"), ("--engine", "torch"), ("--threads", "2")])
def test_a_server_has_its_own_settings(file: Path, option: tuple[str, str]) -> None:
    result = invoke("replay", str(file), "--url", "http://127.0.0.1:1", *option)

    assert 2 == result.exit_code
    assert "--url asks a server, which has its own --model, --engine and --threads" in result.stderr


def test_a_server_that_does_not_answer_is_told_once(file: Path) -> None:
    result = invoke("replay", str(file), "--url", "http://127.0.0.1:1")

    assert (2, "", "Error: no server answers at http://127.0.0.1:1\n") == (
        result.exit_code,
        result.stdout,
        result.stderr,
    )


def test_a_file_that_is_not_there_is_trouble() -> None:
    result = invoke("replay", "missing.jsonl")

    assert (2, "Error: missing.jsonl cannot be read: No such file or directory\n") == (result.exit_code, result.stderr)


def test_a_recorded_request_holds_what_was_asked_and_the_seed_that_was_drawn(tmp_path: Path) -> None:
    record(tmp_path / "r", "--temperature", "0.5")

    written = json.loads((tmp_path / "r").read_text())

    assert {"prompt": "hi", "temperature": 0.5, "seed": written["answer"]["seed"]} == written["request"]


def test_recording_changes_nothing_of_what_is_printed(tmp_path: Path) -> None:
    result = invoke("generate", "hi", "--record", str(tmp_path / "r"))

    assert "sunrise\n" == result.stdout


def test_a_file_that_exists_stops_the_command_before_the_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("precious")

    result = invoke("generate", "hi", "--record", str(tmp_path / "r"))

    assert (2, None) == (result.exit_code, FakeGenerator.settings)
    assert "exists; name another file, or add to it with --append" in result.stderr


def test_to_append_needs_a_file() -> None:
    result = invoke("generate", "hi", "--append")

    assert 2 == result.exit_code
    assert "--append needs --record" in result.stderr
