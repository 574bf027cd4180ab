"""Whether engines move, seen from outside of them.

Knows times and runtimes; ends nothing itself. Always: an engine is called lost only when it was seen to stand still,
look after look: a process that was stopped for a while, or a loop that was held up, proves nothing about it.
"""

from collections.abc import Sequence
from typing import Protocol

STALL_S = 30.0
"""How long a step may take."""
LOOK_S = 2.0
"""The most that one look may count for; looks are meant to come every second."""


class Watched(Protocol):
    """An engine that runs."""

    @property
    def beat(self) -> float:
        """When it last ended a turn; an idle one ends one every second."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing turns it any more, though nobody stopped it."""


class Watchdog:
    """Looks after several engines."""

    def __init__(self, watched: Sequence[Watched]) -> None:
        self._watched = watched
        self._beats: list[float | None] = [None] * len(watched)
        self._stood_s = [0.0] * len(watched)
        self._looked: float | None = None

    def lost(self, now: float) -> list[int]:
        """Which engines will not move again, by their place."""
        elapsed = 0.0 if self._looked is None else min(now - self._looked, LOOK_S)
        self._looked = now
        for place, each in enumerate(self._watched):
            stands = each.beat == self._beats[place]
            self._stood_s[place] = self._stood_s[place] + elapsed if stands else 0.0
            self._beats[place] = each.beat
        return [place for place, each in enumerate(self._watched) if each.has_ended or self._stood_s[place] >= STALL_S]
