"""`tane pull`: fetch the default model."""

from typing import Any

import click

from service.cli.console import write_json
from service.cli.loading import pull_default, read_settings
from service.cli.options import settings_options


@click.command()
@settings_options("cache_folder")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def pull(as_json: bool, **flags: Any) -> None:
    """Download the default model, check it and keep it.

    Prints where the file is. Does nothing more when it is there already.

    \b
    Examples:
      tane pull
      tane info "$(tane pull)"
    """
    from model.loading.hub import DEFAULT_MODEL

    path = pull_default(read_settings(flags))
    if as_json:
        write_json(
            {
                "name": DEFAULT_MODEL.name,
                "path": str(path),
                "sha256": DEFAULT_MODEL.sha256,
                "bytes": DEFAULT_MODEL.bytes,
            }
        )
    else:
        click.echo(path)
