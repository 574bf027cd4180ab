"""`tane study`: one command for each table and figure of the theory that the product rests on."""

import click

from service.cli.studies.beam import beam
from service.cli.studies.kv_cost import kv_cost
from service.cli.studies.obs_correlation import obs_correlation
from service.cli.studies.sampling import sampling
from service.cli.studies.temperature import temperature
from service.cli.studies.truncation import truncation
from service.cli.studies.uniform_error import uniform_error


@click.group()
def study() -> None:
    """Remake the tables and figures of decoding, caching, quantisation and pruning.

    Each is computed by the product's own code, as a table, as JSON or as a plot.

    \b
    Examples:
      tane study temperature
      tane study truncation --prompt "The capital of France is"
      tane study uniform-error --json
      tane study obs-correlation --plot obs-correlation.svg
    """


for command in (temperature, truncation, sampling, beam, kv_cost, uniform_error, obs_correlation):
    study.add_command(command)
