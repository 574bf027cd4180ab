"""`tane bench`: load any server that speaks /v1/completions, and say what its users would have felt."""

import asyncio
import secrets
from pathlib import Path
from typing import Any

import click

from service.cli import bench_options
from service.cli.console import Failure, count_bar, results, write_json
from service.cli.options import address, api_key_text
from service.cli.plotting import plot_option

SEED_BITS = 32


@click.command()
@click.option("--url", callback=address, help=f"The server's address.  [default: {bench_options.DEFAULT_URL}]")
@click.option("--model", help="Model to ask for; default: the first that the server lists.")
@click.option(
    "--api-key",
    envvar="TANE_API_KEY",
    callback=api_key_text,
    metavar="KEY",
    help="Key of the server, better given as TANE_API_KEY; with --compare, of the first server alone.",
)
@click.option(
    "--compare",
    multiple=True,
    metavar="NAME=URL",
    callback=bench_options.named_addresses,
    help="Load several servers in turn with the same requests, and tell ratios to the first. Give it for each.",
)
@bench_options.load_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@plot_option("latencies and throughput against the load, or with --compare the servers side by side,")
def bench(
    *,
    url: str | None,
    model: str | None,
    api_key: str | None,
    compare: dict[str, str],
    seed: int | None,
    as_json: bool,
    plot: Path | None,
    **options: Any,
) -> None:
    """Measure a running server under load.

    Streams greedy completions with prompts that no two requests share, so that no answer comes from a cache, each
    over a connection of its own, and reports time to first token, time between tokens, tokens per second and
    errors. Works with any server that has /v1/completions.

    \b
    Examples:
      tane bench --concurrency 1,2,4,8 --prompt-tokens 512 --output-tokens 128
      tane bench --rate 0.5,1,2 --output-tokens 16:256 --goodput ttft:500,itl:50 --plot load.png
      tane bench --sessions 4 --turns 6 --prompt-tokens 1024
      tane bench --compare tane=http://127.0.0.1:8000 --compare other=http://127.0.0.1:8081 --json
    """
    from service.cli.bench_plot import draw_compared, draw_levels
    from service.cli.bench_report import as_values, show, show_compared
    from service.cli.load import run_load
    from service.cli.load_client import LoadError

    bench_options.refuse_clashes(options | {"url": url, "compare": compare})
    seed = secrets.randbits(SEED_BITS) if seed is None else seed
    plan = bench_options.plan_of(options, seed=seed, is_compared=bool(compare))
    targets = bench_options.targets_of(url, compare, model, api_key)
    try:
        with count_bar("requests", plan.request_count * len(targets)) as on_request:
            reports = asyncio.run(run_load(targets, plan, on_request))
    except LoadError as error:
        raise Failure(str(error)) from error
    if as_json:
        write_json(as_values(targets, plan, reports))
    elif compare:
        show_compared(results(), targets, plan, reports)
    else:
        show(results(), targets[0], plan, reports[0])
    if plot and compare:
        draw_compared(dict(zip(compare, reports, strict=True)), plan, plot)
    elif plot:
        draw_levels(reports[0], plan, plot)
    if not all(level.succeeded for report in reports for level in report.levels):
        raise Failure("a level had no successful request")
