"""UTF-8 that arrives in pieces, turned into text that never holds half a character.

Knows bytes only. Always: however bytes are cut, the texts joined are the decoding of all of them at once, with
U+FFFD for what is invalid.
"""

import codecs

_utf8 = codecs.getincrementaldecoder("utf-8")


class StreamDecoder:
    """Bytes in, text out; the beginning of a character waits for the rest of it."""

    def __init__(self) -> None:
        self._decoder = _utf8(errors="replace")

    @property
    def pending(self) -> bytes:
        """The beginning of a character that waits: at most three bytes."""
        return self._decoder.getstate()[0]

    def push(self, data: bytes) -> str:
        """The text that is certain once `data` has arrived."""
        return self._decoder.decode(data)

    def breaks_off(self, data: bytes) -> bool:
        """Whether `data` cannot continue what is pending, so that the pending bytes are invalid by themselves."""
        if not self.pending or not data:
            return False
        try:
            _utf8().decode(self.pending + data[:1])
        except UnicodeDecodeError:
            return True
        return False

    def close(self) -> str:
        """The end of the bytes: U+FFFD if a character stayed incomplete. The decoder may then be used anew."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
