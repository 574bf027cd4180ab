"""Command-line options made from the fields of `Settings`, and other shared option types.

Always: names, help and defaults of settings come from `service.settings`, which also judges their values.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from service.settings import Option, Settings

Command = TypeVar("Command", bound=Callable[..., Any])


def settings_options(*names: str) -> Callable[[Command], Command]:
    """Add the options of these settings, or of all of them, to a command. They arrive as text or None."""
    options = Settings.options()

    def add(command: Command) -> Command:
        for name in reversed(names or tuple(options)):
            command = _click_option(options[name])(command)
        return command

    return add


def _click_option(option: Option) -> Callable[[Command], Command]:
    default = "" if option.default is None else f"  [default: {option.default}]"
    return click.option(option.flag, option.name, metavar=option.metavar, help=option.description + default)


def integer_list(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    """A click callback: whole numbers of at least 1, separated by commas."""
    try:
        numbers = tuple(int(part) for part in value.split(","))
    except ValueError:
        numbers = (0,)
    if min(numbers) < 1:
        raise click.BadParameter("must be whole numbers of at least 1 separated by commas, such as 1,4,8")
    return numbers
