"""Loads the model that guesses tokens ahead, and refuses one that speaks of other tokens than the served model.

Always: what cannot work fails here, with one line that says why, and never at a request.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from model.decoding.sampler import Sampler
from model.kv_cache import PAGE_SIZE
from model.loading.checkpoint import Checkpoint, ModelFileError
from model.runner import ModelRunner
from service.context import ServedDraft
from service.draft_model import DraftModel
from service.op_sets import choose_op_set
from service.settings import Settings

OpenModel = Callable[[Path], Checkpoint]
"""Reads and checks the model at a path. Raises ModelFileError."""
FindModel = Callable[[str | None], Path]
"""Says where a model lies, or the default one, and pulls it when it is missing. Raises ModelFileError and PullError."""


@dataclass(frozen=True, slots=True)
class LoadedDraft:
    """The draft model as the door knows it, and how to begin with an empty cache of it."""

    served: ServedDraft
    make: Callable[[], DraftModel]


def open_draft(settings: Settings, open_model: OpenModel, find_model: FindModel) -> list[tuple[Path, Checkpoint]]:
    """Where the draft model lies, and what it says; nothing when none is wanted. Raises ModelFileError.

    The name of a variant means that variant.
    """
    if settings.draft is None:
        return []
    path = find_model(settings.variants.get(settings.draft, settings.draft))
    return [(path, open_model(path))]


def load_draft(settings: Settings, target: Checkpoint, path: Path, checkpoint: Checkpoint) -> LoadedDraft:
    """An engine for the draft model that lies there. Raises ModelFileError."""
    _check_vocabulary(path, checkpoint, target)
    op_set = choose_op_set(settings, checkpoint)
    page_bytes = op_set.bytes_per_token * PAGE_SIZE
    page_count = settings.draft_cache_bytes // page_bytes
    if not page_count:
        raise ModelFileError(
            f"a page of {PAGE_SIZE} tokens needs {page_bytes} bytes, "
            f"and --draft-cache-bytes allows {settings.draft_cache_bytes}"
        )
    ops = op_set.make(page_count)
    try:
        runner = ModelRunner(ops, checkpoint)
    except ValueError as error:
        raise ModelFileError(str(error), path=path) from error
    # Texts end where the served model says, and so do its bans.
    sampler = Sampler(ops, target.vocabulary.eos_token_ids)

    def make() -> DraftModel:
        context_length = checkpoint.config.context_length
        return DraftModel(runner, sampler, page_count=page_count, context_length=context_length, clock=time.monotonic)

    name = settings.draft if settings.draft in settings.variants else checkpoint.name
    return LoadedDraft(ServedDraft(name, checkpoint.sha256, page_count * page_bytes), make)


def _check_vocabulary(path: Path, draft: Checkpoint, target: Checkpoint) -> None:
    """Every id must mean the same token to both models."""
    mine, theirs = draft.vocabulary.tokens, target.vocabulary.tokens
    if mine != theirs:
        token_id = next(id for id, (one, other) in enumerate(zip_longest(mine, theirs)) if one != other)
        raise ModelFileError(
            f"the draft model's vocabulary is not that of the served one: they have {len(mine)} and {len(theirs)} "
            f"tokens, and token {token_id} is the first that differs",
            path=path,
        )
    sizes = draft.config.vocabulary_size, target.config.vocabulary_size
    if sizes[0] != sizes[1]:
        raise ModelFileError(f"the draft model gives {sizes[0]} logits, and the served one {sizes[1]}", path=path)
