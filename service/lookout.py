"""What is looked at about once a second while a server runs: its engines, its file of keys and its memory.

Knows runtimes and the times that it is told; ends nothing itself. Always: who waits for an engine that is lost was
answered when `look` returns, and no engine is declared lost twice; a fault in one look stops neither the others nor the
next.
"""

import logging
from collections.abc import Sequence
from functools import partial

from service.context import Service
from service.key_file import key_file_of
from service.logs import told
from service.runtime import Runtime
from service.watchdog import Watchdog

logger = logging.getLogger(__name__)


class Lookout:
    """Looks after one service."""

    def __init__(self, service: Service, runtimes: Sequence[Runtime]) -> None:
        self.has_lost_engine = False
        """What it holds is not known any more: the process has to end."""
        self._runtimes = runtimes
        self._watchdog = Watchdog(runtimes)
        self._key_file = key_file_of(service.keys)
        self._memory = service.memory

    def look(self, now: float) -> None:
        for look in (partial(self._look_at_engines, now), self._memory.look, self._look_at_keys):
            try:
                look()
            except Exception:
                logger.exception("what runs could not be looked at", extra=told("look_failed"))

    def _look_at_keys(self) -> None:
        if self._key_file is not None and self._key_file.look():
            for runtime in self._runtimes:
                runtime.let_keys_go(self._key_file.gone)

    def _look_at_engines(self, now: float) -> None:
        """Answer in the place of engines that are lost."""
        for index in () if self.has_lost_engine else self._watchdog.lost(now):
            self.has_lost_engine = True
            stack = self._runtimes[index].give_up()
            logger.critical("an engine does not move; its process is to end", extra=told("engine_lost", stack=stack))
