"""Command-line options made from the fields of `Settings` and of `POST /generate`, and shared option types.

Always: names, help and defaults come from where the field is defined, and there its values are judged.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from service.field_errors import without_null
from service.option import Option
from service.schemas import GenerateRequest, schema
from service.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])
SCALARS: Mapping[str, type] = {"integer": int, "number": float, "string": str}
"""What click reads for each type of a JSON schema."""


def settings_options(*names: str) -> Callable[[Command], Command]:
    """Add the options of these settings, or of all of them, to a command. They arrive as text, tuple or None."""
    options = Settings.options()

    def add(command: Command) -> Command:
        for name in reversed(names or tuple(options)):
            command = _click_option(options[name])(command)
        return command

    return add


def model_argument(command: Command) -> Command:
    """Add MODEL, the model that a command is about. It arrives as text, or as None for what would be served."""
    return click.argument("model", required=False, type=click.Path())(command)


def refuse_without_effect(names: Iterable[str], reason: str) -> None:
    """Refuse options of the running command that were given and would change nothing. Raises click.UsageError."""
    context = click.get_current_context()
    given = [name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"leave out {flags}, which would change nothing: {reason}", context)


def _click_option(option: Option) -> Callable[[Command], Command]:
    if option.is_switch:
        return click.option(option.flag, option.name, is_flag=True, default=None, help=option.description)
    default = "" if option.default in (None, ()) else f"  [default: {option.default}]"
    return click.option(
        option.flag, option.name, metavar=option.metavar, multiple=option.repeats, help=option.description + default
    )


def address(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A click callback: a server's address, as far as it can be judged without calling there, or none given."""
    if value is None:
        return None
    try:
        parts = urlsplit(value)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        # A password there would stand in results and messages.
        is_address = is_address and parts.username is None
    except ValueError:
        is_address = False
    if not is_address:
        raise click.BadParameter("must be an address such as http://127.0.0.1:8000, without a user's name")
    return value


def api_key_text(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A click callback: what a header can hold, or none given."""
    if value is not None and not (value and all("!" <= character <= "~" for character in value)):
        raise click.BadParameter("must be visible ASCII characters without spaces")
    return value or None


def integer_list(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    """A click callback: whole numbers of at least 1, separated by commas."""
    try:
        numbers = tuple(int(part) for part in value.split(","))
    except ValueError:
        numbers = (0,)
    if min(numbers) < 1:
        raise click.BadParameter("must be whole numbers of at least 1 separated by commas, such as 1,4,8")
    return numbers


def field_options(*names: str) -> Callable[[Command], Command]:
    """Add these fields of `POST /generate` as options. They arrive in the field's type, or as None or ()."""
    properties: Mapping[str, Mapping[str, Any]] = schema(GenerateRequest)["properties"]

    def add(command: Command) -> Command:
        for name in reversed(names):
            command = _field_option(name, without_null(properties[name]))(command)
        return command

    return add


def _field_option(name: str, field: Mapping[str, Any]) -> Callable[[Command], Command]:
    help_text = field["description"]
    default = field.get("x-default", field.get("default"))
    if default not in (None, []):
        help_text += f"  [default: {default if isinstance(default, str) else json.dumps(default)}]"
    flag = "--" + name.replace("_", "-")
    if field["type"] == "boolean":
        return click.option(flag, name, is_flag=True, default=None, help=help_text)
    if field["type"] == "array":
        help_text += " May be given several times."
        kind = SCALARS[field["items"]["type"]]
        return click.option(flag.removesuffix("s"), name, type=kind, multiple=True, help=help_text)
    names = "|".join(field["enum"]) if "enum" in field else None
    return click.option(flag, name, type=SCALARS[field["type"]], metavar=names, help=help_text)
