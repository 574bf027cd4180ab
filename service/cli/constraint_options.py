"""The options of a constraint, and the field of `POST /generate` that they mean.

Knows files and JSON; what a constraint may hold is judged where the field is.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from service.cli.console import Unusable
from service.errors import ServiceError
from service.json_body import parse

Command = TypeVar("Command", bound=Callable[..., Any])

OPTIONS = (
    click.option(
        "--json-schema",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The text is JSON that the schema in FILE accepts.",
    ),
    click.option("--regex", help="The text is one that this regular expression matches as a whole."),
    click.option("--choice", multiple=True, help="The text is one of these. May be given several times."),
    click.option(
        "--grammar",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The text is one of the grammar in FILE, in llguidance's form of Lark.",
    ),
)


def constraint_options(command: Command) -> Command:
    """Add the options; `take_constraint` reads them."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def take_constraint(fields: dict[str, Any]) -> None:
    """Put `constraint` in the place of its options, where any was given. Raises Unusable for a file that is not fit."""
    schema, grammar = fields.pop("json_schema"), fields.pop("grammar")
    regex, choice = fields.pop("regex"), fields.pop("choice")
    given = {
        "json_schema": None if schema is None else _json_of(schema),
        "regex": regex,
        "choice": list(choice) or None,
        "grammar": None if grammar is None else _text_of(grammar, "--grammar"),
    }
    fields["constraint"] = {kind: value for kind, value in given.items() if value is not None} or None


def _json_of(path: Path) -> Any:
    try:
        return parse(_bytes_of(path, "--json-schema"))
    except ServiceError as error:
        raise Unusable(f"--json-schema {path}: {error.message.replace('the body', 'the file')}") from error


def _text_of(path: Path, option: str) -> str:
    try:
        return _bytes_of(path, option).decode()
    except UnicodeDecodeError as error:
        raise Unusable(f"{option} {path} is not UTF-8 at byte {error.start}") from error


def _bytes_of(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unusable(f"{option} {path} cannot be read: {error.strerror}") from error
