"""Where a command takes its text from: the argument, or standard input.

Always: text is UTF-8. One line end at the very end of standard input is dropped, since tools such as echo add it.
"""

import re
import sys

import click

LAST_LINE_END = re.compile(r"\r?\n\Z")


def read_text(argument: str | None, name: str) -> str:
    """The argument itself; standard input for "-", and for no argument when something is piped in."""
    if argument is not None and argument != "-":
        return _checked(argument, name)
    if argument is None and sys.stdin.isatty():
        raise click.UsageError(f"{name} is missing; give it, or pipe it in")
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"standard input is not UTF-8 at byte {error.start}") from error
    return LAST_LINE_END.sub("", text)


def _checked(argument: str, name: str) -> str:
    """Bytes of the command line that are no UTF-8 arrive as lone surrogates."""
    try:
        argument.encode("utf-8")
    except UnicodeEncodeError as error:
        raise click.UsageError(f"{name} is not UTF-8 at character {error.start}") from error
    return argument
