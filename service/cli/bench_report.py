"""What `tane bench` found, as tables for people and values for JSON. Knows no server.

Always: errors are told by kind; a ratio is a server's figure over that of the first; no key is among the values.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from service.cli.console import harmless
from service.cli.load import LoadReport
from service.cli.load_plan import LoadPlan, Target
from service.cli.load_report import MILLISECONDS, LevelReport
from service.cli.statistics import Summary

PERCENT = 100


def _of(summary: Summary | None, statistic: str) -> float | None:
    return None if summary is None else float(getattr(summary, statistic))


FIGURES: Mapping[str, Callable[[LevelReport], float | None]] = {
    "tokens_per_second": lambda level: level.tokens_per_second,
    "stream_tokens_per_second_p50": lambda level: _of(level.stream_tokens_per_second, "p50"),
    "time_to_first_token_s_p50": lambda level: _of(level.time_to_first_token_s, "p50"),
    "time_to_first_token_s_p95": lambda level: _of(level.time_to_first_token_s, "p95"),
    "inter_token_latency_s_p50": lambda level: _of(level.inter_token_latency_s, "p50"),
    "inter_token_latency_s_p95": lambda level: _of(level.inter_token_latency_s, "p95"),
    "goodput_requests_per_second": lambda level: level.goodput.requests_per_second if level.goodput else None,
}
"""What is compared between servers, by its name in JSON."""
HEADINGS: Mapping[str, str] = {
    "tokens_per_second": "tokens/s",
    "time_to_first_token_s_p50": "first p50",
    "time_to_first_token_s_p95": "first p95",
    "inter_token_latency_s_p50": "between p50",
    "inter_token_latency_s_p95": "between p95",
    "goodput_requests_per_second": "goodput/s",
}
"""Of the figures that the table has room for."""
CACHED_SHARE = 0.02
"""From here on it is told; the first token of a text is nearly always in the cache."""
EXACT_BELOW = 100
Ratios = list[dict[str, dict[str, float | None]]]


def ratios(names: Sequence[str], reports: Sequence[LoadReport]) -> Ratios:
    """For each level, each figure and each server its figure over the first server's; None where either has none."""
    return [
        {
            figure: {name: _over(take(level), take(levels[0])) for name, level in zip(names, levels, strict=True)}
            for figure, take in FIGURES.items()
        }
        for levels in zip(*(report.levels for report in reports), strict=True)
    ]


def as_values(targets: Sequence[Target], plan: LoadPlan, reports: Sequence[LoadReport]) -> dict[str, Any]:
    """For JSON: plan and result of one server, or the results of several by name with their ratios."""
    values = {"plan": dataclasses.asdict(plan)}
    results = [
        {"url": target.url, **dataclasses.asdict(report)} for target, report in zip(targets, reports, strict=True)
    ]
    names = [target.name for target in targets if target.name is not None]
    if not names:
        return values | {"result": results[0]}
    return values | {"servers": dict(zip(names, results, strict=True)), "ratios": ratios(names, reports)}


def show(console: Console, target: Target, plan: LoadPlan, report: LoadReport) -> None:
    """Print one server's report as a table, its errors and what its numbers rest on."""
    table = Table(
        title=Text(harmless(f"{report.server} at {target.url}, model {report.model}")),
        caption="times in milliseconds: p50 / p95 / p99",
        title_justify="left",
        caption_justify="left",
    )
    for heading in ("load", "requests", "tokens/s", "each", "first token", "between tokens", "request"):
        table.add_column(heading, justify="right")
    if plan.objective:
        table.add_column("goodput", justify="right")
    for level in report.levels:
        table.add_row(
            level.load,
            f"{level.succeeded}/{level.requests}",
            f"{level.tokens_per_second:.1f}",
            f"{level.stream_tokens_per_second.p50:.1f}" if level.stream_tokens_per_second else "-",
            _milliseconds(level.time_to_first_token_s),
            _milliseconds(level.inter_token_latency_s),
            _milliseconds(level.request_s),
            *([_goodput(level)] if plan.objective else []),
        )
    console.print(table)
    for line in [*_plan_notes(plan, [report]), *_server_notes(report)]:
        console.print(harmless(line))


