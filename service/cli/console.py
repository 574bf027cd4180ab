"""What every command shares: errors with their exit codes, progress on stderr, JSON on stdout.

Always: stdout carries results and nothing else; a bar is drawn only on a terminal.
"""

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

OnProgress = Callable[[int, int], None]
"""Told how much is done, and of how much."""

CONTROL_PICTURES: dict[int, int] = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
"""For each control character but newline and tab, the character that pictures it."""


PIPED_WIDTH = 120


class Told(click.ClickException):
    """A problem in one line, which may hold names from files and from the command line."""

    def format_message(self) -> str:
        return harmless(self.message)


class Failure(Told):
    """The command could not do its work."""

    exit_code = 1


class Unusable(Told):
    """What the command was given cannot be used: an option, or a model file."""

    exit_code = 2


def is_terminal() -> bool:
    """Whether standard output is a terminal; a shell may also have closed it."""
    return sys.stdout is not None and sys.stdout.isatty()


def write_any_character() -> None:
    """Escape what the encoding of standard output or error cannot hold, instead of failing at it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def messages() -> Console:
    """Where everything but results goes. What is printed is text, never rich's markup."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def results() -> Console:
    """Standard output for tables; as wide as the terminal, or of a fixed width where there is none; no markup."""
    return Console(width=None if is_terminal() else PIPED_WIDTH, highlight=False, markup=False, emoji=False)


def write_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def harmless(text: str) -> str:
    """The text with control characters made visible, so that it cannot command a terminal."""
    return text.translate(CONTROL_PICTURES)


def for_terminal(text: str) -> str:
    """The text, harmless when standard output is a terminal; exactly as it is when that is a file or a pipe."""
    return harmless(text) if is_terminal() else text


@contextmanager
def loading_bar(title: str) -> Iterator[OnProgress]:
    """A sign that work goes on, which becomes a bar over bytes once the work tells of its progress."""
    with _progress(*map(OnceKnown, (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()))) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, description="pulling the model", completed=done, total=total)


@contextmanager
def count_bar(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar over things done one at a time."""
    with _progress(MofNCompleteColumn(), TimeRemainingColumn()) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)


class OnceKnown(ProgressColumn):
    """A column that stays empty while nobody knows how much there is to do."""

    def __init__(self, column: ProgressColumn) -> None:
        super().__init__()
        self._column = column

    def render(self, task: Task) -> RenderableType:
        return "" if task.total is None else self._column.render(task)


def _progress(*columns: ProgressColumn) -> Progress:
    console = messages()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
