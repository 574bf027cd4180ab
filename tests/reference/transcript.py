"""The slow truth of a transcript: everything is searched from the beginning, again after each token."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moment:
    """What holds once so many tokens have arrived."""

    stopped: bool
    final_text: str
    final_tokens: int


def whole_characters(data: bytes) -> str:
    """The text of `data` without a character at its end that more bytes could complete."""
    for length in range(min(3, len(data)), 0, -1):
        try:
            data[-length:].decode()
        except UnicodeDecodeError as problem:
            if problem.start == 0 and problem.reason == "unexpected end of data":
                return data[:-length].decode(errors="replace")
    return data.decode(errors="replace")


def cut_at(tokens: Sequence[bytes], stop: Sequence[str], min_new_tokens: int) -> int | None:
    """Where the earliest match that the last token completes starts, if it counts."""
    text, before = whole_characters(b"".join(tokens)), whole_characters(b"".join(tokens[:-1]))
    starts = [
        start
        for characters in stop
        for start in range(len(text))
        if text.startswith(characters, start) and start + len(characters) > len(before)
    ]
    return min(starts, default=None) if len(tokens) >= min_new_tokens else None


def held_length(text: str, stop: Sequence[str]) -> int:
    return max((n for s in stop for n in range(len(s)) if text.endswith(s[:n])), default=0)


def moments(tokens: Sequence[bytes], stop: Sequence[str], min_new_tokens: int) -> list[Moment]:
    """One for each token up to and including the one that completes a stop."""
    result: list[Moment] = []
    for count in range(1, len(tokens) + 1):
        present = tokens[:count]
        text = whole_characters(b"".join(present))
        cut = cut_at(present, stop, min_new_tokens)
        final = len(text) - held_length(text, stop) if cut is None else cut
        best = max(n for n in range(count + 1) if _is_final(present, n, text, final))
        result.append(Moment(cut is not None, _decode(present[:best]), best))
        if cut is not None:
            break
    return result


def whole_text(tokens: Sequence[bytes], stop: Sequence[str], min_new_tokens: int) -> tuple[str, int]:
    """The text at the end, and how many tokens it came from, those of the stop included."""
    for count in range(1, len(tokens) + 1):
        cut = cut_at(tokens[:count], stop, min_new_tokens)
        if cut is not None:
            return _decode(tokens[:count])[:cut], count
    return _decode(tokens), len(tokens)


def _decode(tokens: Sequence[bytes]) -> str:
    return b"".join(tokens).decode(errors="replace")


def _is_final(tokens: Sequence[bytes], count: int, text: str, final: int) -> bool:
    """Whether the first `count` tokens decode by themselves, to no more than what is final."""
    head, tail = _decode(tokens[:count]), whole_characters(b"".join(tokens[count:]))
    return head + tail == text and len(head) <= final
