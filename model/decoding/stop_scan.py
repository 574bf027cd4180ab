"""Whether the tokens of a text that may branch complete a stop string.

Knows tokens as bytes; keeps nothing of the text but what a stop or a character may still need.
Always: a scan never changes, so that any number of texts may go on from it; it stops where a `Transcript` would.
"""

from typing import Protocol

from model.decoding.stop import StopMatcher
from model.stream_decoder import StreamDecoder


class TokenBytes(Protocol):
    """The part of a tokenizer that a text is made with."""

    def token_bytes(self, token_id: int) -> bytes:
        """What a token adds to the text: nothing for a control token."""


class StopScan:
    """Where one text stands between its characters and its stop strings."""

    __slots__ = ("_decoder", "_stops", "_tokenizer", "is_complete")

    def __init__(self, tokenizer: TokenBytes, decoder: StreamDecoder, stops: StopMatcher, *, is_complete: bool) -> None:
        self._tokenizer = tokenizer
        self._decoder = decoder
        self._stops = stops
        self.is_complete = is_complete
        """Whether the last token completed a stop string."""

    @classmethod
    def begin(cls, tokenizer: TokenBytes, stop: tuple[str, ...]) -> "StopScan | None":
        """Of an empty text; None where there is nothing to look for."""
        return cls(tokenizer, StreamDecoder(), StopMatcher(stop), is_complete=False) if stop else None

    def after(self, token_id: int) -> "StopScan":
        """The scan of the text with one token more."""
        decoder, stops = self._decoder.fork(), self._stops.fork()
        text = decoder.push(self._tokenizer.token_bytes(token_id))
        return StopScan(self._tokenizer, decoder, stops, is_complete=stops.push(text) is not None)
