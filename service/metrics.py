"""What operators see: step reports and answered requests, as Prometheus numbers.

The only module that turns events into numbers. Knows the names of the metrics and nothing of how the work is done.
Always: labels come from closed sets, each app has a registry of its own, and reading changes nothing.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)

from service.memory import MemoryUse
from service.memory_guard import Pressure
from service.request import EvictionReason, FailureCode, FinishReason
from service.step_report import StepReport

RATE_WINDOW_S = 10.0
_SLOTS_PER_S = 4
NAN = float("nan")
OUTCOMES = (*get_args(FinishReason), *get_args(FailureCode))

# A creation time for every series doubles their number and tells no one anything.
disable_created_metrics()  # type: ignore[no-untyped-call]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_TOKEN_SECONDS = (0.001, 0.002, 0.004, 0.006, 0.008, 0.012, 0.016, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


class TokenRate:
    """Tokens per second over the last ten seconds. One thread adds, any may read."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Replaced as a whole and never changed in place, so that a reader needs no lock.
        self._slots: tuple[tuple[int, int], ...] = ()

    def add(self, tokens: int) -> None:
        now = int(self._clock() * _SLOTS_PER_S)
        kept = tuple(slot for slot in self._slots if slot[0] > now - RATE_WINDOW_S * _SLOTS_PER_S)
        if kept and kept[-1][0] == now:
            tokens += kept[-1][1]
            kept = kept[:-1]
        self._slots = (*kept, (now, tokens))

    def read(self) -> float:
        oldest = int(self._clock() * _SLOTS_PER_S) - RATE_WINDOW_S * _SLOTS_PER_S
        return sum(tokens for slot, tokens in self._slots if slot > oldest) / RATE_WINDOW_S


class Metrics:
    """The numbers of one server: those of its models, and those of HTTP."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self._clock = clock
        self._families = _Families(self.registry)
        self._http = Counter(
            "tane_http_requests", "HTTP requests answered.", ["route", "status"], registry=self.registry
        )

    def of_model(self, name: str, *, page_bytes: int, page_count: int, about: Mapping[str, str]) -> "ModelMetrics":
        """The numbers of a model that is served under this name; `about` is what else is told of it."""
        return ModelMetrics(
            self._families, name, page_bytes=page_bytes, page_count=page_count, about=about, clock=self._clock
        )

    def of_memory(self, use: Callable[[], MemoryUse | None], pressure: Callable[[], Pressure]) -> None:
        """Show the memory of this process, as it was when last looked at."""
        held = Gauge(
            "tane_memory_bytes", "Memory of the process, and what it may hold.", ["kind"], registry=self.registry
        )
        held.labels("used").set_function(lambda: getattr(use(), "used", NAN))
        held.labels("limit").set_function(lambda: getattr(use(), "limit", NAN))
        state = Gauge("tane_memory_pressure", "1 for what the server does about it.", ["state"], registry=self.registry)
        for name in get_args(Pressure):
            state.labels(name).set_function(partial(_is, name, pressure))

    def http(self, route: str, status: int) -> None:
        """Count an answered HTTP request. `route` is a template, never a path as it was sent."""
        self._http.labels(route, str(status)).inc()

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)


def _is(name: Pressure, pressure: Callable[[], Pressure]) -> float:
    return float(pressure() == name)


class _Families:
    """The metrics that each model has a series of, or several."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.about = Info("tane_model", "A served model and what it runs on.", ["model"], registry=registry)
        self._add_tokens()
        self._add_requests()
        self._add_engine()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, ["model", *labels], registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, ["model", *labels], registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, ["model"], buckets=buckets, registry=self._registry)

    def _add_tokens(self) -> None:
        self.prompt = self._counter("tane_prompt_tokens", "Prompt tokens of admitted requests, cached included.")
        self.generated = self._counter("tane_generated_tokens", "Generated tokens.")
        self.queried = self._counter(
            "tane_prefix_cache_queried_tokens", "Prompt tokens that the prefix cache was asked for."
        )
        self.hit = self._counter("tane_prefix_cache_hit_tokens", "Prompt tokens that the prefix cache held.")
        self.evicted = self._counter("tane_kv_cache_evicted_tokens", "Tokens dropped from the cache.", "reason")
        self.drafted = self._counter("tane_speculation_drafted_tokens", "Tokens guessed ahead.")
        self.accepted = self._counter("tane_speculation_accepted_tokens", "Tokens guessed ahead and kept.")
        self.rate = self._gauge(
            "tane_tokens_per_second",
            "Generated tokens per second over the last ten seconds; for people, use rate() of the counter.",
        )

    def _add_requests(self) -> None:
        self.ended = self._counter("tane_requests", "Requests that ended.", "outcome")
        self.active = self._gauge("tane_active_requests", "Unfinished requests.", "state")
        self.reserved = self._gauge(
            "tane_reserved_tokens",
            "Cache positions that unfinished requests may come to hold, as the queue counts them.",
        )
        self.preemptions = self._counter(
            "tane_preemptions", "Times that a running request gave its pages back, to go on later."
        )
        self.times = {
            "queue_s": self._histogram("tane_queue_seconds", "Time in the queue.", _SECONDS),
            "time_to_first_token_s": self._histogram(
                "tane_time_to_first_token_seconds", "From arrival to the first token.", _SECONDS
            ),
            "inter_token_s": self._histogram(
                "tane_inter_token_latency_seconds", "Between two tokens of one text.", _TOKEN_SECONDS
            ),
            "request_s": self._histogram("tane_request_seconds", "From arrival to the end.", _SECONDS),
        }

    def _add_engine(self) -> None:
        self.steps = self._counter("tane_engine_steps", "Steps that ran.")
        self.rows = self._counter("tane_engine_rows", "Token positions that ran.", "kind")
        self.step_rows = self._histogram("tane_step_rows", "Token positions of one step.", _ROWS)
        self.pages = self._gauge("tane_kv_cache_bytes", "Memory of the cache by use.", "state")


