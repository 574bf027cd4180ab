"""Plots of what `tane bench` found: figures against the load of one server, or several servers side by side.

Always: times are in milliseconds; a level without a successful request leaves its place empty.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from service.cli.bench_report import FIGURES
from service.cli.load import LoadReport
from service.cli.load_plan import UNITS, LoadPlan
from service.cli.load_report import MILLISECONDS, LevelReport
from service.cli.plotting import COLOURS, figure, for_plot, rise_from_zero
from service.cli.statistics import Summary

Times = Callable[[LevelReport], Summary | None]
STYLES = {"p50": ("-", 4), "p95": ("--", 6), "p99": (":", 8)}
"""Line and size of marker of each percentile, so that all are seen where they are the same."""
TIMES: Mapping[str, Times] = {
    "time to first token, ms": lambda level: level.time_to_first_token_s,
    "time between tokens, ms": lambda level: level.inter_token_latency_s,
}
BARS = {
    "to first token, ms: p50, line to p95": ("time_to_first_token_s_p50", "time_to_first_token_s_p95"),
    "between tokens, ms: p50, line to p95": ("inter_token_latency_s_p50", "inter_token_latency_s_p95"),
    "tokens per second": ("tokens_per_second", None),
}
GROUP_WIDTH = 0.8
"""Of the distance from one level to the next, what its bars take."""


def draw_levels(report: LoadReport, plan: LoadPlan, path: Path) -> None:
    """Draw percentiles of both latencies, and throughput, against the load."""
    levels = sorted(report.levels, key=lambda level: level.value)
    loads = [level.value for level in levels]
    with figure(path, 3, size=(11, 3.4)) as panels:
        for panel, (title, take) in zip(panels, TIMES.items(), strict=False):
            for colour, (percentile, (line, size)) in zip(COLOURS, STYLES.items(), strict=False):
                times = [_milliseconds(take(level), percentile) for level in levels]
                panel.plot(
                    loads, times, line, marker="o", markersize=size, fillstyle="none", color=colour, label=percentile
                )
            panel.set_title(title)
            panel.legend(frameon=False)
        rates = [level.tokens_per_second for level in levels]
        panels[2].plot(loads, rates, marker="o", markersize=4, color=COLOURS[0], label="in total")
        each = [level.stream_tokens_per_second.p50 if level.stream_tokens_per_second else math.nan for level in levels]
        panels[2].plot(loads, each, marker="o", markersize=4, color=COLOURS[1], label="one stream, p50")
        panels[2].set_title("tokens per second")
        panels[2].legend(frameon=False)
        for panel in panels:
            rise_from_zero(panel)
            panel.set_xlim(0, max(loads) * 1.08)
            panel.set_xlabel(UNITS[plan.loads[0].kind])


def draw_compared(reports: Mapping[str, LoadReport], plan: LoadPlan, path: Path) -> None:
    """Draw the servers' latencies and throughput as bars side by side, one group for each level."""
    places = range(len(plan.loads))
    width = GROUP_WIDTH / len(reports)
    with figure(path, 3, size=(max(11, 3 * len(reports) * len(plan.loads) * 0.5), 3.6)) as panels:
        for panel, (title, (middle, upper)) in zip(panels, BARS.items(), strict=True):
            for number, (name, report) in enumerate(reports.items()):
                at = [place + (number + 0.5) * width - GROUP_WIDTH / 2 for place in places]
                heights = [_figure(level, middle) for level in report.levels]
                panel.bar(at, heights, width * 0.9, color=COLOURS[number % len(COLOURS)], label=for_plot(name))
                if upper:
                    tops = [_figure(level, upper) for level in report.levels]
                    panel.vlines(at, heights, tops, color="black", linewidth=1)
            panel.set_title(title)
            panel.set_xticks(list(places), [f"{load.value:g}" for load in plan.loads])
            panel.set_xlabel(UNITS[plan.loads[0].kind])
            rise_from_zero(panel)
        handles, names = panels[0].get_legend_handles_labels()
        panels[0].figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)


def _milliseconds(summary: Summary | None, percentile: str) -> float:
    return math.nan if summary is None else float(getattr(summary, percentile)) * MILLISECONDS


def _figure(level: LevelReport, name: str) -> float:
    value = FIGURES[name](level)
    if value is None:
        return math.nan
    return value * MILLISECONDS if "_s_p" in name else value
