"""Files of records: JSON Lines that `tane generate --record` writes and `tane replay` reads.

Knows files and JSON; knows nothing of what a record holds.
Always: a new file appears whole or not at all, and no file is overwritten.
"""

import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.cli.console import Failure, Unusable
from service.errors import ServiceError
from service.json_body import parse
from service.replay_record import RECORD_DEPTH
from service.sse import encode_json

STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True)
class Line:
    """One record of a file, or why it is none."""

    number: int
    record: Any
    error: ServiceError | None = None


class RecordFile:
    """A file that records are written to. Made before the work begins, so that a bad place is told at once."""

    def __init__(self, path: Path, *, append: bool) -> None:
        """Raises Unusable for a file that is there already, unless it may be appended to, and for a bad place."""
        self._path = path
        self._append = append
        if path.is_dir():
            raise Unusable(f"--record {path} is a folder")
        if not path.parent.is_dir():
            raise Unusable(f"--record {path} cannot be written: there is no folder {path.parent}")
        if path.exists() and not append:
            raise self._exists()
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise Unusable(f"--record {path} cannot be written")

    def write(self, record: Mapping[str, Any]) -> None:
        """Raises Unusable when the file came into being meanwhile, and Failure when it cannot be written."""
        line = encode_json(record) + b"\n"
        try:
            if self._append and self._path.exists():
                self._add(line)
            else:
                self._create(line)
        except FileExistsError:
            raise self._exists() from None
        except OSError as error:
            raise Failure(f"the record cannot be written to {self._path}: {error.strerror}") from error

    def _add(self, line: bytes) -> None:
        with self._path.open("ab+") as file:
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else b"\n" + line
            file.write(line)

    def _create(self, line: bytes) -> None:
        """Written beside its place and then put there; a link, unlike a rename, never replaces a file."""
        beside = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        try:
            with beside.open("xb") as file:
                file.write(line)
            os.link(beside, self._path)
        finally:
            beside.unlink(missing_ok=True)

    def _exists(self) -> Unusable:
        return Unusable(f"--record {self._path} exists; name another file, or add to it with --append")


def read_records(path: str) -> list[Line]:
    """The records of a file, or of standard input for "-": one on each line, or a single one on several lines.

    Raises Unusable when the file cannot be read or holds nothing.
    """
    try:
        raw = sys.stdin.buffer.read() if path == STANDARD_INPUT else Path(path).read_bytes()
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror}") from error
    if not raw.strip():
        raise Unusable(f"{path} holds no record")
    whole = _line(1, raw)
    if whole.error is None:
        return [whole]
    return [_line(number, line) for number, line in enumerate(raw.split(b"\n"), start=1) if line.strip()]


def _line(number: int, raw: bytes) -> Line:
    try:
        return Line(number, parse(raw, max_depth=RECORD_DEPTH))
    except ServiceError as error:
        return Line(number, None, error)
