"""Stop strings in a text that arrives in pieces, against a search of the whole text at every place."""

from hypothesis import example, given
from hypothesis import strategies as st

from model.decoding.stop import StopMatcher

# Few characters, so that stops occur, overlap and begin everywhere.
texts = st.text(st.sampled_from("ab\n"), max_size=6)
stop_strings = st.lists(st.text(st.sampled_from("ab\n"), min_size=1, max_size=4), max_size=3).map(tuple)


def starts(text: str, stop: tuple[str, ...], after: int) -> list[int]:
    """Where the matches start that end behind so many characters."""
    return [
        end - len(each)
        for end in range(after + 1, len(text) + 1)
        for each in stop
        if len(each) <= end and text[:end].endswith(each)
    ]


def held(text: str, stop: tuple[str, ...]) -> int:
    return max(
        (length for each in stop for length in range(1, len(each)) if text.endswith(each[:length])),
        default=0,
    )


@given(pieces=st.lists(texts, max_size=8), stop=stop_strings)
@example(pieces=["a", "bab"], stop=())
@example(pieces=["aa", "b", "aab"], stop=("aab", "b"))
def test_each_piece_is_answered_as_a_search_of_the_whole_text_would(pieces: list[str], stop: tuple[str, ...]) -> None:
    matcher, text = StopMatcher(stop), ""
    for piece in pieces:
        before, text = len(text), text + piece
        twin = matcher.fork()

        expected = min(starts(text, stop, before), default=None)
        assert (expected, expected) == (matcher.push(piece), twin.push(piece))
        assert (held(text, stop), held(text, stop)) == (matcher.held_length, twin.held_length)
