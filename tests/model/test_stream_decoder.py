"""Bytes that arrive in pieces become the text of all of them at once."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.stream_decoder import StreamDecoder

# Bytes that matter to UTF-8: leads of every length, continuations, surrogates' and overlong beginnings, ASCII.
telling_bytes = st.sampled_from(
    [0x00, 0x41, 0x80, 0x8F, 0x9F, 0xA0, 0xBF, 0xC0, 0xC3, 0xE0, 0xE2, 0xED, 0xF0, 0xF4, 0xFF]
)
broken_text = st.one_of(st.binary(max_size=24), st.lists(telling_bytes, max_size=24).map(bytes))


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


def decode(pieces: list[bytes]) -> str:
    decoder = StreamDecoder()
    return "".join([*map(decoder.push, pieces), decoder.close()])


@given(data=broken_text, cuts=st.lists(st.integers(0, 100), max_size=12))
def test_any_split_of_any_bytes_decodes_as_the_whole(data: bytes, cuts: list[int]) -> None:
    assert data.decode(errors="replace") == decode(pieces_of(data, cuts))


@given(data=broken_text, cuts=st.lists(st.integers(0, 100), max_size=12))
def test_what_is_pending_is_what_the_text_lacks_at_every_place(data: bytes, cuts: list[int]) -> None:
    """A copy that goes on from there says the same."""
    decoder, seen, text = StreamDecoder(), b"", ""
    for piece in pieces_of(data, cuts):
        seen, text = seen + piece, text + decoder.push(piece)
        assert seen.removesuffix(decoder.pending).decode(errors="replace") == text
        assert (decoder.pending, decoder.pending.decode(errors="replace")) == (
            decoder.fork().pending,
            decoder.fork().close(),
        )


@given(text=st.text(max_size=20))
def test_valid_text_never_shows_a_replacement_character(text: str) -> None:
    assert text == decode([bytes([byte]) for byte in text.encode()])


@pytest.mark.parametrize("character", ["é", "€", "👍"])
def test_a_character_waits_for_its_last_byte(character: str) -> None:
    decoder = StreamDecoder()

    assert "" == decoder.push(character.encode()[:-1])
    assert character.encode()[:-1] == decoder.pending
    assert character == decoder.push(character.encode()[-1:])


def test_half_a_surrogate_does_not_wait_for_what_cannot_make_it_valid() -> None:
    assert "\ufffd\ufffd" == StreamDecoder().push(b"\xed\xa0")


def test_an_incomplete_character_becomes_one_replacement_character_at_the_end() -> None:
    decoder = StreamDecoder()
    decoder.push("👍".encode()[:3])

    assert "\ufffd" == decoder.close()


def test_a_closed_decoder_starts_anew() -> None:
    decoder = StreamDecoder()
    decoder.push(b"\xe2")
    decoder.close()

    assert "a" == decoder.push(b"a")


@pytest.mark.parametrize(
    ("pending", "data", "expected"),
    [
        (b"\xe2", b"a", True),
        (b"\xe2", b"\xe2", True),
        (b"\xed", b"\xa0", True),
        (b"\xe2", b"\x82", False),
        (b"\xe2\x82", b"\xac!", False),
        (b"\xe2", b"", False),
        (b"", b"\x82", False),
    ],
)
def test_what_cannot_continue_a_character_breaks_it_off(pending: bytes, data: bytes, expected: bool) -> None:
    decoder = StreamDecoder()
    decoder.push(pending)

    assert expected == decoder.breaks_off(data)
