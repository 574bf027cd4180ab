"""An engine that stands still in the middle of a step, for as long as a test wants. Knows the running engine alone."""

import threading

from service.runtime import Runtime


class Stuck:
    """A step of the engine that begins, after so many others, and does not end before it may."""

    def __init__(self, runtime: Runtime, after: int = 0) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()
        self._step = runtime._engine.step
        self._left = after

    def standing_still(self) -> object:
        self._left -= 1
        if self._left < 0:
            self.began.set()
            self.go_on.wait(10)
        return self._step()
