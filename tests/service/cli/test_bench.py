"""`tane bench` as a person meets it."""

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from service.cli.bench_options import targets_of
from service.cli.main import main
from tests.service.cli.completions_fake import CompletionsFake, CurrentFake, turn
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
    assert "At 1 stream: 2 × http 503: overloaded" in result.stdout


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


def compare(url: str, *arguments: str) -> Result:
    named = [f"--compare={name}={url}" for name in ("one", "two")]
    short = ["--concurrency", "1,2", "--requests", "3", "--output-tokens", "3", "--warmup", "0", "--rounds", "1"]
    return CliRunner().invoke(main, ["bench", *named, *short, *arguments])


def test_an_open_loop_has_a_row_for_each_rate(url: str) -> None:
    arguments = ["--rate", "200,400.5", "--requests", "3", "--warmup", "0"]

    result = CliRunner().invoke(main, ["bench", "--url", url, *arguments])

    assert 0 == result.exit_code
    assert "200 requests/s" in result.stdout
    assert "400.5 requests/s" in result.stdout


def test_goodput_is_a_share_and_a_rate(url: str) -> None:
    result = bench(url, "--goodput", "ttft:5000,itl:5000")

    assert 2 == result.stdout.count("100 %, ")
    assert "Goodput: requests with first token within 5000 ms, mean between tokens within 5000 ms." in result.stdout


def test_a_length_may_be_a_range(url: str) -> None:
    result = bench(url, "--output-tokens", "1:3")

    assert "1 to 3 tokens asked for" in result.stdout


def test_sessions_of_another_server_are_refused_with_the_reason(url: str) -> None:
    result = CliRunner().invoke(main, ["bench", "--url", url, "--sessions", "2"])

    assert 1 == result.exit_code
    assert f"{url} has no POST /generate with session_id, which sessions need" in result.stderr


def test_what_came_from_the_cache_is_told(server: CompletionsFake, url: str) -> None:
    server.paths["/info"] = {"name": "tane"}
    server.stream = turn(prompt_tokens=8, cached_tokens=6)

    result = CliRunner().invoke(main, ["bench", "--url", url, "--sessions", "2", "--turns", "2", "--warmup", "0"])

    assert "At 2 sessions: 75 % of the prompts' tokens came from the server's cache." in result.stdout


def test_where_requests_were_answered_is_told(server: CompletionsFake, url: str) -> None:
    server.paths["/info"] = {"name": "tane"}
    server.stream = turn(prompt_tokens=8, cached_tokens=6)
    server.headers = ((b"x-tane-replica", b"r1"),)

    result = CliRunner().invoke(main, ["bench", "--url", url, "--sessions", "2", "--turns", "3", "--warmup", "0"])

    assert "At 2 sessions: requests by replica: r1 6 (12 tokens)." in result.stdout
    assert "At 2 sessions: 4 of 4 requests came to the replica of the one that they belong with." in result.stdout


def test_compared_servers_stand_below_each_other_with_ratios_to_the_first(url: str) -> None:
    result = compare(url)

    assert 0 == result.exit_code
    rows = [
        line.split() for line in result.stdout.splitlines() if "stream" in line and ("one" in line or "two" in line)
    ]
    assert ["one", "two", "one", "two"] == [name for row in rows for name in row if name in ("one", "two")]
    assert all("(1.00)" in row for row in rows[::2])


def test_compared_json_holds_each_server_and_its_ratios(url: str) -> None:
    printed = json.loads(compare(url, "--json").stdout)

    rates = [printed["servers"][name]["levels"][0]["tokens_per_second"] for name in ("one", "two")]
    assert {"one": 1.0, "two": rates[1] / rates[0]} == printed["ratios"][0]["tokens_per_second"]


