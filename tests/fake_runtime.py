"""A running engine that plays scripts, and a service around it, for tests of the door.

Always: a ticket gives its script's events in order; past the end of the script it is silent until it is cancelled.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from model.chat import ChatTemplate
from model.config import ModelConfig
from model.decoding.params import TokenLogprob
from model.loading.checkpoint import GenerationDefaults
from model.tokenizer import Tokenizer
from service.admission import Quote
from service.beside import worker_lock
from service.constraints import ConstraintCache
from service.context import Served, ServedModel, Service
from service.engine_info import EngineInfo
from service.errors import ServiceError
from service.keys import Keys
from service.memory_guard import MemoryGuard
from service.metrics import Metrics, ModelMetrics
from service.model_report import ModelReport
from service.request import (
    CacheReport,
    CommandAnswer,
    Completion,
    DeleteSession,
    Delta,
    DescribeSession,
    Failed,
    FailureCode,
    Finished,
    ForkSession,
    GenerationRequest,
    ListSessions,
    SessionCommand,
    SessionInfo,
    SessionProblem,
    Timings,
    TokenRecord,
    Usage,
)
from service.settings import Settings
from tests.tiny_vocabulary import tiny_vocabulary

CONTEXT_LENGTH = 64
CHAT = "{% for m in messages %}{{ '<|start|>' + m['role'] + '\n' + m['content'] + '<|end|>' }}{% endfor %}"
TIMINGS = Timings(queue_s=0.25, prefill_s=0.5, decode_s=1.0, tokens_per_second=2.0)


@dataclass(frozen=True, slots=True)
class Silence:
    """A pause in a script."""

    seconds: float


Step = Delta | Finished | Failed | Silence
Script = Callable[[GenerationRequest], Sequence[Step]]


class FakeTicket:
    def __init__(self, request_id: str, script: Sequence[Step]) -> None:
        self._request_id = request_id
        self._script = deque(script)
        self._cancelled = asyncio.Event()
        self.cancels = 0

    async def next_event(self) -> Delta | Finished | Failed:
        while self._script and not self._cancelled.is_set():
            step = self._script.popleft()
            if not isinstance(step, Silence):
                return step
            await self._rest(step)
        await self._cancelled.wait()
        return Failed(self._request_id, "cancelled", Usage())

    async def _rest(self, silence: Silence) -> None:
        """Be silent; whoever cuts this short finds what is left of it the next time."""
        began = time.monotonic()
        try:
            await asyncio.wait_for(self._cancelled.wait(), silence.seconds)
        except TimeoutError:
            return
        except asyncio.CancelledError:
            self._script.appendleft(Silence(silence.seconds - (time.monotonic() - began)))
            raise

    def cancel(self) -> None:
        self.cancels += 1
        self._cancelled.set()


def tokens_of(text: str, request: GenerationRequest) -> tuple[TokenRecord, ...]:
    """One token for each byte, with log-probabilities when the request wants them."""
    ids = TOKENIZER.encode(text)
    if request.parameters.logprobs is None:
        return tuple(TokenRecord(token_id) for token_id in ids)
    top = tuple(TokenLogprob(rank, -1.0 - rank) for rank in range(request.parameters.logprobs.top))
    return tuple(TokenRecord(token_id, -0.5, top) for token_id in ids)


def deltas(request: GenerationRequest, *texts: str) -> list[Delta]:
    """One delta for each text and sample, the samples in turn."""
    sent = [0] * request.sample_count
    made = []
    for text in texts:
        for index in range(request.sample_count):
            tokens = tokens_of(text, request)
            sent[index] += len(tokens)
            made.append(Delta(request.id, index, text, tokens, sent[index]))
    return made


def finished(request: GenerationRequest, text: str) -> Finished:
    tokens = tokens_of(text, request)
    return Finished(
        request.id,
        tuple(Completion(index, text, tokens, "length") for index in range(request.sample_count)),
        Usage(len(request.prompt_ids), len(tokens) * request.sample_count, cached_tokens=1),
        CacheReport(reused_tokens=1, computed_tokens=len(request.prompt_ids) - 1, reason="prefix"),
        TIMINGS,
    )


def plain(*texts: str) -> Script:
    """The texts one after the other, as deltas when they are wanted, and then the end."""

    def script(request: GenerationRequest) -> Sequence[Step]:
        pieces = deltas(request, *texts) if request.streams else []
        return [*pieces, finished(request, "".join(texts))]

    return script


def failing(code: FailureCode, *texts: str) -> Script:
    """The texts, and then a failure."""

    def script(request: GenerationRequest) -> Sequence[Step]:
        return [*deltas(request, *texts), Failed(request.id, code, Usage())]

    return script


def silent(*texts: str) -> Script:
    """The texts, and then nothing."""
    return lambda request: deltas(request, *texts)


class FakeRuntime:
    """Accepts everything, unless `refusal` says otherwise, and knows one session named `known`."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or plain("sun", "rise")
        self.refusal: ServiceError | None = None
        self.problem: SessionProblem | None = None
        self.requests: list[GenerationRequest] = []
        self.tickets: list[FakeTicket] = []
        self.quoted: list[GenerationRequest] = []
        self.commands: list[SessionCommand] = []
        self.draining = False
        self.is_ready = True
        self.is_live = True

    @property
    def request(self) -> GenerationRequest:
        """The only request so far."""
        (request,) = self.requests
        return request

    @property
    def ticket(self) -> FakeTicket:
        """The only ticket so far."""
        (ticket,) = self.tickets
        return ticket

    def submit(self, request: GenerationRequest) -> FakeTicket:
        if self.refusal is not None:
            raise self.refusal
        self.requests.append(request)
        self.tickets.append(FakeTicket(request.id, self.script(request)))
        return self.tickets[-1]

    def quote(self, request: GenerationRequest) -> Quote:
        self.quoted.append(request)
        return Quote(64, 1.5, self.refusal)

    async def command(self, command: SessionCommand) -> CommandAnswer:
        self.commands.append(command)
        if self.problem is not None:
            return CommandAnswer(command.id, problem=self.problem)
        known = SessionInfo("known", tokens=5, bytes=320, idle_s=1.5, busy=False, parent=None)
        match command:
            case ListSessions() | DescribeSession() | DeleteSession():
                return CommandAnswer(command.id, (known,))
            case ForkSession():
                child = replace(known, id=command.new_session_id, parent=command.session_id)
                return CommandAnswer(command.id, (child,))


