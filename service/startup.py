"""From settings to something that generates: load the model, build the op set, the engine and what the door needs.

The one place where all parts meet. Knows no routes.
Always: what cannot work fails here, with one line that says why, and never at a request. A chat template that cannot
be used is told of here and refused where messages are sent: the model answers prompts without it.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from model.chat import ChatTemplate, ChatTemplateError
from model.decoding.sampler import Sampler
from model.decoding.transcript import Transcript
from model.kv_cache import PAGE_SIZE
from model.loading.checkpoint import Checkpoint, ModelFileError
from model.loading.locate import locate
from model.loading.model import load_model
from model.runner import ModelRunner
from model.tokenizer import Tokenizer
from service.admission import Ledger
from service.arriving import Arriving, most_bytes
from service.beside import worker_lock
from service.cache_size import fitted
from service.constraints import ConstraintCache
from service.context import Served, ServedModel, Service
from service.draft_loading import FindModel, LoadedDraft, OpenModel, load_draft, open_draft
from service.drafting import Drafting
from service.engine import Engine, EngineLimits, MakeBudget
from service.engine_info import EngineInfo
from service.key_file import KeyFile
from service.key_limits import KeyLedger, KeyLimits
from service.memory import give_back, own_memory
from service.memory_guard import MemoryGuard
from service.metrics import Metrics
from service.model_report import report_on
from service.op_sets import ChosenOpSet, choose_op_set
from service.runtime import Runtime
from service.settings import Settings
from service.step_budget import StepBudget

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]

QUEUE_CACHES = 8
"""Unless told otherwise, unfinished requests may reserve this many times what the cache holds."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """An engine ready to step, and the model as the door knows it."""

    engine: Engine
    info: EngineInfo
    model: ServedModel
    ops: Any
    """The op set that the engine computes on."""


def load(settings: Settings, *, progress: Progress | None = None, make_budget: MakeBudget = StepBudget) -> Loaded:
    """Load the main model, pulling the default one when it is missing. Raises ModelFileError and PullError."""
    return _load(settings, {}, _finder(settings, progress), load_model, make_budget)[0]


def load_all(
    settings: Settings, *, progress: Progress | None = None, open_model: OpenModel = load_model
) -> list[Loaded]:
    """Load the main model and the variants after it. Raises ModelFileError and PullError.

    Every file is read and checked once, however often it is named, and before the first engine is built.
    """
    return _load(settings, settings.variants, _finder(settings, progress), open_model)


def _load(
    settings: Settings,
    variants: Mapping[str, str],
    find: FindModel,
    open_model: OpenModel,
    make_budget: MakeBudget = StepBudget,
) -> list[Loaded]:
    open_once = cache(open_model)
    path = find(settings.model)
    main = open_once(path)
    paths = {name: _find_variant(name, model, find) for name, model in variants.items()}
    checkpoints = {name: _open_variant(name, path, main.name, open_once) for name, path in paths.items()}
    drafts = open_draft(settings, open_once, find)
    settings = fitted(settings, [main, *checkpoints.values()], [draft for _, draft in drafts], own_memory()())
    try:
        draft = load_draft(settings, main, *drafts[0]) if drafts else None
        loaded = [_loaded(settings, main, path, main.name, draft=draft, make_budget=make_budget)]
        for name, checkpoint in checkpoints.items():
            with _naming(name):
                loaded.append(_loaded(settings, checkpoint, paths[name], name))
    except MemoryError:
        raise ModelFileError(
            "there is not enough memory for weights and caches: --kv-cache-bytes is too much"
        ) from None
    return loaded


def _finder(settings: Settings, progress: Progress | None) -> FindModel:
    """Finds each model once, however often it is named."""
    return cache(partial(locate, folder=settings.models_folder, hub=settings.hub, progress=progress))


def _find_variant(name: str, model: str, find: FindModel) -> Path:
    with _naming(name):
        return find(model)


def _open_variant(name: str, path: Path, main_name: str, open_model: OpenModel) -> Checkpoint:
    with _naming(name):
        if name == main_name:
            raise ModelFileError("the main model has that name; choose another")
        return open_model(path)


@contextmanager
def _naming(variant: str) -> Iterator[None]:
    """Say of which variant an error speaks."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"--variant {variant}: {error}") from error


def _loaded(
    settings: Settings,
    checkpoint: Checkpoint,
    path: Path,
    name: str,
    *,
    draft: LoadedDraft | None = None,
    make_budget: MakeBudget = StepBudget,
) -> Loaded:
    """An engine for the model, which is served under this name."""
    tokenizer = Tokenizer(checkpoint.vocabulary)
    op_set = choose_op_set(settings, checkpoint)
    info = _engine_info(settings, checkpoint, op_set)
    template, problem = _chat_template(checkpoint.chat_template, tokenizer, name)
    model = ServedModel(
        name=name,
        sha256=checkpoint.sha256,
        config=checkpoint.config,
        tokenizer=tokenizer,
        constraints=ConstraintCache(tokenizer, make_lock=worker_lock),
        report=report_on(checkpoint, path),
        chat_template=template,
        chat_problem=problem,
        defaults=checkpoint.defaults,
        repeats_bits=op_set.reproducibility_level == "bitwise",
        draft=None if draft is None else draft.served,
    )
    ops = op_set.make(info.page_count)
    engine = _engine(settings, checkpoint, tokenizer, info, ops=ops, draft=draft, make_budget=make_budget)
    return Loaded(engine, info, model, ops)


