"""What every study's command shares: --json and --plot, lists of numbers, and a real model after a prompt.

Always: a study prints tables or JSON on stdout, and a plot is drawn after everything was computed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.table import Table
from rich.text import Text

from service.cli.console import Unusable, harmless, loading_bar, results, write_json
from service.cli.loading import load_checkpoint, model_errors, read_settings
from service.cli.plotting import plot_option
from service.cli.text_input import read_text

if TYPE_CHECKING:
    from model.loading.checkpoint import Checkpoint
    from model.studies.prompt_model import PromptModel
    from model.tokenizer import Tokenizer
    from service.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])
DEFAULT_MODEL = "default"
PROMPT = "The capital of France is"


def list_of(kind: "click.ParamType[Any]") -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """A click callback: finite values of this type, separated by commas, as a tuple; None where none was given."""

    def parse(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[Any, ...] | None:
        if value is None:
            return None
        found = tuple(kind.convert(part.strip(), parameter, context) for part in value.split(","))
        if not all(map(isfinite, found)):
            raise click.BadParameter("must be finite numbers separated by commas")
        return found

    return parse


def output_options(shows: str) -> Callable[[Command], Command]:
    """Add --json, and --plot for a picture of what `shows` names."""

    def add(command: Command) -> Command:
        return click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")(
            plot_option(shows)(command)
        )

    return add


def model_option(use: str) -> Callable[[Command], Command]:
    """Add --model, which is for what the sentence `use` says."""
    return click.option(
        "--model",
        metavar="PATH",
        help=f"{use} A GGUF file or a model's folder; {DEFAULT_MODEL!r} is what `tane serve` would serve.",
    )


def prompt_option(command: Command) -> Command:
    """Add --prompt; it or --model makes the study one of a real model."""
    return click.option(
        "--prompt", metavar="TEXT", help=f"What the model has read; '-' reads standard input.  [default: {PROMPT}]"
    )(command)


def write(tables: Iterable[Table], notes: Iterable[str], figures: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the figures as JSON, or the tables with notes below them."""
    if as_json:
        write_json(figures)
        return
    console = results()
    for table in tables:
        console.print(table)
    for note in notes:
        console.print(harmless(note))


def table(title: str, *headings: str) -> Table:
    """A table whose first column is to the left and the others to the right."""
    made = Table(title=Text(harmless(title)), title_justify="left")
    for index, heading in enumerate(headings):
        made.add_column(Text(heading), justify="right" if index else "left")
    return made


@dataclass(frozen=True, slots=True)
class Prompted:
    """A real model after a prompt."""

    name: str
    prompt: str
    model: "PromptModel"
    tokenizer: "Tokenizer"

    def said(self, token_id: int) -> str:
        """The token's text, quoted, so that spaces show and control characters do nothing."""
        return repr(self.tokenizer.token_text(token_id))


def prompted(model: str | None, prompt: str | None, *, length: int = 0, width: int = 1) -> Prompted:
    """Load the model for `width` sequences of `length` tokens after the prompt. Ends the command where it cannot."""
    from model.studies.prompt_model import PromptModel
    from model.tokenizer import Tokenizer
    from service.op_sets import choose_op_set

    text = read_text(PROMPT if prompt is None else prompt, "--prompt")
    settings, checkpoint = checkpoint_of(model)
    tokenizer = Tokenizer(checkpoint.vocabulary)
    token_ids = tokenizer.encode_prompt(text)
    if not token_ids:
        raise Unusable("--prompt is empty, and the model needs a token to go on from")
    with model_errors(), loading_bar("loading the model"):
        op_set = choose_op_set(settings, checkpoint)
        try:
            loaded = PromptModel(checkpoint, op_set.make, token_ids, length=length, width=width)
        except ValueError as error:
            raise Unusable(f"--prompt is too long: {error}") from error
    return Prompted(checkpoint.name, text, loaded, tokenizer)


def checkpoint_of(model: str | None) -> "tuple[Settings, Checkpoint]":
    """The model that --model names, and the settings that it would be served with."""
    settings = read_settings({} if model in (None, DEFAULT_MODEL) else {"model": model})
    _, checkpoint = load_checkpoint(settings)
    return settings, checkpoint
