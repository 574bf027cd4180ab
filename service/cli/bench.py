"""`tane bench`: load any server that speaks /v1/completions, and say what its users would have felt."""

import asyncio
import dataclasses
import secrets
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from service.cli.console import Failure, count_bar, harmless, results, write_json
from service.cli.options import address, integer_list
from service.cli.statistics import Summary

if TYPE_CHECKING:
    from service.cli.load import LoadPlan, LoadReport

SEED_BITS = 32
MILLISECONDS = 1000


@click.command()
@click.option(
    "--url", callback=address, default="http://127.0.0.1:8000", show_default=True, help="The server's address."
)
@click.option("--model", help="Model to ask for; default: the first that the server lists.")
@click.option(
    "--concurrency",
    metavar="LIST",
    callback=integer_list,
    default="1,4,8",
    show_default=True,
    help="Streams kept open at once; a comma-separated list is run level by level.",
)
@click.option(
    "--requests",
    type=click.IntRange(1),
    help="Requests at each level; default: 8, or 2 for each stream where that is more.",
)
@click.option(
    "--prompt-tokens",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="About how many tokens each prompt has.",
)
@click.option(
    "--output-tokens",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Tokens to generate for each prompt.",
)
@click.option("--seed", type=click.IntRange(0), help="Seed of the prompts; default: a new one, which is shown.")
@click.option("--warmup", type=click.IntRange(0), default=2, show_default=True, help="Requests made before measuring.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds of silence after which a request has failed.",
)
@click.option(
    "--ignore-eos/--stop-at-eos",
    default=True,
    show_default=True,
    help="Ask for exactly --output-tokens tokens, with the field ignore_eos.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def bench(url: str, seed: int | None, timeout: float, as_json: bool, **options: Any) -> None:
    """Measure a running server under load.

    Streams greedy completions with prompts that no two requests share, so that no answer comes from a cache, each
    over a connection of its own, and reports time to first token, time between tokens, tokens per second and
    errors. Works with any server that has /v1/completions.

    \b
    Examples:
      tane bench
      tane bench --concurrency 1,2,4,8 --prompt-tokens 512 --output-tokens 128
      tane bench --url http://127.0.0.1:8081 --model other --json > other.json
    """
    from service.cli.load import LoadError, LoadPlan, run_load

    seed = secrets.randbits(SEED_BITS) if seed is None else seed
    plan = LoadPlan(url=url, seed=seed, timeout_s=timeout, **options)
    if plan.requests is not None and plan.requests < max(plan.concurrency):
        raise click.BadParameter("must be at least the largest --concurrency", param_hint="--requests")
    try:
        with count_bar("requests", plan.request_count) as on_request:
            report = asyncio.run(run_load(plan, on_request))
    except LoadError as error:
        raise Failure(str(error)) from error
    if as_json:
        write_json({"plan": dataclasses.asdict(plan), "result": dataclasses.asdict(report)})
    else:
        show(results(), plan, report)
    if not all(level.succeeded for level in report.levels):
        raise Failure("a level had no successful request")


def show(console: Console, plan: "LoadPlan", report: "LoadReport") -> None:
    """Print the report as a table, its errors and what its numbers rest on."""
    table = Table(
        title=Text(harmless(f"{report.server} at {plan.url}, model {report.model}")),
        caption="times in milliseconds: p50 / p95 / p99",
        title_justify="left",
        caption_justify="left",
    )
    for heading in ("streams", "requests", "tokens/s", "tokens/s each", "first token", "between tokens", "request"):
        table.add_column(heading, justify="right")
    for level in report.levels:
        table.add_row(
            str(level.concurrency),
            f"{level.succeeded}/{level.requests}",
            f"{level.tokens_per_second:.1f}",
            f"{level.stream_tokens_per_second.p50:.1f}" if level.stream_tokens_per_second else "-",
            _milliseconds(level.time_to_first_token_s),
            _milliseconds(level.inter_token_latency_s),
            _milliseconds(level.request_s),
        )
    console.print(table)
    for line in _notes(plan, report):
        console.print(harmless(line))


def _milliseconds(summary: Summary | None) -> str:
    if summary is None:
        return "-"
    return " / ".join(f"{value * MILLISECONDS:.0f}" for value in (summary.p50, summary.p95, summary.p99))


def _notes(plan: "LoadPlan", report: "LoadReport") -> list[str]:
    counted = sorted({level.counted for level in report.levels if level.counted})
    prompts = [level.prompt_tokens / level.succeeded for level in report.levels if level.prompt_tokens]
    length = f"{sum(prompts) / len(prompts):.0f}" if prompts else f"about {plan.prompt_tokens}"
    notes = [
        f"Prompts of {length} tokens, {plan.output_tokens} tokens asked for, seed {plan.seed}.",
        f"Tokens counted from {' and '.join(counted) or 'nothing'}.",
    ]
    if short := sum(level.short_answers for level in report.levels):
        notes.append(f"{short} streams ended before {plan.output_tokens} tokens.")
    for level in report.levels:
        notes += [f"At {level.concurrency} streams: {count} × {kind}" for kind, count in level.errors.items()]
    return notes
