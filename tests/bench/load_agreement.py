"""Whether `tane bench` finds what the server's own metrics report: tokens, throughput and latencies, level by level.

The client's times are longer by what HTTP takes, and by what both lose to each other on one machine.
Always: tokens are equal or the measurement is refused; guessing is off, so that each token comes by itself.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
import httpx
from prometheus_client.parser import text_string_to_metric_families

from service.cli.console import count_bar, write_json
from service.cli.load import run_load
from service.cli.load_plan import Load, LoadPlan, Target
from service.cli.load_prompts import Length
from service.cli.load_report import LevelReport
from service.cli.options import integer_list
from tests.bench.record import markdown_table
from tests.bench.served import served

ALLOWED = 0.03
"""Share of the server's figure by which the client's may differ."""
TIMEOUT_S = 300
SETTLE_POLL_S = 0.01
SETTLE_POLLS = 1000
HISTOGRAMS = {
    "time to first token, s": "tane_time_to_first_token_seconds",
    "time between tokens, s": "tane_inter_token_latency_seconds",
    "request, s": "tane_request_seconds",
}
THROUGHPUT = "tokens per second"


@dataclass(frozen=True, slots=True)
class Pair:
    """One figure as the client and as the server saw it."""

    client: float
    server: float

    @property
    def difference(self) -> float:
        """As a share of the server's."""
        return self.client / self.server - 1


Samples = Mapping[str, float]


def scraped(url: str) -> Samples:
    """Every sample of /metrics by its name, summed over its labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics").text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def settled(url: str) -> Samples:
    """The samples once the engine has counted what it has already sent. Raises RuntimeError when it does not rest."""
    for _ in range(SETTLE_POLLS):
        if (samples := scraped(url))["tane_active_requests"] == 0:
            return samples
        time.sleep(SETTLE_POLL_S)
    raise RuntimeError("the server still works on requests that have been answered")


def pairs(level: LevelReport, before: Samples, after: Samples, seconds: float) -> dict[str, Pair]:
    """The means and the throughput of one level, `seconds` apart on the server. RuntimeError for other tokens."""
    generated = after["tane_generated_tokens_total"] - before["tane_generated_tokens_total"]
    if level.errors or generated != level.generated_tokens:
        raise RuntimeError(
            f"the server counts {generated:g} tokens, the client {level.generated_tokens}; {level.errors}"
        )
    summaries = (level.time_to_first_token_s, level.inter_token_latency_s, level.request_s)
    return {
        THROUGHPUT: Pair(level.tokens_per_second, generated / seconds),
        **{
            name: Pair(summary.mean, _mean(metric, before, after))
            for (name, metric), summary in zip(HISTOGRAMS.items(), summaries, strict=True)
            if summary is not None
        },
    }


def _mean(metric: str, before: Samples, after: Samples) -> float:
    total, count = (after[f"{metric}_{part}"] - before[f"{metric}_{part}"] for part in ("sum", "count"))
    return total / count


def measured(url: str, load: Load, *, requests: int | None, prompt: int, answer: int, seed: int) -> dict[str, Pair]:
    """Run one level and read the metrics around it."""
    plan = LoadPlan(
        loads=(load,),
        requests=requests,
        prompt_tokens=Length(prompt, prompt),
        output_tokens=Length(answer, answer),
        seed=seed,
        warmup=0,
        timeout_s=TIMEOUT_S,
        tane_fields={"speculation": "off"},
    )
    before, started = scraped(url), time.perf_counter()
    (report,) = asyncio.run(run_load([Target(url)], plan, lambda: None))
    seconds = time.perf_counter() - started
    return pairs(report.levels[0], before, settled(url), seconds)


def table(found: Mapping[str, Mapping[str, Pair]]) -> str:
    rows = [
        [load, name, f"{pair.client:.4g}", f"{pair.server:.4g}", f"{pair.difference:+.1%}"]
        for load, figures in found.items()
        for name, pair in figures.items()
    ]
    return markdown_table(["load", "figure", "tane bench", "metrics", "difference"], rows)


@click.command()
@click.option("--model", help="The model to serve; default: the default model.")
@click.option("--concurrency", default="1,4,8", show_default=True, callback=integer_list)
@click.option("--requests", type=click.IntRange(1), help="At each level.")
@click.option("--prompt-tokens", type=click.IntRange(1), default=512, show_default=True)
@click.option("--output-tokens", type=click.IntRange(2), default=64, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def main(
    *,
    model: str | None,
    concurrency: tuple[int, ...],
    requests: int | None,
    prompt_tokens: int,
    output_tokens: int,
    as_json: bool,
) -> None:
    """Load a server of its own and hold what `tane bench` finds against the metrics; exit with 1 beyond 3 %."""
    found: dict[str, dict[str, Pair]] = {}
    with (
        served(*(["--model", model] if model else [])) as server,
        count_bar("levels", len(concurrency) + 1) as on_level,
    ):
        for seed, streams in enumerate((1, *concurrency)):
            load = Load("concurrency", streams)
            # The first is run twice, since a new server's first answers are slower to leave than to be made.
            found[str(load)] = measured(
                server.url, load, requests=requests, prompt=prompt_tokens, answer=output_tokens, seed=seed
            )
            on_level()
    if as_json:
        values: dict[str, Any] = {
            load: {name: {"client": pair.client, "server": pair.server} for name, pair in figures.items()}
            for load, figures in found.items()
        }
        write_json(values)
    else:
        click.echo(table(found))
    if any(abs(pair.difference) > ALLOWED for figures in found.values() for pair in figures.values()):
        raise click.ClickException(f"a figure differs by more than {ALLOWED:.0%}")


if __name__ == "__main__":
    main()
