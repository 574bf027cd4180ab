"""The keys of a file as the file is now: looked at from time to time, read again when it has changed.

Knows files and keys; knows no HTTP, no engines and no clock. Always: a file that cannot be used changes nothing, and is
told of once; one that is being written is not read before it has stayed the same from one look to the next.
"""

import logging
from pathlib import Path

from service.keys import Keys, KeysError, KnownKeys, read_keys
from service.logs import told

logger = logging.getLogger(__name__)

State = tuple[int, ...] | None
"""What tells one content of a file from another; None when there is no file."""


class KeyFile:
    """The keys that may be presented now."""

    def __init__(self, path: Path) -> None:
        """Raises KeysError."""
        self._path = path
        self._judged = self._seen = self._state()
        """What was read or refused last, and what the last look saw."""
        self._keys = read_keys(path)
        self.gone: frozenset[str] = frozenset()
        """Ids of the keys that were known once and are not any more."""

    def id_of(self, presented: bytes) -> str | None:
        """The id of a key that is known now, else None."""
        return self._keys.id_of(presented)

    def look(self) -> bool:
        """Read the file if it has changed; whether the keys have. To be called about once a second."""
        earlier, self._seen = self._seen, self._state()
        if self._seen != earlier or self._seen == self._judged:
            return False
        self._judged = self._seen
        keys = self._read()
        return keys is not None and self._replace(keys)

    def _read(self) -> Keys | None:
        """The file's keys, or None once it was told why they cannot be used."""
        try:
            return read_keys(self._path)
        except KeysError as error:
            problem = str(error)
        logger.error("the keys stay as they were: %s", problem, extra=told("keys_refused"))
        return None

    def _replace(self, keys: Keys) -> bool:
        added, removed = keys.ids - self._keys.ids, self._keys.ids - keys.ids
        self._keys = keys
        self.gone = (self.gone | removed) - keys.ids
        if added or removed:
            fields = {"keys": len(keys), "added": sorted(added), "removed": sorted(removed)}
            logger.info("the keys have changed", extra=told("keys_changed", **fields))
        return bool(added or removed)

    def _state(self) -> State:
        """Of what the path leads to: secrets are replaced by turning a link to another file."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def key_file_of(keys: KnownKeys | None) -> KeyFile | None:
    """What is to be looked at: the keys, where they are those of a file."""
    return keys if isinstance(keys, KeyFile) else None
