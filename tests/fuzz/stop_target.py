"""The matcher of stop strings, beside one that looks through the whole text each time.

An input is stop strings, a byte 0, and a text; stop strings end with a byte 1, pieces of the text with a byte 2.
"""

from model.decoding.stop import StopMatcher
from tests.fuzz.target import Target

SEEDS = (
    b"ab\x01aab\x00aa\x02ab\x02\x02b",
    b"aaaa\x01aaab\x00aaaaaaaaaaaab",
    "é種\x01🌱🌱".encode() + b"\x00" + "xé\x02種🌱\x02🌱".encode(),
    b"\n\n\x00a\n\x02\nb",
)


def stop_target() -> Target:
    return Target(SEEDS, (b"\x00", b"\x01", b"\x02", b"ab", b"aa"), lambda: _match, most_bytes=512)


def _match(data: bytes) -> None:
    head, _, tail = data.decode("utf-8", errors="replace").partition("\x00")
    stops = tuple(stop for stop in head.split("\x01") if stop)
    matcher = StopMatcher(stops)
    text = ""
    for piece in tail.split("\x02"):
        other = matcher.fork()
        found = matcher.push(piece)
        assert found == other.push(piece)
        assert _completed(stops, text, piece) == found
        text += piece
        assert _held(stops, text) == matcher.held_length


def _completed(stops: tuple[str, ...], before: str, piece: str) -> int | None:
    """Where the earliest of the stop strings' first matches in this piece starts, by definition."""
    text = before + piece
    firsts = (
        min((end for end in range(len(before) + 1, len(text) + 1) if text.endswith(stop, 0, end)), default=None)
        for stop in stops
    )
    starts = [end - len(stop) for stop, end in zip(stops, firsts, strict=True) if end is not None]
    return min(starts, default=None)


def _held(stops: tuple[str, ...], text: str) -> int:
    """The longest proper beginning of a stop string that the text ends with, by definition."""
    return max(
        (length for stop in stops for length in range(len(stop)) if text.endswith(stop[:length])),
        default=0,
    )
