"""What a client of `tane serve` sees as contexts and streams grow: the load client of `tane bench`, in rounds.

Always: client and server share the machine, so the client's processor time is told.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Any

from service.cli.console import count_bar
from service.cli.load import run_load
from service.cli.load_plan import Load, LoadPlan, Target
from service.cli.load_prompts import Length
from service.cli.load_report import LevelReport
from tests.bench.served import served

MILLISECONDS = 1000
SHORT_ANSWER = 32
"""Tokens after a prompt whose length is what matters."""
TIMEOUT_S = 600


def measure(
    contexts: Sequence[int], streams: Sequence[int], prompt: int, answer: int, *, rounds: int, options: Sequence[str]
) -> dict[str, Any]:
    """Decode and prefill by the length of one stream's prompt, and tokens per second by the number of streams."""
    alone: dict[int, list[LevelReport]] = {context: [] for context in contexts}
    together: dict[int, list[tuple[LevelReport, float]]] = {count: [] for count in streams}
    with served(*options) as server, count_bar("rounds over HTTP", rounds) as on_round:
        for number in range(rounds):
            for context in contexts:
                seed = number * 100_000 + context
                alone[context].append(level_of(server.url, 1, context, SHORT_ANSWER, seed=seed)[0])
            for count in streams:
                together[count].append(level_of(server.url, count, prompt, answer, seed=number * 100 + count))
            on_round()
    return {
        "decode": [_decode_point(context, reports) for context, reports in alone.items()],
        "prefill": [_prefill_point(context, reports) for context, reports in alone.items()],
        "streams": [_streams_point(count, reports) for count, reports in together.items()],
    }


def level_of(
    url: str, streams: int, prompt: int, answer: int, *, seed: int, guesses: bool = False
) -> tuple[LevelReport, float]:
    """So many streams at once, and this process's share of the processors' time meanwhile: 1 is one whole core.

    Without guesses, which make the text decide how fast it comes.
    """
    plan = LoadPlan(
        loads=(Load("concurrency", streams),),
        requests=streams,
        prompt_tokens=Length(prompt, prompt),
        output_tokens=Length(answer, answer),
        seed=seed,
        warmup=0,
        timeout_s=TIMEOUT_S,
        tane_fields={} if guesses else {"speculation": "off"},
    )
    started, cpu = time.perf_counter(), time.process_time()
    (report,) = asyncio.run(run_load([Target(url)], plan, lambda: None))
    (level,) = report.levels
    if level.errors:
        raise RuntimeError(f"requests failed under load: {level.errors}")
    return level, (time.process_time() - cpu) / (time.perf_counter() - started)


def _decode_point(context: int, reports: Sequence[LevelReport]) -> dict[str, Any]:
    gaps = [report.inter_token_latency_s.p50 for report in reports if report.inter_token_latency_s]
    return {"context": context, "milliseconds": statistics.median(gaps) * MILLISECONDS}


def _prefill_point(context: int, reports: Sequence[LevelReport]) -> dict[str, Any]:
    rates = [
        report.prompt_tokens / report.time_to_first_token_s.p50
        for report in reports
        if report.prompt_tokens and report.time_to_first_token_s
    ]
    return {"prompt": context, "tokens_per_second": statistics.median(rates)}


def _streams_point(count: int, reports: Sequence[tuple[LevelReport, float]]) -> dict[str, Any]:
    return {
        "streams": count,
        "tokens_per_second": statistics.median(level.tokens_per_second for level, _ in reports),
        "client_cpu_share": statistics.median(share for _, share in reports),
    }
