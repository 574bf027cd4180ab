"""Bars stay off whatever is no terminal, and text cannot command one."""

import io
from collections.abc import Callable

import click
import pytest
from rich.console import Console
from rich.table import Table

from service.cli import console
from service.cli.console import Failure, Unusable, count_bar, for_terminal, harmless, loading_bar, messages, results


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is drawn on a terminal."""
    drawn = io.StringIO()
    screen = Console(file=drawn, force_terminal=True, width=100)
    monkeypatch.setattr(console, "messages", lambda: screen)
    return drawn


def test_control_characters_become_pictures() -> None:
    assert "a␛[31m␀␡\ufffd" == harmless("a\x1b[31m\0\x7f\x9b")


def test_newlines_tabs_and_other_scripts_stay() -> None:
    assert "a\n\té種🌱" == harmless("a\n\té種🌱")


def test_a_closed_standard_output_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)

    assert "a\x1b" == for_terminal("a\x1b")
    results().print("nobody reads this")


@pytest.mark.parametrize("write_to", [results, messages])
def test_nothing_that_is_printed_is_markup(write_to: Callable[[], Console], capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("token")
    table.add_row("x[i] [/INST] :seedling:")

    write_to().print(table)

    assert "x[i] [/INST] :seedling:" in "".join(capsys.readouterr())


@pytest.mark.parametrize("problem", [Failure, Unusable])
def test_a_problem_cannot_command_a_terminal(
    problem: type[click.ClickException], capsys: pytest.CaptureFixture[str]
) -> None:
    problem("there is no \x1b[31m.gguf").show()

    assert "Error: there is no ␛[31m.gguf\n" == capsys.readouterr().err


def test_nothing_is_drawn_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with loading_bar("loading") as on_progress:
        on_progress(1, 2)
    with count_bar("counting", 2) as on_done:
        on_done()

    assert ("", "") == tuple(capfd.readouterr())


def test_a_terminal_sees_bytes_once_their_number_is_known(terminal: io.StringIO) -> None:
    with loading_bar("loading the model") as on_progress:
        on_progress(1000, 2000)

    assert "loading the model" in terminal.getvalue()
    assert "1.0/2.0 kB" in terminal.getvalue()


def test_work_without_a_known_size_shows_no_numbers(terminal: io.StringIO) -> None:
    with loading_bar("loading the model"):
        pass

    assert "bytes" not in terminal.getvalue()


def test_a_terminal_sees_how_many_are_done(terminal: io.StringIO) -> None:
    with count_bar("requests", 3) as on_done:
        on_done()
        on_done()

    assert "2/3" in terminal.getvalue()
