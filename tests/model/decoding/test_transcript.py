"""What is final, what is held back and where a stop cuts, for every way to cut a text into tokens."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from time import thread_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from model.decoding.transcript import Transcript
from tests.reference import transcript as reference


class FakeTokenizer:
    """Token i is whatever bytes the test says."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self._tokens = tokens

    def token_bytes(self, token_id: int) -> bytes:
        return self._tokens[token_id]


def transcript_of(tokens: Sequence[bytes], stop: Sequence[str] = (), min_new_tokens: int = 0) -> Transcript:
    return Transcript(FakeTokenizer(tokens), stop=tuple(stop), min_new_tokens=min_new_tokens)


def deltas_of(tokens: Sequence[bytes], stop: Sequence[str] = (), min_new_tokens: int = 0) -> list[tuple[str, int]]:
    """What a stream would send: after each token what became final, at the end the rest."""
    transcript = transcript_of(tokens, stop, min_new_tokens)
    deltas = []
    for token_id in range(len(tokens)):
        stopped = transcript.push(token_id)
        deltas.append(transcript.take())
        if stopped:
            break
    return [*deltas, transcript.close()]


def text_of(tokens: Sequence[bytes], stop: Sequence[str] = (), min_new_tokens: int = 0) -> str:
    return "".join(text for text, _ in deltas_of(tokens, stop, min_new_tokens))


# Few characters, so that stops occur, overlap and begin everywhere; characters of every length; broken ones.
characters = st.sampled_from([*"aaabbb\n", "é", "€", "👍", "\ufffd"])
fragments = st.one_of(
    characters.map(str.encode), st.sampled_from([b"\xe2", b"\x82", b"\xf0\x9f", b"\xed\xa0", b"\xff"])
)
stop_strings = st.lists(st.text(characters, min_size=1, max_size=4), max_size=4)