def test_a_plot_of_the_load_is_drawn(url: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    bench(url, "--plot", str(tmp_path / "load.svg"))

    text = (tmp_path / "load.svg").read_text(encoding="utf-8")
    assert all(label in text for label in ("time to first token, ms", "p99", "tokens per second", "streams"))


def test_a_plot_of_servers_names_them(url: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    compare(url, "--plot", str(tmp_path / "load.svg"))

    text = (tmp_path / "load.svg").read_text(encoding="utf-8")
    assert all(f">{name}<" in text for name in ("one", "two"))


@pytest.mark.parametrize("way", ["option", "environment"])
def test_the_key_is_sent_and_never_printed(server: CompletionsFake, url: str, way: str) -> None:
    given = ["--api-key", "s3cret"] if way == "option" else []
    environment = {"TANE_API_KEY": "s3cret"} if way == "environment" else {}
    server.scripts = deque([BAD])

    outputs = [
        CliRunner().invoke(main, ["bench", "--url", url, "--concurrency", "1", *given, *more], env=environment).output
        for more in ([], ["--json"], ["--help"])
    ]

    assert {"Bearer s3cret"} == server.keys
    assert not any("s3cret" in output for output in outputs)


def test_a_key_that_no_header_can_hold_is_refused_without_printing_it() -> None:
    result = CliRunner().invoke(main, ["bench", "--api-key", "s3crét"])

    assert 2 == result.exit_code
    assert "s3cr" not in result.output


def test_of_compared_servers_only_the_first_is_told_the_key() -> None:
    targets = targets_of(None, {"one": "http://a", "two": "http://b"}, None, "s3cret")

    assert ["s3cret", None] == [target.api_key for target in targets]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--rate", "1", "--concurrency", "1"], "requests either arrive by themselves"),
        (["--sessions", "1", "--concurrency", "1"], "each session is one stream"),
        (["--sessions", "1", "--rate", "1"], "when the last has ended"),
        (["--sessions", "1", "--requests", "9"], "each session makes --turns requests"),
        (["--sessions", "1", "--shared-prefix", "9"], "shares its own prompt"),
        (["--turns", "2"], "goes with --sessions"),
        (["--prefix-groups", "2"], "goes with --shared-prefix"),
        (["--shared-prefix", "64"], "must be less than --prompt-tokens"),
        (["--sessions", "1", "--prompt-tokens", "1"], "a turn changes a word after the first"),
        (["--compare", "a=http://x", "--compare", "b=http://y", "--url", "http://z"], "named by --compare"),
        (["--compare", "a=http://x"], "at least two servers"),
        (["--compare", "a=http://x", "--compare", "a=http://y"], "names one server twice"),
    ],
)
def test_options_that_do_not_go_together_are_refused_with_the_reason(arguments: list[str], reason: str) -> None:
    result = CliRunner().invoke(main, ["bench", *arguments])

    assert 2 == result.exit_code
    assert reason in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "localhost:8000"],
        ["--url", "http://"],
        ["--url", "http://[::1"],
        ["--url", "http://127.0.0.1:99999"],
        ["--url", "http://user:secret@127.0.0.1:1"],
        ["--concurrency", "0"],
        ["--concurrency", "a"],
        ["--concurrency", "8", "--requests", "4"],
        ["--output-tokens", "0"],
        ["--timeout", "0"],
        ["--timeout", "nan"],
        ["--timeout", "inf"],
        ["--prompt-tokens", "9:3"],
        ["--prompt-tokens", "a:b"],
        ["--rate", "0"],
        ["--rate", "nan"],
        ["--rate", "inf"],
        ["--goodput", "ttft"],
        ["--goodput", "ttft:0"],
        ["--goodput", "ttft:1,ttft:2"],
        ["--goodput", "speed:3"],
        ["--compare", "http://127.0.0.1"],
        ["--compare", "a=localhost"],
        ["--sessions", "0"],
    ],
)
def test_bad_usage_exits_with_2_and_names_the_option(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["bench", *arguments])

    assert 2 == result.exit_code
    assert any(argument in result.stderr for argument in arguments if argument.startswith("--"))
