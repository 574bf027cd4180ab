"""What is looked at every second: one look that fails stops no other."""

import logging
from typing import cast

import pytest

from service.lookout import Lookout
from service.memory_guard import MemoryGuard
from service.runtime import Runtime
from service.watchdog import STALL_S
from tests.fake_runtime import make_service


class BrokenGuard:
    """A guard whose file cannot be read, as when no descriptor is left."""

    def look(self) -> None:
        raise OSError("too many open files")


class StandsStill:
    """An engine that does not move."""

    beat = 0.0
    has_ended = False
    was_given_up = False

    def give_up(self) -> str:
        self.was_given_up = True
        return "stack"


def test_a_look_that_fails_is_told_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    service = make_service(memory=cast(MemoryGuard, BrokenGuard()))
    engine = StandsStill()
    lookout = Lookout(service, [cast(Runtime, engine)])

    with caplog.at_level(logging.ERROR, "service.lookout"):
        for second in range(int(STALL_S) + 2):
            lookout.look(float(second))

    assert engine.was_given_up
    assert lookout.has_lost_engine
    assert "too many open files" in caplog.text
