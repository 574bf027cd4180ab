"""Generation without a server: one model, stepped in the calling thread.

Knows the engine and the door's prices; knows no HTTP and no threads. Always: the answer is the one that a server gives.
"""

import time
from collections.abc import Iterator

from service.admission import Ledger
from service.context import ServedModel
from service.engine_info import EngineInfo
from service.request import GenerationRequest, RequestEvent
from service.settings import Settings
from service.startup import Progress, load


class LocalGenerator:
    """Generation in the calling thread, without a server."""

    def __init__(self, settings: Settings, *, progress: Progress | None = None) -> None:
        self._loaded = load(settings, progress=progress)

    @property
    def engine_info(self) -> EngineInfo:
        return self._loaded.info

    @property
    def model(self) -> ServedModel:
        return self._loaded.model

    def stream(self, request: GenerationRequest) -> Iterator[RequestEvent]:
        """The request's events as they come, its terminal one last. Raises what the door would: InvalidField."""
        ledger = Ledger(
            page_count=self.engine_info.page_count, max_queue_tokens=1, max_sessions=1, clock=time.monotonic
        )
        ledger.admit(request)
        engine = self._loaded.engine
        engine.submit(request, time.monotonic())
        try:
            while not engine.is_idle:
                yield from engine.step()[0]
        finally:
            engine.stop()