def show_compared(console: Console, targets: Sequence[Target], plan: LoadPlan, reports: Sequence[LoadReport]) -> None:
    """Print the servers below each other level by level, each figure with its ratio to the first server's."""
    names = [target.name or target.url for target in targets]
    table = Table(
        caption="times in milliseconds to the first token and between tokens; in brackets over the first server's",
        caption_justify="left",
    )
    table.add_column("load", justify="right")
    table.add_column("server")
    shown = {figure: heading for figure, heading in HEADINGS.items() if plan.objective or "goodput" not in figure}
    for heading in shown.values():
        table.add_column(heading, justify="right")
    for place, found in enumerate(ratios(names, reports)):
        for name, report in zip(names, reports, strict=True):
            level = report.levels[place]
            cells = (_with_ratio(figure, FIGURES[figure](level), found[figure][name]) for figure in shown)
            table.add_row(level.load, Text(harmless(name)), *cells)
        table.add_section()
    console.print(table)
    for line in _plan_notes(plan, reports):
        console.print(harmless(line))
    for name, target, report in zip(names, targets, reports, strict=True):
        about = f"{name}: {report.server} at {target.url}, model {report.model}."
        for line in (about, *(f"{name}: {note}" for note in _server_notes(report))):
            console.print(harmless(line))


def _over(figure: float | None, first: float | None) -> float | None:
    return None if figure is None or not first else figure / first


def _with_ratio(name: str, figure: float | None, ratio: float | None) -> str:
    if figure is None:
        return "-"
    is_time = "_s_p" in name
    shown = figure * MILLISECONDS if is_time else figure
    value = f"{shown:.1f}" if shown < EXACT_BELOW else f"{shown:.0f}"
    return value if ratio is None else f"{value} ({ratio:.2f})"


def _milliseconds(summary: Summary | None) -> str:
    if summary is None:
        return "-"
    return " / ".join(f"{value * MILLISECONDS:.0f}" for value in (summary.p50, summary.p95, summary.p99))


def _goodput(level: LevelReport) -> str:
    assert level.goodput is not None, "a level has goodput where the plan has an objective"
    return f"{level.goodput.share * PERCENT:.0f} %, {level.goodput.requests_per_second:.2f}/s"


def _plan_notes(plan: LoadPlan, reports: Sequence[LoadReport]) -> list[str]:
    levels = [level for report in reports for level in report.levels]
    prompts = [level.prompt_tokens / level.succeeded for level in levels if level.prompt_tokens]
    length = f"{sum(prompts) / len(prompts):.0f}" if prompts else f"about {plan.prompt_tokens}"
    groups = f" in each of {plan.prefix_groups} groups" if plan.prefix_groups > 1 else ""
    shared = f", about {plan.shared_prefix} of them shared{groups}" if plan.shared_prefix else ""
    notes = [f"Prompts of {length} tokens{shared}, {plan.output_tokens} tokens asked for, seed {plan.seed}."]
    if plan.rounds > 1:
        notes.append(f"Each level was run {plan.rounds} times.")
    if plan.has_sessions:
        notes.append(f"Sessions of {plan.turns} turns, each with one word of the last prompt changed.")
    if plan.objective:
        limits = {"first token": plan.objective.ttft_ms, "mean between tokens": plan.objective.itl_ms}
        told = ", ".join(f"{name} within {limit:g} ms" for name, limit in limits.items() if limit is not None)
        notes.append(f"Goodput: requests with {told}.")
    return notes


def _server_notes(report: LoadReport) -> list[str]:
    counted = sorted({level.counted for level in report.levels if level.counted})
    notes = [f"Tokens counted from {' and '.join(counted) or 'nothing'}."]
    if short := sum(level.short_answers for level in report.levels):
        notes.append(f"{short} streams ended before all tokens that were asked for.")
    for level in report.levels:
        share = (level.cached_tokens or 0) / (level.prompt_tokens or 1)
        if share >= CACHED_SHARE:
            notes.append(
                f"At {level.load}: {share * PERCENT:.0f} % of the prompts' tokens came from the server's cache."
            )
        notes += _place_notes(level)
        notes += [f"At {level.load}: {count} × {kind}" for kind, count in level.errors.items()]
    return notes


def _place_notes(level: LevelReport) -> list[str]:
    """Which replicas answered, where they name themselves."""
    if level.places is None:
        return []
    loads = ", ".join(
        f"{name} {load.requests} ({load.generated_tokens} tokens)" for name, load in level.places.replicas.items()
    )
    notes = [f"At {level.load}: requests by replica: {loads}."]
    if level.places.could_return:
        came = f"{level.places.returned} of {level.places.could_return} requests"
        notes.append(f"At {level.load}: {came} came to the replica of the one that they belong with.")
    return notes
