"""UTF-8 that arrives in pieces, turned into text that never holds half a character.

Knows bytes only. Always: however bytes are cut, the texts joined are the decoding of all of them at once, with
U+FFFD for what is invalid.
"""

import codecs


class StreamDecoder:
    """Bytes in, text out; the beginning of a character waits for the rest of it."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.pending = b""
        """The beginning of a character that waits: at most three bytes."""

    def fork(self) -> "StreamDecoder":
        """The same place for a second text that goes on from here."""
        child = StreamDecoder()
        child._decoder.setstate(self._decoder.getstate())
        child.pending = self.pending
        return child

    def push(self, data: bytes) -> str:
        """The text that is certain once `data` has arrived."""
        if not self.pending and data.isascii():
            return data.decode("ascii")
        text = self._decoder.decode(data)
        self.pending = self._decoder.getstate()[0]
        # Python waits for the last byte of a surrogate in UTF-8, although no byte can make it valid.
        return text + self.close() if b"\xed\xa0" <= self.pending < b"\xee" else text

    def breaks_off(self, data: bytes) -> bool:
        """Whether `data` cannot continue what is pending, so that the pending bytes are invalid by themselves."""
        if not self.pending or not data:
            return False
        try:
            (self.pending + data[:1]).decode()
        except UnicodeDecodeError as problem:
            return problem.reason != "unexpected end of data"
        return False

    def close(self) -> str:
        """The end of the bytes: U+FFFD if a character stayed incomplete. The decoder may then be used anew."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self.pending = b""
        return text
