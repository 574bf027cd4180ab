"""Servers are measured in turn, and a ratio above one always means that Tane is ahead."""

import pytest
from click.testing import CliRunner

from tests.bench.peers import Measure, Server, main, measure, ratio, table

SERVERS = {"Tane": Server("http://ours"), "other": Server("http://theirs")}


def test_the_order_of_the_servers_turns_round() -> None:
    asked: list[str] = []

    def take(server: Server, seed: int) -> float:
        asked.append(server.url)
        return 1.0

    measure(SERVERS, [Measure("rate", True, take)], 2)

    assert ["http://ours", "http://theirs", "http://theirs", "http://ours"] == asked


def test_all_servers_of_one_round_get_the_same_prompts_and_no_round_repeats_them() -> None:
    seeds: dict[str, list[int]] = {server.url: [] for server in SERVERS.values()}

    def take(server: Server, seed: int) -> float:
        seeds[server.url].append(seed)
        return 1.0

    measure(SERVERS, [Measure("a", True, take), Measure("b", True, take)], 3)

    assert seeds["http://ours"] == seeds["http://theirs"]
    assert 6 == len(set(seeds["http://ours"]))


def test_the_middle_of_the_rounds_counts() -> None:
    values = iter([1.0, 10.0, 100.0])

    found = measure({"Tane": Server("x")}, [Measure("rate", True, lambda server, seed: next(values))], 3)

    assert {"rate": {"Tane": 10.0}} == found


@pytest.mark.parametrize(("is_rate", "expected"), [(True, 2.0), (False, 0.5)])
def test_a_ratio_says_how_many_times_as_good_tane_is(is_rate: bool, expected: float) -> None:
    wanted = Measure("m", is_rate, lambda server, seed: 0.0)

    assert expected == ratio(wanted, {"Tane": 200.0, "other": 100.0}, "other")


def test_the_table_has_a_column_and_a_ratio_for_each_peer() -> None:
    figures = {
        "peers": ["a", "b"],
        "rounds": 5,
        "command": "command",
        "measures": [
            {
                "name": "decode",
                "medians": {"Tane": 200.4, "Tane, guessing": 300.4, "a": 100.2, "b": 50.1},
                "ratios": {"a": 2.0, "b": 4.0},
            }
        ],
    }

    assert "| decode | 200 | 300 | 100 | 2.00× | 50 | 4.00× |" in table(figures)


def test_a_peer_needs_a_name_and_an_address() -> None:
    result = CliRunner().invoke(main, ["--peer", "http://127.0.0.1:1"])

    assert 2 == result.exit_code
    assert "NAME=URL" in result.output
