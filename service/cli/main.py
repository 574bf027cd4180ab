"""The `tane` command: one group, one file for each command. Knows nothing of what the commands do.

Exit codes: 0 done, 1 failed, 2 bad usage or an unusable model file, 130 interrupted; those of `replay` are its own.
"""

from typing import Any

import click

from service import __version__
from service.cli.bench import bench
from service.cli.compress import compress
from service.cli.console import Failure, write_any_character
from service.cli.evaluate import evaluate
from service.cli.export import export
from service.cli.generate import generate
from service.cli.info import info
from service.cli.models import models
from service.cli.pull import pull
from service.cli.replay import replay
from service.cli.serve import serve
from service.cli.study import study
from service.cli.tokenize import tokenize

INTERRUPTED = 130
NO_TORCH = (
    "this needs torch, which is not installed here (a container image has it when built with TORCH=1); "
    "the native engine needs none"
)


class TaneGroup(click.Group):
    """A group that ends quietly when interrupted, and says so where an installation was made without torch."""

    def invoke(self, ctx: click.Context) -> Any:
        write_any_character()
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise Failure(NO_TORCH) from error


@click.group(cls=TaneGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="tane")
def main() -> None:
    """Tane serves text generation: the same seed gives the same bits.

    \b
    Examples:
      tane serve
      tane generate "The capital of France is"
      tane bench --concurrency 1,4,8
    """


COMMANDS = (
    serve,
    generate,
    replay,
    pull,
    models,
    tokenize,
    info,
    compress,
    evaluate,
    export,
    bench,
    study,
)
"""In the order in which they are listed."""

for command in COMMANDS:
    main.add_command(command)
