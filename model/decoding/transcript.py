"""The text of one generated sequence as tokens arrive: what is final, what is held back, where a stop cuts it.

Knows tokens as bytes; knows no streams, events or logits.
Always: each piece handed out is the decoding of exactly the tokens it is counted for, and the pieces joined are
the text. The cost of a token does not depend on how much text there is.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from model.decoding.stop import StopMatcher
from model.decoding.stop_scan import StopScan, TokenBytes
from model.stream_decoder import StreamDecoder


@dataclass(frozen=True, slots=True)
class _Segment:
    """The fewest tokens that begin and end between characters. `end` counts characters from the text's start."""

    text: str
    tokens: int
    end: int


class Transcript:
    """The text of one generated sequence: what is final, what is held back, and where a stop cuts it.

    A stop string counts once a token completes it and at least `min_new_tokens` tokens are there, that one
    included; one completed sooner is ordinary text for good. Of the stop strings that one token completes, the one
    that starts earliest cuts: neither it nor anything after it is text, also when it starts or ends inside a token.
    """

    def __init__(
        self, tokenizer: TokenBytes, *, stop: tuple[str, ...] = (), min_new_tokens: int = 0, known_tokens: int = 0
    ) -> None:
        """Of the first `known_tokens` tokens the reader has the text already, as far as it is whole characters."""
        self._tokenizer = tokenizer
        self._min_new_tokens = min_new_tokens
        self._stop = stop
        self._stops = StopMatcher(stop)
        self._decoder = StreamDecoder()
        self._tokens = 0
        self._length = 0
        self._segments: deque[_Segment] = deque()
        self._open_texts: list[str] = []
        self._open_tokens = 0
        self._cut: int | None = None
        self._closed = False
        self._taken: list[str] = []
        self._taken_length = 0
        self._known_tokens = known_tokens

    @property
    def text(self) -> str:
        """All text that is final, what the reader knew included; the whole text once closed."""
        return "".join(self._taken)

    def scan(self) -> StopScan | None:
        """The same search for stop strings, from an empty text, for texts that branch; None without stops."""
        return StopScan.begin(self._tokenizer, self._stop)

    def push(self, token_id: int, *, hidden: bool = False) -> bool:
        """Add a token; True when a stop string is now complete, after which there are no more tokens.

        A hidden token is counted and adds nothing to the text, like a token that itself ends the sequence.
        """
        assert not self._closed, "no token comes after the end"
        assert self._cut is None, "no token comes after a stop"
        data = b"" if hidden else self._tokenizer.token_bytes(token_id)
        broken = ""
        if self._decoder.breaks_off(data):
            broken = self._decoder.close()
            self._append(broken)
            self._end_segment()
        decoded = self._decoder.push(data)
        self._append(decoded)
        self._tokens += 1
        self._open_tokens += 1
        if not self._decoder.pending:
            self._end_segment()
        start = self._stops.push(broken + decoded)
        if start is not None and self._tokens >= self._min_new_tokens:
            self._cut = start
        return self._cut is not None

    def take(self) -> tuple[str, int]:
        """The text that became final since the last call, up to a token boundary, and how many tokens it is of.

        What the reader knows already is left out of both.

        Final is what no later token can change: it holds no half character and no possible beginning of a stop.
        """
        final = self._length - self._stops.held_length if self._cut is None else self._cut
        segments = []
        while self._segments and self._segments[0].end <= final:
            segments.append(self._segments.popleft())
        return self._hand_out(segments, None)

    def close(self) -> tuple[str, int]:
        """End the text and return what was held back: the rest of the text, and how many tokens remained.

        A character that stayed incomplete is U+FFFD; the tokens of a stop string are counted, their text is not.
        """
        self._closed = True
        self._append(self._decoder.close())
        self._end_segment()
        segments = list(self._segments)
        self._segments.clear()
        return self._hand_out(segments, None if self._cut is None else self._cut - self._taken_length)

    def _append(self, text: str) -> None:
        self._open_texts.append(text)
        self._length += len(text)

    def _end_segment(self) -> None:
        self._segments.append(_Segment("".join(self._open_texts), self._open_tokens, self._length))
        self._open_texts.clear()
        self._open_tokens = 0

    def _hand_out(self, segments: Sequence[_Segment], length: int | None) -> tuple[str, int]:
        """The first `length` characters of these segments are text: answers what is new of it, and of the tokens."""
        text = "".join(segment.text for segment in segments)[:length]
        self._taken.append(text)
        self._taken_length += len(text)
        known_length = new_tokens = 0
        for segment in segments:
            known = min(self._known_tokens, segment.tokens)
            self._known_tokens -= known
            new_tokens += segment.tokens - known
            known_length += len(segment.text) if known == segment.tokens else 0
        return text[known_length:], new_tokens