class ModelMetrics:
    """The numbers of one model. `observe` is for its engine's thread."""

    def __init__(
        self,
        families: _Families,
        name: str,
        *,
        page_bytes: int,
        page_count: int,
        about: Mapping[str, str],
        clock: Callable[[], float],
    ) -> None:
        self._page_bytes = page_bytes
        self._rate = TokenRate(clock)
        families.about.labels(name).info(dict(about))
        families.rate.labels(name).set_function(self._rate.read)
        self._prompt, self._generated = families.prompt.labels(name), families.generated.labels(name)
        self._queried, self._hit = families.queried.labels(name), families.hit.labels(name)
        self._drafted, self._accepted = families.drafted.labels(name), families.accepted.labels(name)
        self._steps, self._step_rows = families.steps.labels(name), families.step_rows.labels(name)
        self._preemptions = families.preemptions.labels(name)
        self._times = {field: histogram.labels(name) for field, histogram in families.times.items()}
        # A series is there from the start, so that its first count is seen as a growth.
        self._evicted = {reason: families.evicted.labels(name, reason) for reason in get_args(EvictionReason)}
        self._ended = {outcome: families.ended.labels(name, outcome) for outcome in OUTCOMES}
        self._active = {state: families.active.labels(name, state) for state in ("running", "queued")}
        self._rows = {kind: families.rows.labels(name, kind) for kind in ("prefill", "decode")}
        self._pages = {state: families.pages.labels(name, state) for state in ("leased", "idle", "free")}
        self._show_pages(free=page_count, idle=0, leased=0)
        self._reserved = families.reserved.labels(name)

    def show_reserved(self, tokens: Callable[[], float]) -> None:
        """Ask for the reserved tokens whenever the numbers are read."""
        self._reserved.set_function(tokens)

    def observe(self, report: StepReport) -> None:
        """Count what one step did."""
        self._prompt.inc(report.prompt_tokens)
        self._generated.inc(report.generated_tokens)
        self._queried.inc(report.queried_tokens)
        self._hit.inc(report.hit_tokens)
        self._drafted.inc(report.drafted_tokens)
        self._accepted.inc(report.accepted_tokens)
        self._preemptions.inc(report.preemptions)
        self._rate.add(report.generated_tokens)
        for reason, tokens in report.evicted_tokens.items():
            self._evicted[reason].inc(tokens)
        for outcome in report.outcomes:
            self._ended[outcome].inc()
        for name, histogram in self._times.items():
            for seconds in getattr(report, name):
                histogram.observe(seconds)
        self._active["running"].set(report.running)
        self._active["queued"].set(report.queued)
        self._show_pages(free=report.free_pages, idle=report.idle_pages, leased=report.leased_pages)
        if report.ran:
            self._count_step(report)

    def _count_step(self, report: StepReport) -> None:
        self._steps.inc()
        self._rows["prefill"].inc(report.prefill_rows)
        self._rows["decode"].inc(report.decode_rows)
        self._step_rows.observe(report.prefill_rows + report.decode_rows)

    def _show_pages(self, *, free: int, idle: int, leased: int) -> None:
        for state, pages in (("free", free), ("idle", idle), ("leased", leased)):
            self._pages[state].set(pages * self._page_bytes)
