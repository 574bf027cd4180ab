"""How lean a server is: seconds from `tane serve` until it is ready, and what it keeps in memory while nobody calls.

Always: what is measured is a process of its own with the default options.
"""

import re
import statistics
import subprocess
import sys
from typing import Any

import click

from service.cli.console import count_bar, write_json
from tests.bench import machine
from tests.bench.record import deliver, markdown_table, output_options
from tests.bench.served import served
from tests.source_files import ROOT

NAME = "footprint"
MEGABYTE = 1e6
TARGET_SECONDS, TARGET_BYTES = 3, 400_000_000
HEAVY = ("torch", "transformers")
SLOWEST = 12
MODULES = "import service.cli.main, service.server, service.startup, model.ops.native_ops"


def import_times() -> list[tuple[str, float]]:
    """The modules whose own code takes longest to import, with their seconds, in a new interpreter."""
    answer = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", MODULES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = re.findall(r"^import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)$", answer.stderr, re.MULTILINE)
    return sorted(((name, int(own) / 1e6) for own, name in found), key=lambda entry: -entry[1])


def by_package(times: list[tuple[str, float]]) -> dict[str, float]:
    """The same seconds, added up for each top-level package, the slowest first."""
    packages: dict[str, float] = {}
    for name, seconds in times:
        package = name.partition(".")[0]
        packages[package] = packages.get(package, 0) + seconds
    return dict(sorted(packages.items(), key=lambda entry: -entry[1]))


def measure(starts: int, options: tuple[str, ...]) -> dict[str, Any]:
    """Start the server so many times; what each start took and kept."""
    ready, memory, loaded = [], [], set()
    with count_bar("starts", starts) as on_start:
        for _ in range(starts):
            with served(*options) as server:
                ready.append(server.ready_s)
                memory.append(server.memory)
                loaded |= {name for name in HEAVY if server.has_loaded(name)}
            on_start()
    return {
        "starts": starts,
        "ready_s": {"median": statistics.median(ready), "least": min(ready)},
        "memory_bytes": {name: statistics.median(each[name] for each in memory) for name in memory[0]},
        "heavy_libraries_loaded": sorted(loaded),
    }


def table(figures: dict[str, Any]) -> str:
    memory, ready = figures["memory_bytes"], figures["ready_s"]
    rows = [
        ("ready after", f"{ready['median']:.2f} s", f"{TARGET_SECONDS} s"),
        ("resident", f"{memory['resident'] / MEGABYTE:.0f} MB", f"{TARGET_BYTES / MEGABYTE:.0f} MB"),
        ("of which the process's own", f"{memory['own'] / MEGABYTE:.0f} MB", ""),
        ("torch or transformers in the process", ", ".join(figures["heavy_libraries_loaded"]) or "none", "none"),
    ]
    note = f"Default model, empty cache, median of {figures['starts']} starts. `{figures['command']}`"
    return f"{markdown_table(('', 'measured', 'at most'), rows)}\n\n{note}"


@click.command()
@click.option("--starts", type=click.IntRange(1), default=5, show_default=True, help="How often to start it.")
@click.option("--imports", "with_imports", is_flag=True, help="Show what takes longest to import, and nothing else.")
@output_options
@click.argument("options", nargs=-1)
def main(starts: int, with_imports: bool, as_json: bool, records: bool, options: tuple[str, ...]) -> None:
    """Measure how soon `tane serve OPTIONS` is ready, and how much memory it takes.

    \b
    Examples:
      python -m tests.bench.footprint --record
      python -m tests.bench.footprint --imports
      python -m tests.bench.footprint --starts 1 -- --engine torch
    """
    if with_imports:
        _show_imports(as_json)
        return
    figures = {
        "command": f"python -m tests.bench.footprint --starts {starts} --record",
        "machine": machine.described(),
        **measure(starts, options),
    }
    deliver(NAME, figures, table(figures), as_json=as_json, records=records)


def _show_imports(as_json: bool) -> None:
    times = import_times()
    packages = by_package(times)
    if as_json:
        write_json({"seconds": sum(packages.values()), "packages": packages, "modules": dict(times)})
        return
    click.echo(f"{sum(packages.values()):.3f} s together")
    for name, seconds in [*list(packages.items())[:SLOWEST], ("", 0.0), *times[:SLOWEST]]:
        click.echo(f"{seconds * 1000:7.1f} ms  {name}" if name else "")


if __name__ == "__main__":
    main()