def _chat_template(source: str | None, tokenizer: Tokenizer, model: str) -> tuple[ChatTemplate | None, str | None]:
    """The template, or why it cannot be used: everything but chats is served all the same."""
    if source is None:
        return None, None
    try:
        return ChatTemplate(source, tokenizer), None
    except ChatTemplateError as error:
        logger.warning("%s refuses messages: its chat template cannot be used: %r", model, error.reason)
        return None, error.reason


def build_service(settings: Settings, *, progress: Progress | None = None) -> Service:
    """Everything behind the door; no runtime is started yet. Raises KeysError, ModelFileError and PullError."""
    keys = None if settings.keys_file is None else KeyFile(Path(settings.keys_file))
    metrics = Metrics()
    limits = KeyLimits(settings.key_requests, settings.key_tokens_per_minute)
    ledger = KeyLedger(limits, clock=time.monotonic)
    served = [_served(settings, loaded, metrics, ledger) for loaded in load_all(settings, progress=progress)]
    read_memory = own_memory()
    limit = min((use.limit for use in read_memory()), default=None)
    arriving = Arriving(most_bytes(limit, settings.max_body_bytes))
    memory = MemoryGuard(read_memory, [*(each.model.constraints.clear for each in served), give_back])
    metrics.of_memory(lambda: memory.use, lambda: memory.pressure)
    models = {each.model.name: each for each in served}
    return Service(models, settings, metrics, keys, memory=memory, arriving=arriving)


def _served(settings: Settings, loaded: Loaded, metrics: Metrics, keys: KeyLedger) -> Served:
    info = loaded.info
    numbers = metrics.of_model(
        loaded.model.name,
        page_bytes=info.page_bytes,
        page_count=info.page_count,
        about={"engine": info.engine, "fingerprint": info.fingerprint},
    )
    ledger = Ledger(
        page_count=info.page_count,
        max_queue_tokens=info.max_queue_tokens,
        max_sessions=settings.max_sessions,
        clock=time.monotonic,
        keys=keys,
        key_pages=_key_pages(settings, info),
    )
    numbers.show_reserved(lambda: ledger.outstanding_tokens)
    return Served(Runtime(loaded.engine, ledger, on_report=numbers.observe), info, loaded.model)


def _key_pages(settings: Settings, info: EngineInfo) -> int | None:
    """The pages that one key may hold."""
    share = settings.key_cache_share
    return None if share is None else max(1, int(share * info.page_count))


def runtimes_of(service: Service) -> list[Runtime]:
    """The engines to start and stop. Raises TypeError for a service whose engines are not its own."""
    runtimes = [served.runtime for served in service.models.values() if isinstance(served.runtime, Runtime)]
    if len(runtimes) < len(service.models):
        raise TypeError("only a service with engines of its own can be served")
    return runtimes


def _engine_info(settings: Settings, checkpoint: Checkpoint, op_set: ChosenOpSet) -> EngineInfo:
    page_bytes = op_set.bytes_per_token * PAGE_SIZE
    page_count = settings.kv_cache_bytes // page_bytes
    if not page_count:
        raise ModelFileError(
            f"a page of {PAGE_SIZE} tokens needs {page_bytes} bytes, "
            f"and --kv-cache-bytes allows {settings.kv_cache_bytes}"
        )
    return EngineInfo(
        engine=op_set.name,
        kv_cache_bytes=page_count * page_bytes,
        kv_bytes_per_token=op_set.bytes_per_token,
        page_count=page_count,
        page_size=PAGE_SIZE,
        max_queue_tokens=settings.max_queue_tokens or QUEUE_CACHES * page_count * PAGE_SIZE,
        context_length=checkpoint.config.context_length,
        reproducibility_level=op_set.reproducibility_level,
        fingerprint=op_set.fingerprint,
    )


def _engine(
    settings: Settings,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    info: EngineInfo,
    *,
    ops: Any,
    draft: LoadedDraft | None,
    make_budget: MakeBudget,
) -> Engine:
    eos_token_ids = tokenizer.eos_token_ids
    try:
        runner = ModelRunner(ops, checkpoint)
    except ValueError as error:
        raise ModelFileError(str(error)) from error

    def make_drafting() -> Drafting:
        return Drafting(clock=time.monotonic, eos_token_ids=eos_token_ids, model=draft.make() if draft else None)

    return Engine(
        runner,
        Sampler(ops, eos_token_ids),
        EngineLimits(
            info.page_count,
            info.page_bytes,
            settings.session_ttl_s,
            settings.max_sessions,
            _key_pages(settings, info),
        ),
        make_transcript=lambda request: Transcript(
            tokenizer,
            stop=request.parameters.stop,
            min_new_tokens=request.parameters.min_new_tokens,
            known_tokens=len(request.resumed_ids),
        ),
        eos_token_ids=eos_token_ids,
        control_token_ids=tokenizer.control_token_ids,
        clock=time.monotonic,
        make_budget=make_budget,
        make_drafting=make_drafting,
    )
