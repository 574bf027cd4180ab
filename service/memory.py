"""How much memory this process may hold, and how much it holds.

Knows Linux's files about that; where they are missing nothing is known, and nothing is bounded. Knows no models.
Always: reading how much is held is one short read of one file.
"""

import ctypes
import gc
import os
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

STATM = Path("proc/self/statm")
GROUPS = Path("proc/self/cgroup")
GROUP_FILES = {True: Path("sys/fs/cgroup"), False: Path("sys/fs/cgroup/memory")}
"""Where control groups of version two, and those of version one that bound memory, are shown."""
GROUP_LIMITS = {True: "memory.max", False: "memory.limit_in_bytes"}


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What is held of what may be held, in bytes."""

    used: int
    limit: int

    @property
    def share(self) -> float:
        return self.used / self.limit

    def room(self, share: float) -> int:
        """How much more may be held until this share of the limit is reached; below 0 when it is exceeded."""
        return int(self.limit * share) - self.used


MemoryReader = Callable[[], tuple[MemoryUse, ...]]
"""Tells the use under each bound. Empty: nothing is known."""


def own_memory(root: Path = Path("/")) -> MemoryReader:
    """Reads this process's resident memory, and its address space where that is bounded too."""
    statm = root / STATM
    try:
        statm.read_text()
    except OSError:
        return tuple
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    resident_limit = min([os.sysconf("SC_PHYS_PAGES") * page_bytes, *_group_limits(root)])

    def read() -> tuple[MemoryUse, ...]:
        space, resident = (int(pages) * page_bytes for pages in statm.read_text().split()[:2])
        space_limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        uses = (MemoryUse(resident, resident_limit),)
        return uses if space_limit == resource.RLIM_INFINITY else (*uses, MemoryUse(space, space_limit))

    return read


def give_back() -> None:
    """Return to the system what was freed, where the C library can (malloc_trim(3))."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _group_limits(root: Path) -> Iterator[int]:
    """What the control groups that this process is in allow, those around them included (cgroups(7))."""
    try:
        lines = (root / GROUPS).read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        is_unified = not controllers
        group = PurePosixPath(path)
        for each in (group, *group.parents):
            file = root / GROUP_FILES[is_unified] / each.relative_to("/") / GROUP_LIMITS[is_unified]
            try:
                text = file.read_text().strip()
            except OSError:
                continue
            if text.isdigit():
                yield int(text)
