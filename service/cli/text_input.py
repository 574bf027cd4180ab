"""Where a command takes its text from: the argument, or standard input.

Always: text is UTF-8. One line end at the very end of standard input is dropped, since tools such as echo add it.
"""

import sys

import click


def read_text(argument: str | None, name: str) -> str:
    """The argument itself; standard input for "-", and for no argument when something is piped in."""
    if argument is not None and argument != "-":
        return argument
    if argument is None and sys.stdin.isatty():
        raise click.UsageError(f"{name} is missing; give it, or pipe it in")
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"standard input is not UTF-8 at byte {error.start}") from error
    return text.removesuffix("\n").removesuffix("\r")
