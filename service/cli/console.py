"""What every command shares: errors with their exit codes, progress on stderr, JSON on stdout.

Always: stdout carries results and nothing else; a bar is drawn only on a terminal.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

OnProgress = Callable[[int, int | None], None]
"""Called with how much is done, and of how much when that is known."""

CONTROL_PICTURES: dict[int, int] = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
"""For each control character but newline and tab, the character that pictures it."""


class Failure(click.ClickException):
    """The command could not do its work."""

    exit_code = 1


class Unusable(click.ClickException):
    """What the command was given cannot be used: an option, or a model file."""

    exit_code = 2


def messages() -> Console:
    """Where everything but results goes."""
    return Console(stderr=True, highlight=False)


def write_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def harmless(text: str) -> str:
    """The text with control characters made visible, so that it cannot command a terminal."""
    return text.translate(CONTROL_PICTURES)


@contextmanager
def bytes_bar(title: str) -> Iterator[OnProgress]:
    """A bar over bytes that comes with the first progress and goes when the block ends."""
    with _progress(DownloadColumn()) as progress:
        yield _reporter(progress, title)


@contextmanager
def count_bar(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar over things done one at a time."""
    with _progress(TextColumn("{task.completed:.0f}/{task.total:.0f}")) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)


def _progress(amount: TextColumn | DownloadColumn) -> Progress:
    console = messages()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        amount,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _reporter(progress: Progress, title: str) -> OnProgress:
    task = None

    def report(done: int, total: int | None) -> None:
        nonlocal task
        if task is None:
            task = progress.add_task(title, total=total)
        progress.update(task, completed=done, total=total)

    return report
