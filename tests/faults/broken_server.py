"""`tane serve` with a fault in it: `python -m tests.faults.broken_server FAULT STALL_S OPTIONS`.

Each SIGUSR1 brings the fault on: `hang`: no step of the engine ends any more; `panic`: the eleventh step from then on
raises what is no Exception; `clock`: the time of day jumps, an hour ahead and two back in turn. A step may take STALL_S
before the engine counts as lost.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

from model.runner import ModelRunner
from service import watchdog
from service.cli.main import main

AT_STEP = 11
JUMPS_S = (3600.0, -7200.0)


class Panic(BaseException):
    """As errors of extensions may be: no Exception."""


def hang() -> Callable[[], None]:
    broken, forward = threading.Event(), ModelRunner.forward

    def hanging(runner: ModelRunner, batch: Any) -> Any:
        while broken.is_set():
            threading.Event().wait(3600)
        return forward(runner, batch)

    ModelRunner.forward = hanging  # type: ignore[method-assign, assignment]
    return broken.set


def panic() -> Callable[[], None]:
    left, forward = [0], ModelRunner.forward

    def failing(runner: ModelRunner, batch: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise Panic
        return forward(runner, batch)

    def begin() -> None:
        left[0] = AT_STEP

    ModelRunner.forward = failing  # type: ignore[method-assign, assignment]
    return begin


def clock() -> Callable[[], None]:
    jumps, ahead_s, time_of_day = cycle(JUMPS_S), [0.0], time.time

    def jump() -> None:
        ahead_s[0] += next(jumps)

    time.time = lambda: time_of_day() + ahead_s[0]
    time.time_ns = lambda: int(time.time() * 1e9)
    return jump


FAULTS = {"hang": hang, "panic": panic, "clock": clock}

if __name__ == "__main__":
    begin = FAULTS[sys.argv.pop(1)]()
    watchdog.STALL_S = float(sys.argv.pop(1))
    signal.signal(signal.SIGUSR1, lambda *_: begin())
    sys.argv[0] = "tane"
    main()
