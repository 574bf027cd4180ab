"""The API keys that callers may present, known by their digests alone.

Knows the file of keys; knows no HTTP and no environment. Always: a key is held in memory only while its line is read or
its header compared, stands in no message, and is compared with every digest in a time that does not depend on either.
"""

import hmac
import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Protocol

KEY = re.compile(rb"[!-~]{1,512}")
"""What can stand after `Bearer` as one word."""
ID_LENGTH = 12
"""Hexadecimal digits of the digest that name a key; two keys of one file may not share them."""
MAX_FILE_BYTES = 1 << 20


class KeysError(Exception):
    """A file of keys that cannot be used."""


class KnownKeys(Protocol):
    def id_of(self, presented: bytes) -> str | None:
        """The id of a key that is known, else None."""


class Keys:
    """Keys that do not change."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._digests = tuple(sha256(key).digest() for key in keys)

    def __len__(self) -> int:
        return len(self._digests)

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(map(_id, self._digests))

    def id_of(self, presented: bytes) -> str | None:
        """The id of a key that is known, else None."""
        digest = sha256(presented).digest()
        found = None
        for known in self._digests:
            if hmac.compare_digest(known, digest):
                found = known
        return None if found is None else _id(found)


def read_keys(path: Path) -> Keys:
    """One key a line; blank lines and lines that begin with # are skipped. Raises KeysError, which shows no key."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise KeysError(f"the file of keys {path} cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise KeysError(f"the file of keys {path} is larger than {MAX_FILE_BYTES} bytes")
    lines: dict[str, int] = {}
    keys = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        key = line.strip()
        if not key or key.startswith(b"#"):
            continue
        if not KEY.fullmatch(key):
            raise KeysError(f"{path}:{number}: a key is 1 to 512 printable ASCII characters without spaces")
        earlier = lines.setdefault(_id(sha256(key).digest()), number)
        if earlier != number:
            raise KeysError(f"{path}:{number}: the key of line {earlier} again")
        keys.append(key)
    if not keys:
        raise KeysError(f"the file of keys {path} holds none")
    return Keys(keys)


def _id(digest: bytes) -> str:
    return digest.hex()[:ID_LENGTH]