TOKENIZER = Tokenizer(tiny_vocabulary(merges=()))
ENGINE_INFO = EngineInfo(
    engine="fake",
    kv_cache_bytes=1 << 20,
    kv_bytes_per_token=64,
    page_count=512,
    page_size=32,
    max_queue_tokens=4096,
    context_length=CONTEXT_LENGTH,
    reproducibility_level="best_effort",
    fingerprint="fp",
)
MODEL = ServedModel(
    name="tiny",
    sha256="00" * 32,
    config=ModelConfig(
        architecture="llama",
        layer_count=1,
        width=32,
        head_count=1,
        kv_head_count=1,
        head_width=32,
        feed_forward_width=32,
        vocabulary_size=TOKENIZER.vocabulary_size,
        context_length=CONTEXT_LENGTH,
        rope_base=1e4,
        norm_epsilon=1e-5,
    ),
    tokenizer=TOKENIZER,
    constraints=ConstraintCache(TOKENIZER, make_lock=worker_lock),
    report=ModelReport(parameters=1000, bytes=625, bits_per_weight=5.0, recipe=None, report=None, evaluation=None),
    chat_template=ChatTemplate(CHAT, TOKENIZER),
    defaults=GenerationDefaults(temperature=0.2, top_p=0.9),
)


def make_metrics(*names: str) -> tuple[Metrics, dict[str, ModelMetrics]]:
    """Metrics of a server of these models, or of the one named `tiny`, and what each model counts."""
    metrics = Metrics()
    numbers = {"page_bytes": ENGINE_INFO.page_bytes, "page_count": ENGINE_INFO.page_count}
    models = {name: metrics.of_model(name, **numbers, about={"engine": "fake"}) for name in names or ("tiny",)}
    return metrics, models


def make_service(
    runtime: FakeRuntime | None = None,
    *,
    model: ServedModel = MODEL,
    engine_info: EngineInfo = ENGINE_INFO,
    settings: Settings | None = None,
    variants: Sequence[Served] = (),
    keys: Keys | None = None,
    memory: MemoryGuard | None = None,
) -> Service:
    """A service of one model, and of variants beside it."""
    served = [Served(runtime or FakeRuntime(), engine_info, model), *variants]
    metrics, _ = make_metrics(*(each.model.name for each in served))
    guard = memory or MemoryGuard(tuple)
    return Service({each.model.name: each for each in served}, settings or Settings(), metrics, keys, memory=guard)
