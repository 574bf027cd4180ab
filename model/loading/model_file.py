"""A model file held open: bytes at a place, and the hash of the whole.

Knows no file formats. Always: what `read` returns lay in the file that was opened, unchanged since; a file
that shrinks or is written to meanwhile raises ModelFileError (it is never mapped, so no signal can arise).
"""

import hashlib
import os
import stat
import weakref
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.loading.checkpoint import ModelFileError

MAX_FILE_BYTES = 1 << 40
CHUNK_BYTES = 1 << 22


class ModelFile:
    """Open for reading as long as something refers to it."""

    def __init__(self, path: Path) -> None:
        """Raises ModelFileError when the path is no regular file that can be read, or is larger than 1 TiB."""
        self.path = path
        try:
            # Without O_NONBLOCK, opening a named pipe would wait for a writer.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise self.error(f"cannot be opened: {error.strerror}") from None
        except ValueError:
            raise ModelFileError("not a path: it holds a null byte or an unpaired surrogate") from None
        weakref.finalize(self, os.close, self._descriptor)
        self._state = os.fstat(self._descriptor)
        self.size = self._state.st_size
        if not stat.S_ISREG(self._state.st_mode):
            raise self.error("not a regular file")
        if self.size > MAX_FILE_BYTES:
            raise self.error(f"{self.size} bytes, more than the {MAX_FILE_BYTES} that are allowed")

    def error(self, reason: str, offset: int | None = None) -> ModelFileError:
        return ModelFileError(reason, path=self.path, offset=offset)

    def read(self, offset: int, count: int) -> NDArray[np.uint8]:
        """`count` bytes from `offset`; the caller has checked that both lie inside `size`."""
        result = np.empty(count, dtype=np.uint8)
        done = 0
        while done < count:
            piece = self._read_piece(offset + done, min(CHUNK_BYTES, count - done))
            result[done : done + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
            done += len(piece)
        self._check_unchanged()
        return result

    def sha256(self) -> str:
        """The hash of the whole file, in hexadecimal."""
        digest = hashlib.sha256()
        done = 0
        while done < self.size:
            piece = self._read_piece(done, min(CHUNK_BYTES, self.size - done))
            digest.update(piece)
            done += len(piece)
        self._check_unchanged()
        return digest.hexdigest()

    def _read_piece(self, offset: int, count: int) -> bytes:
        """At least one byte."""
        try:
            piece = os.pread(self._descriptor, count, offset)
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror}", offset) from None
        if not piece:
            raise self.error("the file was cut short after it was opened", offset)
        return piece

    def _check_unchanged(self) -> None:
        now = os.fstat(self._descriptor)
        if (now.st_size, now.st_mtime_ns) != (self._state.st_size, self._state.st_mtime_ns):
            raise self.error("the file was changed after it was opened")
