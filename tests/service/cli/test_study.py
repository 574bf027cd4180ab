"""`tane study` prints the chapters' figures digit for digit, as tables and as JSON, and draws them."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from service.cli.main import main
from service.cli.study import study
from tests.source_files import ROOT

QUICK: dict[str, tuple[str, ...]] = {
    "temperature": (),
    "truncation": (),
    "sampling": ("--draws", "300"),
    "beam": ("--length", "3"),
    "kv-cost": (),
    "uniform-error": (),
    "obs-correlation": ("--seeds", "2", "--counts", "8"),
}
"""Every study, with what makes it quick."""


def run(name: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["study", name, *arguments])


def cells(name: str, *arguments: str) -> list[list[str]]:
    """The rows of all tables that it prints."""
    result = run(name, *arguments)
    assert 0 == result.exit_code, result.output
    lines = [line for line in result.stdout.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def figures(name: str, *arguments: str) -> Any:
    result = run(name, *arguments, "--json")
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


def test_every_study_has_its_command() -> None:
    assert list(QUICK) == list(study.commands)


@pytest.mark.parametrize("name", QUICK)
def test_every_study_has_its_figure_and_its_command_in_the_documents(name: str) -> None:
    page = (ROOT / "docs/studies.md").read_text(encoding="utf-8")

    assert f"](figures/study-{name}.svg)" in page
    assert f"--plot docs/figures/study-{name}.svg`" in page
    assert (ROOT / f"docs/figures/study-{name}.svg").is_file()


@pytest.mark.parametrize("name", QUICK)
def test_every_study_explains_itself_with_examples(name: str) -> None:
    assert f"Examples:\n    tane study {name}" in run(name, "--help").stdout


@pytest.mark.parametrize(("name", "arguments"), QUICK.items())
def test_every_study_prints_json_and_nothing_else(name: str, arguments: tuple[str, ...]) -> None:
    assert isinstance(figures(name, *arguments), dict)


@pytest.mark.parametrize(("name", "arguments"), QUICK.items())
def test_every_study_draws(name: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.svg"

    result = run(name, *arguments, "--plot", str(path))

    assert 0 == result.exit_code, result.output
    assert "</svg>" in path.read_text(encoding="utf-8")


def test_a_plot_may_be_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.png"

    run("temperature", "--plot", str(path))

    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("temperature", ("--temperatures", "0"), "0.0 is not in the range x>0"),
        ("temperature", ("--temperatures", "1,nan"), "must be finite numbers separated by commas"),
        ("temperature", ("--temperatures", "1,,2"), "'' is not a valid float"),
        ("temperature", ("--logits", "1", "--prompt", "a"), "--logits is a row of its own"),
        ("temperature", ("--plot", "a.pdf"), ".png or .svg is drawn"),
        ("truncation", ("--top-p", "0.5,1.5"), "1.5 is not in the range 0<x<=1"),
        ("truncation", ("--top-k", "0"), "0 is not in the range x>=1"),
        ("sampling", ("--draws", "0"), "0 is not in the range"),
        ("beam", ("--widths", "17"), "17 is not in the range 1<=x<=16"),
        ("beam", ("--vocabulary", "10", "--length", "7"), "make 10,000,000 sequences, and at most 1,000,000"),
        ("beam", ("--prompt", "a", "--vocabulary", "3", "--seed", "1"), "leave out --vocabulary, --seed, which"),
        ("truncation", ("--temperature", "0.5"), "leave out --temperature, which would change nothing"),
        ("kv-cost", ("--lengths", "0"), "0 is not in the range x>=1"),
        ("kv-cost", ("--model", "missing.gguf"), "missing.gguf"),
        ("uniform-error", ("--bits", "4,9"), "9 is not in the range 1<=x<=8"),
        ("obs-correlation", ("--shared", "2"), "2.0 is not in the range 0<=x<=1"),
        ("obs-correlation", ("--counts", "65"), "--counts has 65, and a row has --width 64 weights"),
    ],
)
def test_a_bad_option_is_refused(name: str, arguments: tuple[str, ...], message: str) -> None:
    result = run(name, *arguments)

    assert 2 == result.exit_code
    assert message in " ".join(result.output.split())


def test_the_table_of_temperatures() -> None:
    rows = {row[0]: row[1:5] for row in cells("temperature")}

    assert {
        "0.1": ["1.0000", "0.0000", "0.0000", "0.0005"],
        "0.5": ["0.8668", "0.1173", "0.0159", "0.4411"],
        "1": ["0.6652", "0.2447", "0.0900", "0.8324"],
        "2": ["0.5065", "0.3072", "0.1863", "1.0202"],
        "100": ["0.3367", "0.3333", "0.3300", "1.0986"],
    } == rows


def test_the_limit_of_the_entropy_is_told() -> None:
    assert "log 3 = 1.0986" in run("temperature").stdout


def test_logits_may_be_given() -> None:
    (row,) = cells("temperature", "--logits", "1,0", "--temperatures", "0.45512")

    assert ["0.45512", "0.9000", "0.1000", "0.3251"] == row[:4]


def test_the_table_of_truncations() -> None:
    rows = {(row[0], row[1]): row[2:] for row in cells("truncation")}

    assert ["2", "0, 1", "0.7143, 0.2857", "0.7000", "0.3000", "0.4000"] == rows["example 5.6", "ρ = 0.6"]
    assert ["2", "0, 1", "0.7143, 0.2857", "0.7000", "0.3000", ""] == rows["example 5.6", "k = 2"]
    assert ["3", "0, 1, 2", "0.6183, 0.3310, 0.0508", "0.9765", "0.0235", "0.0500"] == rows["section 6", "ρ = 0.95"]
    assert ["3", "0, 1, 2", "0.4706, 0.3529, 0.1765", "0.8500", "0.1500", "0.2000"] == rows["exercise 10.2", "ρ = 0.8"]


def test_thresholds_may_be_given_for_all_distributions() -> None:
    rows = cells("truncation", "--top-k", "1")

    assert 6 == len(rows)
    assert {"k = 1"} == {row[1] for row in rows}


def test_the_table_of_draws() -> None:
    rows = cells("sampling", "--draws", "300")

    assert [["0.6038", "0.6183"], ["0.3232", "0.3310"], ["0.0496", "0.0508"]] == [row[1:3] for row in rows[:3]]
    assert [["0.0182", "0.0000"], ["0.0041", "0.0000"], ["0.0012", "0.0000"]] == [row[1:3] for row in rows[3:6]]
    assert ["100", "300"] == [row[0] for row in rows[6:]]


def test_the_distance_of_the_truncated_distribution_is_told() -> None:
    told = run("sampling", "--draws", "1").stdout

    assert "S = {0, 1, 2}, p(S) = 0.9765; TV(p, q) = 0.0235, 1 - p(S) = 0.0235." in told


def test_the_table_of_beams() -> None:
    assert [
        ["greedy", "aa", "0.33", "-1.1087", "4", "4"],
        ["B = 1", "aa", "0.33", "-1.1087", "4", "4"],
        ["B = 2", "ba", "0.36", "-1.0217", "6", "8"],
        ["trying all", "ba", "0.36", "-1.0217", "4", ""],
        ["greedy", "aa", "0.16", "-1.8326", "6", "6"],
        ["B = 1", "aa", "0.16", "-1.8326", "6", "6"],
        ["B = 2", "aa", "0.16", "-1.8326", "9", "12"],
        ["B = 3", "ca", "0.225", "-1.4917", "12", "18"],
        ["trying all", "ca", "0.225", "-1.4917", "9", ""],
    ] == cells("beam", "--length", "2")[:9]


def test_a_wider_beam_may_find_less() -> None:
    """The random model's default seed shows it."""
    (*_, random) = figures("beam", "--widths", "2,3")["models"]
    _, two, three = random["found"]

    assert three["logprob"] < two["logprob"] < random["best_logprob"]


