"""Keeps a server below the memory that it may hold: gives back what it can, then takes no new work.

Knows shares of memory; knows no models and no threads. Always: new work is refused from one share on and taken again
only below a smaller one, so that a server near the bound does not flutter; what was accepted goes on.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Literal

from service.errors import Overloaded
from service.logs import told
from service.memory import MemoryReader, MemoryUse

logger = logging.getLogger(__name__)

REFUSE = 0.95
"""Share of the limit from which on nothing new is taken."""
SHED = 0.92
"""From which on what can be given back is; and below which new work is taken again."""
CALM = 0.88
"""Below which giving back is over."""
SHED_EVERY = 10
"""Looks until it is tried again."""

Pressure = Literal["none", "shed", "refuse"]


class MemoryGuard:
    """To be asked to look about once a second, and before a body is read."""

    def __init__(self, read: MemoryReader, shed: Sequence[Callable[[], object]] = ()) -> None:
        """`shed`: what gives memory back, quickly."""
        self._read = read
        self._shed = shed
        self._looks = 0
        self.pressure: Pressure = "none"
        self.use: MemoryUse | None = None
        """At the last look, under the bound that is nearest; None: not known."""

    def look(self) -> None:
        """See how much is held, and give back what can be given where that is much."""
        uses = self._read()
        if not uses:
            return
        self.use = max(uses, key=lambda use: use.share)
        before, self.pressure = self.pressure, self._judged(self.use.share)
        if before != self.pressure:
            self._tell(before, self.use)
            self._looks = 0
        if self.pressure != "none":
            if self._looks % SHED_EVERY == 0:
                for give_back in self._shed:
                    give_back()
            self._looks += 1

    def check(self) -> None:
        """Raises Overloaded while nothing new may be taken."""
        if self.pressure == "refuse":
            raise Overloaded("the server's memory is nearly used up")

    def _judged(self, share: float) -> Pressure:
        if share >= REFUSE or (self.pressure == "refuse" and share >= SHED):
            return "refuse"
        if share >= SHED or (self.pressure != "none" and share >= CALM):
            return "shed"
        return "none"

    def _tell(self, before: Pressure, use: MemoryUse) -> None:
        does = {
            "none": "memory is no longer short",
            "shed": "memory is short; what can be is given back",
            "refuse": "memory is nearly used up; new requests are refused",
        }[self.pressure]
        logger.warning(
            does,
            extra=told("memory", pressure=self.pressure, before=before, used_bytes=use.used, limit_bytes=use.limit),
        )
