"""`tane pull`: fetch the default model."""

import click

from service.cli.console import write_json
from service.cli.loading import pull_default


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def pull(as_json: bool) -> None:
    """Download the default model, check it and keep it.

    Prints where the file is. Does nothing more when it is there already.

    \b
    Examples:
      tane pull
      tane info --model "$(tane pull)"
    """
    from model.loading.hub import DEFAULT_MODEL

    path = pull_default()
    if as_json:
        write_json(
            {
                "name": DEFAULT_MODEL.name,
                "path": str(path),
                "sha256": DEFAULT_MODEL.file_sha256,
                "bytes": DEFAULT_MODEL.file_bytes,
            }
        )
    else:
        click.echo(path)
