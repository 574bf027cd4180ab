"""Figures are kept as JSON, and as tables in the page that say the same."""

import importlib
import re
from pathlib import Path

import pytest

from tests.bench.record import FIGURES, PAGE, markdown_table, record, recorded, table_of, with_table
from tests.source_files import ROOT

MARKED = "before\n<!-- figures: speed -->\nold\n<!-- end of figures: speed -->\nafter\n"
SCRIPTS = {
    "bandwidth": "bandwidth",
    "beams": "beams",
    "bits": "bits",
    "constraints": "constraints",
    "drafts": "drafts",
    "footprint": "footprint",
    "http_share": "http_share",
    "llama_export": "llama_export",
    "llama_logprobs": "llama_logprobs",
    "neighbour": "neighbour",
    "peers": "peers",
    "perplexity": "perplexity",
    "scaling": "scaling",
    "speculation": "speculation",
    "synthetic": "synthetic_model",
}
"""Which script makes the figures of each name."""
MODULES = {name: f"tests.bench.{script}" for name, script in SCRIPTS.items()} | {"faults": "tests.faults.__main__"}

PAGES = (PAGE, ROOT / "docs" / "operating.md")
SHOWN = {
    name: page for page in PAGES for name in re.findall(r"<!-- figures: (\w+) -->", page.read_text(encoding="utf-8"))
}
"""The names whose tables the pages show, and on which page."""


def test_a_table_takes_the_place_of_the_one_before() -> None:
    page = with_table(MARKED, "speed", r"new \1")

    assert (r"new \1", "before\n", "after\n") == (table_of(page, "speed"), page[:7], page[-6:])


@pytest.mark.parametrize("page", ["", MARKED * 2])
def test_a_page_that_does_not_mark_one_place_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="once"):
        with_table(page, "speed", "new")


def test_figures_and_table_are_kept_together(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(MARKED)

    record("speed", {"rate": 2.5}, "| 2.5 |", page=page, folder=tmp_path / "figures")

    assert ({"rate": 2.5}, "| 2.5 |") == (
        recorded("speed", folder=tmp_path / "figures"),
        table_of(page.read_text(), "speed"),
    )


def test_numbers_stand_to_the_right() -> None:
    assert "| a | b |\n| --- | ---: |\n| x | 1 |" == markdown_table(("a", "b"), [("x", "1")])


@pytest.mark.parametrize("name", SHOWN)
def test_the_page_says_what_the_figures_say(name: str) -> None:
    script = importlib.import_module(MODULES[name])

    assert script.table(recorded(name)) == table_of(SHOWN[name].read_text(encoding="utf-8"), name)


def test_every_recorded_figure_is_shown_and_has_a_script() -> None:
    assert {path.stem for path in FIGURES.glob("*.json")} == set(SHOWN) <= MODULES.keys()


@pytest.mark.parametrize("name", SHOWN)
def test_recorded_figures_name_the_command_that_remakes_them(name: str) -> None:
    command = recorded(name)["command"]

    assert command.startswith(f"python -m {MODULES[name].removesuffix('.__main__')} ")
