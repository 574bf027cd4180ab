"""One soak: callers, a canary and looks at the server, and what it comes to."""

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import httpx

from service.cli.plotting import figure
from tests.bench.served import served
from tests.hostile.canary import Song, singing
from tests.soak.callers import TIMEOUT_S, Caller, Tally
from tests.soak.samples import MIB, Sample, growth, look, slope_per_hour

KEYS = ("soak-key-one", "soak-key-two", "soak-key-three", "soak-canary")
WARM_UP = 0.5
"""Of the whole time: caches fill, and the allocator finds its size, which takes it ten minutes and more."""
LEAST_S_FOR_SLOPE = 600.0
MOST_SLOPE = 2 * MIB
MOST_GROWTH = 16 * MIB
"""Of a soak too short for a slope, in which the allocator still finds its size."""
SERVER = ("--kv-cache-bytes", str(32 << 20))
"""A cache that is full before the warm-up ends: its memory becomes the process's when it is first written."""
COUNTS = ("threads", "descriptors", "series")


@dataclass(frozen=True, slots=True)
class Soaked:
    """What a soak found. `samples` are those after the warm-up."""

    warming: Sequence[Sample]
    samples: Sequence[Sample]
    tally: Tally
    song: Song

    @property
    def slope(self) -> float | None:
        """Of its own memory in bytes an hour; None where the time was too short to tell."""
        seconds = self.samples[-1].at_s - self.samples[0].at_s
        return slope_per_hour(self.samples, "own_bytes") if seconds >= LEAST_S_FOR_SLOPE else None

    @property
    def holds(self) -> bool:
        """Whether nothing grows, nothing fails and no bit changes."""
        grows = growth(self.samples, "own_bytes") > MOST_GROWTH if self.slope is None else self.slope > MOST_SLOPE
        return (
            not grows
            and all(growth(self.samples, name) <= 0 for name in COUNTS)
            and not self.tally.problems
            and not self.tally.faults
            and self.song.is_unchanged
        )

    @property
    def figures(self) -> dict[str, Any]:
        """All of it, for people and programs."""
        return {
            "holds": self.holds,
            "seconds": round(self.samples[-1].at_s, 1),
            "memory_mib_per_hour": None if self.slope is None else round(self.slope / MIB, 3),
            "memory_growth_mib": round(growth(self.samples, "own_bytes") / MIB, 3),
            "memory_mib": round(self.samples[-1].own_bytes / MIB, 1),
            "growth": {name: growth(self.samples, name) for name in COUNTS},
            "counts": {name: getattr(self.samples[-1], name) for name in COUNTS},
            "sent": dict(self.tally.sent),
            "statuses": {str(status): count for status, count in sorted(self.tally.statuses.items(), key=str)},
            "faults": self.tally.faults,
            "problems": self.tally.problems[:50],
            "canary_answers": len(self.song.seconds),
            "canary_unchanged": self.song.is_unchanged,
            "samples": [asdict(each) for each in (*self.warming, *self.samples)],
        }


def soak(seconds: float, *, callers: int, every_s: float, options: Sequence[str] = ()) -> Soaked:
    """Start a server with keys, load it for so long, and look at it every so often."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "keys").write_text("\n".join(KEYS), encoding="utf-8")
        server = stack.enter_context(served("--keys-file", str(folder / "keys"), *SERVER, *options))
        calling = [Caller(server.url, KEYS[number % (len(KEYS) - 1)], number) for number in range(callers)]
        for caller in calling:
            stack.callback(caller.close)
        calling[0].everything()
        if seconds >= LEAST_S_FOR_SLOPE:
            calling[0].fill_constraints()
        headers = {"authorization": f"Bearer {KEYS[-1]}"}
        metrics = stack.enter_context(httpx.Client(base_url=server.url, headers=headers, timeout=TIMEOUT_S))
        with singing(server.url, KEYS[-1]) as song, _calling(calling):
            samples = _looks(server.process_id, metrics, seconds, every_s)
        tally = reduce(add, (caller.tally for caller in calling))
    warm = seconds * WARM_UP
    return Soaked(
        [each for each in samples if each.at_s < warm], [each for each in samples if each.at_s >= warm], tally, song
    )


def draw(soaked: Soaked, path: Path) -> None:
    """Draw memory and counts against time."""
    everything = [*soaked.warming, *soaked.samples]
    minutes = [each.at_s / 60 for each in everything]
    with figure(path, 2, size=(9, 3.2)) as (memory, counts):
        memory.plot(minutes, [each.own_bytes / MIB for each in everything])
        memory.set(xlabel="minutes", ylabel="MiB of its own", ylim=(0, None))
        for name in ("threads", "descriptors"):
            counts.plot(minutes, [getattr(each, name) for each in everything], label=name)
        counts.set(xlabel="minutes", ylim=(0, None))
        counts.legend(frameon=False)
        for panel in (memory, counts):
            panel.axvline(soaked.samples[0].at_s / 60, color="grey", linestyle=":")
            panel.grid(alpha=0.3)


@contextmanager
def _calling(callers: Sequence[Caller]) -> Iterator[None]:
    over = threading.Event()
    threads = [threading.Thread(target=caller.run, args=(over,), daemon=True) for caller in callers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(2 * TIMEOUT_S)


def _looks(process_id: int, metrics: httpx.Client, seconds: float, every_s: float) -> list[Sample]:
    began = time.monotonic()
    samples = []
    while (passed := time.monotonic() - began) < seconds:
        samples.append(look(process_id, metrics, began))
        time.sleep(min(every_s, max(seconds - passed, 0)))
    return samples
