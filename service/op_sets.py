"""Which op set runs, and what follows from it: what a token costs in the cache, how far answers repeat, a fingerprint.

Knows settings and model shapes. Always: an op set is imported only when it is chosen, so a server on the native one
never loads torch.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from model.loading.checkpoint import Checkpoint, ModelFileError
from service.settings import Settings

CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
FLOAT32_BYTES = 4
HASH_CHARACTERS = 16
"""Of the model file's hash in a fingerprint."""


@dataclass(frozen=True, slots=True)
class ChosenOpSet:
    """An op set before it exists: `make` takes the number of pages."""

    name: str
    bytes_per_token: int
    reproducibility_level: Literal["bitwise", "best_effort"]
    fingerprint: str
    make: Callable[[int], Any]


def choose_op_set(settings: Settings, checkpoint: Checkpoint) -> ChosenOpSet:
    """Raises ModelFileError when the op set cannot run the model."""
    return _torch(settings, checkpoint) if settings.engine == "torch" else _native(settings, checkpoint)


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and what its control group grants in a period."""
    affinity = getattr(os, "sched_getaffinity", None)  # which only Linux has
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = CPU_LIMIT.read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


def _native(settings: Settings, checkpoint: Checkpoint) -> ChosenOpSet:
    from model.ops.native_ops import NUMERIC_VERSION, NativeOps, kv_bytes_per_token

    def make(page_count: int) -> NativeOps:
        try:
            return NativeOps(
                checkpoint.config,
                page_count,
                threads=settings.threads or usable_cores(),
                kv_type=settings.kv_type,
                isa=settings.isa,
                weight_type=settings.weights,
            )
        except ValueError as error:
            raise ModelFileError(str(error)) from error

    return ChosenOpSet(
        name="native",
        bytes_per_token=kv_bytes_per_token(checkpoint.config, settings.kv_type),
        reproducibility_level="bitwise",
        fingerprint=f"native-{NUMERIC_VERSION}-kv-{settings.kv_type}-weights-{settings.weights}-{_hash(checkpoint)}",
        make=make,
    )


def _torch(settings: Settings, checkpoint: Checkpoint) -> ChosenOpSet:
    def make(page_count: int) -> Any:
        import torch

        from model.ops.torch_ops import TorchOps

        torch.set_num_threads(settings.threads or usable_cores())
        return TorchOps(checkpoint.config, page_count, dtype=torch.float32)

    return ChosenOpSet(
        name="torch",
        bytes_per_token=checkpoint.config.cached_numbers_per_position * FLOAT32_BYTES,
        reproducibility_level="best_effort",
        fingerprint=f"torch-float32-{_hash(checkpoint)}",
        make=make,
    )


def _hash(checkpoint: Checkpoint) -> str:
    return checkpoint.sha256[:HASH_CHARACTERS]