@st.composite
def token_lists(draw: st.DrawFn) -> list[bytes]:
    data = b"".join(draw(st.lists(fragments, max_size=12)))
    cuts = draw(st.lists(st.integers(0, len(data)), max_size=len(data) + 2))
    places = [0, *sorted(cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


@given(tokens=token_lists(), stop=stop_strings, min_new_tokens=st.integers(0, 6))
@example(tokens=[b"ab\xe2", b"\xe2", b"\x82\xac"], stop=[], min_new_tokens=0)
@example(tokens=[b"a", b"a", b"a", b"b"], stop=["aab", "a"], min_new_tokens=4)
def test_each_moment_equals_a_search_of_the_whole_text(
    tokens: list[bytes], stop: list[str], min_new_tokens: int
) -> None:
    transcript = transcript_of(tokens, stop, min_new_tokens)
    text, count = "", 0

    for token_id, moment in enumerate(reference.moments(tokens, stop, min_new_tokens)):
        stopped = transcript.push(token_id)
        more_text, more_tokens = transcript.take()
        text, count = text + more_text, count + more_tokens

        assert moment == reference.Moment(stopped, text, count)


@given(tokens=token_lists(), stop=stop_strings, min_new_tokens=st.integers(0, 6))
def test_deltas_joined_are_the_text_and_count_every_token(
    tokens: list[bytes], stop: list[str], min_new_tokens: int
) -> None:
    deltas = deltas_of(tokens, stop, min_new_tokens)

    joined = "".join(text for text, _ in deltas), sum(count for _, count in deltas)
    assert reference.whole_text(tokens, stop, min_new_tokens) == joined


@given(tokens=token_lists(), stop=stop_strings, data=st.data())
def test_the_text_does_not_depend_on_when_it_is_taken(
    tokens: list[bytes], stop: list[str], data: st.DataObject
) -> None:
    transcript = transcript_of(tokens, stop)
    for token_id in range(len(tokens)):
        stopped = transcript.push(token_id)
        if data.draw(st.booleans()):
            transcript.take()
        if stopped:
            break
    transcript.close()

    assert reference.whole_text(tokens, stop, 0)[0] == transcript.text


@given(tokens=token_lists(), stop=stop_strings)
def test_a_delta_is_the_decoding_of_exactly_its_tokens(tokens: list[bytes], stop: list[str]) -> None:
    sent = 0
    for text, count in deltas_of(tokens, stop)[:-1]:
        assert b"".join(tokens[sent : sent + count]).decode(errors="replace") == text
        sent += count


@given(text=st.text(characters, max_size=12), stop=stop_strings)
def test_the_text_holds_no_stop_string(text: str, stop: list[str]) -> None:
    tokens = [bytes([byte]) for byte in text.encode()]

    assert not [s for s in stop if s in text_of(tokens, stop)]


def splits_of(data: bytes) -> Iterator[list[bytes]]:
    """Every way to cut the bytes into tokens."""
    for chosen in range(2 ** (len(data) - 1)):
        places = [0, *(place for place in range(1, len(data)) if chosen >> (place - 1) & 1), len(data)]
        yield [data[start:end] for start, end in pairwise(places)]


def test_every_split_of_characters_and_of_a_stop_gives_the_same_text() -> None:
    assert {"é👍"} == {text_of(tokens, ["<€>"]) for tokens in splits_of("é👍<€>!".encode())}


def test_text_without_stops_is_final_at_once() -> None:
    assert [("Hello", 1), (" you", 1), ("", 0)] == deltas_of([b"Hello", b" you"])


def test_half_a_character_is_held_with_its_token() -> None:
    assert [("", 0), ("a€", 2), ("", 0)] == deltas_of([b"a\xe2\x82", b"\xac"])


def test_bytes_that_the_next_token_cannot_continue_are_final() -> None:
    assert [("", 0), ("\ufffd", 1), ("€", 2), ("", 0)] == deltas_of([b"\xe2", b"\xe2", b"\x82\xac"])


def test_an_incomplete_character_at_the_end_is_a_replacement_character() -> None:
    assert [("", 0), ("a\ufffd", 1)] == deltas_of([b"a\xe2\x82"])


def test_the_beginning_of_a_stop_is_held_until_it_is_none() -> None:
    assert [("", 0), ("", 0), ("\nHuge", 3), ("", 0)] == deltas_of([b"\n", b"Hu", b"ge"], ["\nHuman:"])


def test_a_held_beginning_is_flushed_at_the_end() -> None:
    assert [("yes", 1), ("", 0), ("\nHu", 1)] == deltas_of([b"yes", b"\nHu"], ["\nHuman:"])


def test_a_stop_across_tokens_leaves_no_trace_and_its_tokens_are_counted() -> None:
    assert [("yes", 1), ("", 0), ("", 0), ("", 2)] == deltas_of([b"yes", b"\nHu", b"man:"], ["\nHuman:"])


def test_a_stop_inside_a_token_drops_the_rest_of_the_token() -> None:
    assert [("", 0), ("yes", 1)] == deltas_of([b"yes\nHuman: no"], ["\nHuman:"])


def test_a_stop_inside_a_character_that_is_never_finished_drops_it() -> None:
    assert "a" == text_of([b"a.\xe2"], ["."])


def test_the_earliest_match_in_the_text_wins() -> None:
    assert "a" == text_of([b"a", b"b", b"c", b"d"], ["bcd", "b"])


def test_of_stops_that_one_token_completes_the_earliest_start_cuts() -> None:
    assert "x" == text_of([b"xabcd"], ["bc", "abcd"])


def test_a_stop_begins_anew_inside_a_failed_beginning() -> None:
    assert "a" == text_of([b"a", b"a", b"a", b"b"], ["aab"])


def test_a_stop_before_min_new_tokens_stays_in_the_text_for_good() -> None:
    assert "a.b" == text_of([b"a", b".", b"b", b"."], ["."], min_new_tokens=3)


def test_a_stop_counts_when_its_last_token_is_the_least_number_of_tokens() -> None:
    assert "a" == text_of([b"a", b".", b"b"], ["."], min_new_tokens=2)


def test_a_stop_begun_before_min_new_tokens_counts_when_it_ends_after() -> None:
    assert "a" == text_of([b"a", b"<", b">", b"b"], ["<>"], min_new_tokens=3)


def test_control_tokens_add_nothing_and_are_counted() -> None:
    assert [("a", 1), ("", 1), ("b", 1), ("", 0)] == deltas_of([b"a", b"", b"b"])


def test_a_hidden_token_adds_nothing_and_is_counted() -> None:
    transcript = transcript_of([b"a", b"secret"])
    transcript.push(0)
    transcript.push(1, hidden=True)

    assert ("a", 2) == transcript.take()


def test_a_hidden_token_leaves_a_held_character_incomplete() -> None:
    transcript = transcript_of([b"\xe2\x82", b"\xac"])
    transcript.push(0)
    transcript.push(1, hidden=True)

    assert ("\ufffd", 2) == transcript.close()


def test_closing_again_returns_nothing() -> None:
    transcript = transcript_of([b"a"])
    transcript.push(0)
    transcript.close()

    assert ("", 0) == transcript.close()


def test_no_token_comes_after_a_stop() -> None:
    transcript = transcript_of([b"."], ["."])
    transcript.push(0)

    with pytest.raises(AssertionError):
        transcript.push(0)


@pytest.mark.slow
@pytest.mark.parametrize("token", [b"ab", b"\x82\xac\xe2"], ids=["characters", "never at a boundary"])
def test_the_cost_of_a_token_does_not_grow_with_the_text(token: bytes) -> None:
    """A token costs no more after 200,000 tokens than after none, within the clock's noise."""
    transcript = transcript_of([token], ["b" * 64])

    def cost_of(count: int) -> float:
        start = thread_time()
        for _ in range(count):
            transcript.push(0)
        return thread_time() - start

    first = min(cost_of(1000) for _ in range(5))
    cost_of(200_000)
    assert min(cost_of(1000) for _ in range(5)) < 3 * first


def resumed_deltas(
    tokens: Sequence[bytes], known: int, stop: Sequence[str] = (), min_new_tokens: int = 0
) -> tuple[list[tuple[str, int]], str]:
    """As `deltas_of`, for a reader that has the first `known` tokens already; and the whole text."""
    transcript = Transcript(FakeTokenizer(tokens), stop=tuple(stop), min_new_tokens=min_new_tokens, known_tokens=known)
    deltas = []
    for token_id in range(len(tokens)):
        stopped = transcript.push(token_id)
        deltas.append(transcript.take())
        if stopped:
            break
    return [*deltas, transcript.close()], transcript.text


@given(token_lists(), stop_strings, st.integers(0, 5), st.data())
def test_a_reader_that_knows_the_beginning_is_told_the_rest(
    tokens: list[bytes], stop: list[str], least: int, data: st.DataObject
) -> None:
    """At every place where a delta ended, which is where a stream can be cut."""
    deltas = deltas_of(tokens, stop, least)
    number = data.draw(st.integers(0, len(deltas)))
    known = sum(count for _, count in deltas[:number])

    again, _ = resumed_deltas(tokens, known, stop, least)

    assert "".join(text for text, _ in deltas[number:]) == "".join(text for text, _ in again)
    assert sum(count for _, count in deltas[number:]) == sum(count for _, count in again)


@given(token_lists(), stop_strings, st.integers(0, 5), st.data())
def test_the_whole_text_does_not_depend_on_what_the_reader_knows(
    tokens: list[bytes], stop: list[str], least: int, data: st.DataObject
) -> None:
    known = data.draw(st.integers(0, len(tokens)))

    assert text_of(tokens, stop, least) == resumed_deltas(tokens, known, stop, least)[1]
