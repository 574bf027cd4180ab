"""Whether the caches that the options ask for fit beside the weights, in the memory that there is.

Knows settings, checkpoints and bounds on memory. Always: a size that was asked for is used or refused, never changed;
only the default is made smaller, and that is told.
"""

import logging
from collections.abc import Sequence

from model.loading.checkpoint import Checkpoint, ModelFileError
from service.logs import told
from service.memory import MemoryUse
from service.memory_guard import SHED
from service.model_report import parameters_of, stored_bytes_of
from service.settings import Settings

logger = logging.getLogger(__name__)

ROOM = 0.75
"""Of what may be held, that weights and a cache of the default size may come to; requests need memory too."""
SMALLEST = 1 << 20
TORCH_BYTES, NATIVE_BYTES = 4, 17 / 16
"""Of a weight: float32, and at most a code of 8 bits with its part of the scales."""
MIB = 1 << 20


def fitted(
    settings: Settings, models: Sequence[Checkpoint], drafts: Sequence[Checkpoint], memory: Sequence[MemoryUse]
) -> Settings:
    """The settings, with a smaller cache where the default one does not fit. Raises ModelFileError for what cannot.

    Each of the models has a cache; `drafts` are models whose cache has a size of its own.
    """
    if not memory:
        return settings
    weights = sum(_weight_bytes(settings, checkpoint) for checkpoint in (*models, *drafts))
    others = weights + len(drafts) * settings.draft_cache_bytes
    if "kv_cache_bytes" not in settings.model_fields_set:
        room = min(use.room(ROOM) for use in memory) - others
        size = max(SMALLEST, room // len(models))
        if size < settings.kv_cache_bytes:
            logger.warning(
                "the cache is %d MiB: that is what fits beside the weights",
                size // MIB,
                extra=told("smaller_cache", kv_cache_bytes=size, default_bytes=settings.kv_cache_bytes),
            )
            settings = settings.model_copy(update={"kv_cache_bytes": size})
    _check(others + len(models) * settings.kv_cache_bytes, settings, memory)
    return settings


def _check(needed: int, settings: Settings, memory: Sequence[MemoryUse]) -> None:
    tightest = min(memory, key=lambda use: use.room(SHED))
    if needed > tightest.room(SHED):
        raise ModelFileError(
            f"weights and caches need {needed // MIB} MiB beside the {tightest.used // MIB} MiB that the process "
            f"holds, and of {tightest.limit // MIB} MiB it may use {SHED:.0%}: a smaller --kv-cache-bytes than "
            f"{settings.kv_cache_bytes} may fit"
        )


def _weight_bytes(settings: Settings, checkpoint: Checkpoint) -> int:
    """About what the op set holds of it."""
    parameters = parameters_of(checkpoint)
    if settings.engine == "torch":
        return TORCH_BYTES * parameters
    return min(stored_bytes_of(checkpoint), int(NATIVE_BYTES * parameters))