def test_the_table_of_multiplications() -> None:
    rows = {(row[0].partition(":")[0], row[1]): row[2:] for row in cells("kv-cost")[:6]}

    assert ["201,216", "910,848", "4.53"] == rows["section 7", "8"]
    assert ["1,839,104", "62,566,400", "34.02"] == rows["section 7", "64"]
    assert "13,001,000,000" == rows["example 7.4", "1,000"][0]


def test_the_table_of_last_positions() -> None:
    rows = {(row[0].partition(":")[0], row[1]): row[2:] for row in cells("kv-cost")[6:]}

    assert ["8,650,752", "18 %", "18,874,368", "75,497,472"] == rows["exercise 10.3", "1,024"]


def test_the_tables_of_uniform_errors() -> None:
    rows = {row[0]: " ".join(row[2:]) for row in cells("uniform-error")}

    assert "0.00137 0.00069 0.00069 0.02211 0.03810 0.02200 0.02166 0.28016" == rows["8"]
    assert "0.02337 0.01168 0.01169 0.37493 0.64773 0.37397 0.41510 4.76279" == rows["4"]
    assert "0.11687 0.05842 0.05843 1.90140 3.23866 1.86984 2.34504 23.81393" == rows["2"]
    assert "2.21452 5 0.0000" == rows["max |W|"]
    assert "0.90588 16 0.8247" == rows["max |W| without the outlier"]


def test_the_table_of_pruning_for_one_draw() -> None:
    rows = cells("obs-correlation", "--seed", "4", "--seeds", "1", "--counts", "32")

    assert [
        ["0", "0.344", "0.120", "0.114"],
        ["0.3", "0.338", "0.189", "0.110"],
        ["0.7", "0.280", "0.545", "0.083"],
        ["0.9", "0.221", "0.241", "0.034"],
    ] == [[row[0], *row[2:5]] for row in rows]
