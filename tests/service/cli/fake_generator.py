"""Generation without a server and without a model, for commands that would load one."""

from collections.abc import Iterator
from typing import Any

from service.context import ServedModel
from service.engine_info import EngineInfo
from service.request import Event, GenerationRequest
from service.settings import Settings
from tests.fake_runtime import ENGINE_INFO, MODEL, Script, Silence


class FakeGenerator:
    """Plays a script instead of a model, and remembers how it was made and asked."""

    script: Script
    settings: Settings | None
    request: GenerationRequest

    def __init__(self, settings: Settings, *, progress: Any) -> None:
        FakeGenerator.settings = settings

    @property
    def model(self) -> ServedModel:
        return MODEL

    @property
    def engine_info(self) -> EngineInfo:
        return ENGINE_INFO

    def stream(self, request: GenerationRequest) -> Iterator[Event]:
        FakeGenerator.request = request
        for step in FakeGenerator.script(request):
            assert not isinstance(step, Silence)
            yield step
