"""Where figures are kept: JSON files below docs/figures, and tables in docs/engine.md between two marks.

Always: a table is made from the JSON alone, so that a test can prove that both say the same.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from service.cli.console import write_json
from tests.source_files import ROOT

Command = TypeVar("Command", bound=Callable[..., Any])

FIGURES = ROOT / "docs" / "figures"
PAGE = ROOT / "docs" / "engine.md"


def output_options(command: Command) -> Command:
    """Add what every measuring command offers: --json and --record."""
    command = click.option("--record", "records", is_flag=True, help="Keep what is found in docs/.")(command)
    return click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")(command)


def deliver(
    name: str,
    figures: dict[str, Any],
    table: str,
    *,
    as_json: bool,
    records: bool,
    page: Path = PAGE,
    folder: Path = FIGURES,
) -> None:
    """Print what was found, and keep it when asked to."""
    if records:
        record(name, figures, table, page=page, folder=folder)
    if as_json:
        write_json(figures)
    else:
        click.echo(table)


def record(name: str, figures: dict[str, Any], table: str, *, page: Path = PAGE, folder: Path = FIGURES) -> None:
    """Write the figures, and put the table where the page marks its place. Raises ValueError when it marks none."""
    text = with_table(page.read_text(encoding="utf-8"), name, table)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(figures, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    page.write_text(text, encoding="utf-8")


def recorded(name: str, *, folder: Path = FIGURES) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return figures


def with_table(page: str, name: str, table: str) -> str:
    """The page with what stands between the marks of this name replaced."""
    begin, end = _marks(name)
    text, count = re.subn(
        f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: f"{begin}\n{table}\n{end}", page, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(f"the page must have the marks {begin} and {end} once, and has them {count} times")
    return text


def table_of(page: str, name: str) -> str:
    """What stands between the marks of this name."""
    begin, end = _marks(name)
    return page.partition(f"{begin}\n")[2].partition(f"\n{end}")[0]


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    rule = ["---", *["---:"] * (len(headings) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rule, *rows))


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- figures: {name} -->", f"<!-- end of figures: {name} -->"
