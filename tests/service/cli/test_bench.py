"""`tane bench` as a person meets it."""

import json
from collections import deque
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from service.cli.main import main
from tests.service.cli.completions_fake import CompletionsFake, CurrentFake
from tests.serving import serving

BAD = (503, (b'{"error": {"code": "overloaded"}}',))


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[CurrentFake, str]]:
    current = CurrentFake()
    with serving(current) as url:
        yield current, url


@pytest.fixture
def server(running: tuple[CurrentFake, str]) -> CompletionsFake:
    running[0].fake = CompletionsFake(paths={"/v1/models": {"data": [{"id": "tiny[1]"}]}})
    return running[0].fake


@pytest.fixture
def url(running: tuple[CurrentFake, str], server: CompletionsFake) -> str:
    return running[1]


def bench(url: str, *arguments: str) -> Result:
    short = ["--concurrency", "1,2", "--requests", "3", "--output-tokens", "3", "--warmup", "0"]
    return CliRunner().invoke(main, ["bench", "--url", url, *short, *arguments])


def test_the_table_has_a_row_for_each_level(url: str) -> None:
    result = bench(url)

    assert 0 == result.exit_code
    assert 2 == result.stdout.count("3/3")
    assert "model tiny[1]" in result.stdout


def test_the_notes_say_what_was_counted_and_the_seed(url: str) -> None:
    result = bench(url, "--seed", "12")

    assert "Prompts of 7 tokens, 3 tokens asked for, seed 12." in result.stdout
    assert "Tokens counted from usage." in result.stdout


def test_short_answers_are_pointed_out(url: str) -> None:
    assert "6 streams ended before all tokens that were asked for." in bench(url, "--output-tokens", "9").stdout


def test_errors_are_listed_by_kind(server: CompletionsFake, url: str) -> None:
    server.scripts = deque([BAD, BAD])

    result = bench(url)

    assert 0 == result.exit_code
    assert "At 1 streams: 2 × http 503: overloaded" in result.stdout


def test_json_holds_plan_and_result(url: str) -> None:
    printed = json.loads(bench(url, "--json", "--seed", "12").stdout)

    assert 12 == printed["plan"]["seed"]
    assert [1, 2] == [level["value"] for level in printed["result"]["levels"]]
    assert {"mean", "p50", "p95", "p99", "max"} == printed["result"]["levels"][0]["time_to_first_token_s"].keys()


def test_a_level_without_success_fails(server: CompletionsFake, url: str) -> None:
    server.scripts = deque([BAD] * 3)

    result = bench(url)

    assert 1 == result.exit_code
    assert "no successful request" in result.stderr


def test_nothing_but_the_result_reaches_stdout(url: str) -> None:
    assert "" == bench(url, "--json").stderr


def test_an_unreachable_server_fails_in_one_line() -> None:
    result = CliRunner().invoke(main, ["bench", "--url", "http://127.0.0.1:1"])

    assert 1 == result.exit_code
    assert ["Error: http://127.0.0.1:1 does not answer: All connection attempts failed"] == result.stderr.splitlines()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "localhost:8000"],
        ["--url", "http://"],
        ["--url", "http://[::1"],
        ["--url", "http://127.0.0.1:99999"],
        ["--concurrency", "0"],
        ["--concurrency", "a"],
        ["--concurrency", "8", "--requests", "4"],
        ["--output-tokens", "0"],
        ["--timeout", "0"],
    ],
)
def test_bad_usage_exits_with_2_and_names_the_option(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["bench", *arguments])

    assert 2 == result.exit_code
    assert any(argument in result.stderr for argument in arguments if argument.startswith("--"))
