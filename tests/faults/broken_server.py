"""`tane serve` with a fault in it: `python -m tests.faults.broken_server STALL_S OPTIONS`.

From SIGUSR1 on no step of its engine ends. A step may take STALL_S before the engine counts as lost.
"""

import signal
import sys
import threading
from typing import Any

from model.runner import ModelRunner
from service import watchdog
from service.cli.main import main


def break_engine() -> None:
    broken, forward = threading.Event(), ModelRunner.forward

    def hanging(runner: ModelRunner, batch: Any) -> Any:
        while broken.is_set():
            threading.Event().wait(3600)
        return forward(runner, batch)

    ModelRunner.forward = hanging  # type: ignore[method-assign, assignment]
    signal.signal(signal.SIGUSR1, lambda *_: broken.set())


if __name__ == "__main__":
    watchdog.STALL_S = float(sys.argv.pop(1))
    break_engine()
    sys.argv[0] = "tane"
    main()
