"""What the door holds: the served models, each as text sees it and with its running engine, settings and metrics.

Knows names and no behaviour. Always: built once, before the first request, and never changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING, Protocol

from model.chat import Message
from model.config import ModelConfig
from model.decoding.constraint import CompiledConstraint, ConstraintSpec
from model.loading.checkpoint import GenerationDefaults
from service.admission import Quote
from service.arriving import Arriving
from service.engine_info import EngineInfo
from service.errors import NotFound
from service.keys import KnownKeys
from service.memory_guard import MemoryGuard
from service.metrics import Metrics
from service.model_report import ModelReport
from service.request import CommandAnswer, Delta, Failed, Finished, GenerationRequest, SessionCommand
from service.settings import Settings

if TYPE_CHECKING:  # it knows what is noted of requests, which knows tickets
    from service.traced import Tracer


class Ticket(Protocol):
    """One accepted request."""

    async def next_event(self) -> Delta | Finished | Failed:
        """What is new; a terminal event comes last, also after a cancellation. May be awaited again when cut short."""

    def cancel(self) -> None:
        """Ask for the end."""


class Runtime(Protocol):
    """The running engine, seen from the event loop."""

    draining: bool

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_live(self) -> bool: ...

    def submit(self, request: GenerationRequest) -> Ticket:
        """Raises InvalidField, SessionBusy, RateLimited, Overloaded or Draining, and then nothing was accepted."""

    def quote(self, request: GenerationRequest) -> Quote:
        """What a request would cost, and whether it would be accepted now."""

    async def command(self, command: SessionCommand) -> CommandAnswer: ...


class Tokenizer(Protocol):
    @property
    def vocabulary_size(self) -> int: ...

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    def encode(self, text: str) -> list[int]: ...

    def encode_prompt(self, text: str) -> list[int]: ...

    def decode(self, token_ids: Sequence[int]) -> str: ...

    def token_text(self, token_id: int) -> str: ...

    def token_bytes(self, token_id: int) -> bytes: ...


class Constraints(Protocol):
    def compiled(self, spec: ConstraintSpec, banned: Sequence[int], key_id: str | None = None) -> CompiledConstraint:
        """One for a single request of this API key. Slow: call it off the event loop. Raises ConstraintError."""

    def clear(self) -> None:
        """Keep nothing that was compiled."""


class ChatTemplate(Protocol):
    def encode(self, messages: Sequence[Message]) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class ServedDraft:
    """The model that guesses tokens ahead for the served one, and the memory of its cache."""

    name: str
    sha256: str
    kv_cache_bytes: int


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model as the door knows it: its name, its text and its defaults, without its weights."""

    name: str
    sha256: str
    config: ModelConfig
    tokenizer: Tokenizer
    constraints: Constraints
    report: ModelReport
    chat_template: ChatTemplate | None = None
    chat_problem: str | None = None
    """Why the template that the model has cannot be used."""
    defaults: GenerationDefaults = field(default_factory=GenerationDefaults)
    repeats_bits: bool = True
    """Whether a token has the same bits whatever runs beside it."""
    draft: ServedDraft | None = None


class Serving(Protocol):
    """A model that answers, and what its engine promises: what an answer is made from."""

    @property
    def model(self) -> ServedModel: ...

    @property
    def engine_info(self) -> EngineInfo: ...


@dataclass(frozen=True, slots=True)
class Served:
    """A model that answers over HTTP."""

    runtime: Runtime
    engine_info: EngineInfo
    model: ServedModel


@dataclass(frozen=True, slots=True)
class Service:
    """Everything that a route may need."""

    models: Mapping[str, Served]
    """By name, the main one first."""
    settings: Settings
    metrics: Metrics
    keys: KnownKeys | None = None
    """Of those who may call; None: anyone may."""
    tracer: "Tracer | None" = None
    """Who tells a collector of requests."""
    memory: MemoryGuard = field(default_factory=lambda: MemoryGuard(tuple))
    """What has the last word on new work."""
    arriving: Arriving = field(default_factory=Arriving)
    started_at: int = field(default_factory=lambda: int(time()))
    """Seconds since 1970."""

    @property
    def is_draining(self) -> bool:
        """Whether the server is about to end."""
        return any(served.runtime.draining for served in self.models.values())

    @property
    def main(self) -> Served:
        """The model of requests that name none."""
        return next(iter(self.models.values()))

    def named(self, name: str | None) -> Served:
        """The model that a request asks for. Raises NotFound."""
        served = self.main if name is None else self.models.get(name)
        if served is None:
            raise unknown_model(self.models)
        return served


def unknown_model(names: Iterable[str]) -> NotFound:
    """The error of a request for a model other than those of these names."""
    return NotFound("there is no such model", code="model_not_found", param="model", allowed=list(names))
