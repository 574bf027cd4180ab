"""`python -m tests.cluster`: replicas behind Ray Serve under the load test; one of them is lost, and one leaves.

Exits with 1 when a request was lost, a text changed, a stream was cut, or fewer than 95 of 100 requests that belong
together came to one replica.
"""

import asyncio
import json
import sys
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from service.cli.load_report import MILLISECONDS, LevelReport
from tests.cluster import router_load
from tests.cluster.partings import Failover, Leaving, is_heard_to_go, leave, lose
from tests.cluster.ray_cluster import ray_cluster

LEAST_SHARE = 0.95
KV_CACHE_BYTES = str(128 << 20)


@dataclass(frozen=True, slots=True)
class Shown:
    """All that was found out."""

    replicas: int
    start_s: float
    levels: list[LevelReport]
    is_heard_to_go: bool
    failover: Failover
    leaving: Leaving

    @property
    def affinity(self) -> float:
        return router_load.affinity(self.levels)

    @property
    def holds(self) -> bool:
        failed = sum(sum(level.errors.values()) for level in self.levels)
        parted = self.is_heard_to_go and self.failover.holds and self.leaving.holds
        return self.affinity >= LEAST_SHARE and not failed and parted

    def as_values(self) -> dict[str, Any]:
        return {**asdict(self), "affinity": self.affinity, "holds": self.holds}


def show_all(replicas: int, *, streams: int, tokens: int, sessions: int, groups: int, seed: int) -> Shown:
    with ray_cluster(replicas, TANE_KV_CACHE_BYTES=KV_CACHE_BYTES) as cluster:
        url, key = cluster.url, cluster.api_key
        levels = router_load.run(url, key, sessions=sessions, groups=groups, seed=seed)
        heard = is_heard_to_go(url, key)
        lost = asyncio.run(lose(cluster, count=streams, tokens=tokens, seed=seed))
        left = asyncio.run(
            leave(url, key, lambda: cluster.resize(replicas - 1), count=streams, tokens=tokens, seed=seed)
        )
        return Shown(replicas, cluster.start_s, levels, heard, lost, left)


def table(shown: Shown) -> Table:
    """The load test: medians of the time to the first token."""
    load = Table(title=f"{shown.replicas} replicas behind Ray Serve", title_justify="left")
    for heading in ("load", "requests", "came back", "requests (tokens) by replica", "tokens/s", "first token"):
        load.add_column(heading, no_wrap=heading.endswith("replica"))
    for level in shown.levels:
        load.add_row(*_row(level))
    return load


def _row(level: LevelReport) -> tuple[str, ...]:
    places, first = level.places, level.time_to_first_token_s
    assert places is not None, "replicas name themselves"
    return (
        level.load,
        f"{level.succeeded}/{level.requests}",
        f"{places.returned}/{places.could_return}",
        "\n".join(f"{name} {each.requests} ({each.generated_tokens})" for name, each in places.replicas.items()),
        f"{level.tokens_per_second:.0f}",
        f"{first.p50 * MILLISECONDS:.0f} ms" if first else "-",
    )


def notes(shown: Shown) -> list[str]:
    lost, left = shown.failover, shown.leaving
    attempts = ", ".join(f"{count} × {what}" for what, count in lost.failed_attempts.items()) or "none"
    return [
        f"Affinity: {shown.affinity:.1%} of the requests that belong with an earlier one came to its replica.",
        f"Killed: {lost.had_begun} of {lost.streams} streams ran, {lost.broken} of them there; {lost.as_calm} ended "
        f"with exactly the text of a calm run. {len(lost.lost)} of them and of {lost.short} short requests were lost.",
        f"Attempts that failed: {attempts}. Longest silence in a stream {lost.longest_gap_s:.1f} s; another replica "
        f"answered after {lost.replaced_s:.1f} s.",
        f"Left: {left.had_begun} of {left.streams} streams ran, and {left.whole} ended whole at the first attempt.",
        f"A reader who went {'was' if shown.is_heard_to_go else 'was NOT'} heard by the engine.",
        "All as it should be." if shown.holds else "NOT as it should be.",
    ]


@click.command()
@click.option("--replicas", type=click.IntRange(2), default=2, show_default=True)
@click.option("--streams", type=click.IntRange(2), default=16, show_default=True, help="When a replica goes.")
@click.option("--tokens", type=click.IntRange(16), default=128, show_default=True, help="Of each of these streams.")
@click.option("--sessions", type=click.IntRange(1), default=16, show_default=True, help="Of the load test.")
@click.option("--groups", type=click.IntRange(1), default=16, show_default=True, help="Of prompts that begin alike.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def main(*, as_json: bool, replicas: int, **options: int) -> None:
    """Show load, affinity and failover of replicas on this machine."""
    with redirect_stdout(sys.stderr):  # Ray tells of its processes on what it finds there
        shown = show_all(replicas, **options)
    if as_json:
        click.echo(json.dumps(shown.as_values(), indent=2))
    else:
        console = Console()
        console.print(table(shown))
        for note in notes(shown):
            console.print(note, highlight=False, soft_wrap=True)
    sys.exit(0 if shown.holds else 1)


if __name__ == "__main__":
    main()
