"""`tane tokenize`: text to token ids and back, without a server."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from service.cli.console import Unusable, for_terminal, harmless, results, write_json
from service.cli.loading import load_checkpoint, model_errors, read_settings
from service.cli.options import settings_options
from service.cli.text_input import read_text

if TYPE_CHECKING:
    from model.tokenizer import Tokenizer

COLOURS = ("black on bright_cyan", "black on bright_yellow")


@click.command()
@click.argument("text", required=False)
@click.option("--ids", help="Decode these token ids, separated by commas or spaces, instead of encoding a text.")
@settings_options("model")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def tokenize(text: str | None, ids: str | None, model: str | None, as_json: bool) -> None:
    """Show the tokens of TEXT, or with --ids the text of tokens.

    TEXT is text only: what looks like a control token stays text. "-" or a pipe reads standard input.

    \b
    Examples:
      tane tokenize "Hello, world"
      tane tokenize --json < prompt.txt
      tane tokenize --ids "19556, 28, 905"
    """
    if ids is not None and text is not None:
        raise click.UsageError("give either TEXT or --ids, not both")
    if ids is not None:
        decode(ids, _tokenizer(model), as_json)
    else:
        encode(read_text(text, "TEXT"), _tokenizer(model), as_json)


def encode(text: str, tokenizer: "Tokenizer", as_json: bool) -> None:
    """Print the ids of the text, each with the piece it stands for."""
    from model.tokenizer import UnencodableText

    try:
        ids = tokenizer.encode(text)
    except UnencodableText as error:
        raise Unusable(str(error)) from error
    pieces = [tokenizer.token_bytes(token_id) for token_id in ids]
    if as_json:
        texts = [{"text": piece.decode(errors="replace"), "bytes": list(piece)} for piece in pieces]
        write_json({"token_ids": ids, "pieces": texts})
    else:
        _show(results(), ids, pieces)


def decode(ids: str, tokenizer: "Tokenizer", as_json: bool) -> None:
    """Print the text of the ids, control tokens written out."""
    from model.tokenizer import UnknownTokenId

    try:
        token_ids = [int(part) for part in ids.replace(",", " ").split()]
    except ValueError:
        raise click.BadParameter("must be whole numbers", param_hint="--ids") from None
    try:
        text = tokenizer.decode(token_ids)
    except UnknownTokenId as error:
        raise click.BadParameter(str(error), param_hint="--ids") from error
    if as_json:
        write_json({"text": text})
    else:
        click.echo(for_terminal(text))


def _tokenizer(model: str | None) -> "Tokenizer":
    from model.tokenizer import Tokenizer

    _, checkpoint = load_checkpoint(read_settings({"model": model}))
    with model_errors():
        return Tokenizer(checkpoint.vocabulary)


def _show(console: Console, ids: Sequence[int], pieces: Sequence[bytes]) -> None:
    """The text in alternating colours, a character cut by tokens in that of its end; then a row for each token."""
    from model.stream_decoder import StreamDecoder

    decoder = StreamDecoder()
    coloured = Text()
    table = Table("", "id", "piece", title=f"{len(ids)} tokens", title_justify="left")
    for position, (token_id, piece) in enumerate(zip(ids, pieces, strict=True)):
        style = COLOURS[position % len(COLOURS)]
        coloured.append(harmless(decoder.push(piece)), style)
        table.add_row(str(position), str(token_id), Text(_spelled(piece), style))
    console.print(coloured)
    console.print(table)


def _spelled(piece: bytes) -> str:
    """The piece as text with its control characters escaped, or its bytes when it is no whole text."""
    try:
        return repr(piece.decode("utf-8"))[1:-1]
    except UnicodeDecodeError:
        return f"<{piece.hex(' ')}>"
