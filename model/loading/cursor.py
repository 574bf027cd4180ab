"""A walk through the first bytes of a model file, one checked step at a time.

Knows no file formats. Always: nothing is read, or allocated, past the limit; errors name what was being read
and where.
"""

from model.loading.checkpoint import ModelFileError
from model.loading.model_file import ModelFile

MAX_TEXT_BYTES = 1 << 20
_READ_AHEAD = 1 << 18
_SHOWN_CHARACTERS = 80


def shown(text: str) -> str:
    """Text from a file, fit for one line of an error message."""
    return ascii(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


class Cursor:
    """Walks through the first `limit` bytes of a file, and never past them."""

    def __init__(self, file: ModelFile, limit: int) -> None:
        self._file = file
        self._limit = limit
        self._buffer = b""
        self._buffer_start = 0
        self.position = 0

    @property
    def left(self) -> int:
        return self._limit - self.position

    def error(self, reason: str, offset: int | None = None) -> ModelFileError:
        return self._file.error(reason, self.position if offset is None else offset)

    def take(self, count: int, what: str) -> bytes:
        if count > self.left:
            raise self.error(f"{what} needs {count} bytes, but only {self.left} are left")
        start = self.position - self._buffer_start
        if start + count > len(self._buffer):
            ahead = min(max(count, _READ_AHEAD), self.left)
            self._buffer = self._file.read(self.position, ahead).tobytes()
            self._buffer_start = self.position
            start = 0
        self.position += count
        return self._buffer[start : start + count]

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def text(self, what: str, most: int = MAX_TEXT_BYTES) -> str:
        start = self.position
        length = self.u64(what)
        if length > most:
            raise self.error(f"{what} is {length} bytes long; allowed are {most}", start)
        try:
            return self.take(length, what).decode("utf-8")
        except UnicodeDecodeError:
            raise self.error(f"{what} is not UTF-8", start) from None
