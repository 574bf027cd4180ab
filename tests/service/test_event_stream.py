"""Server-sent events are read as the standard says, however the bytes are cut."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from service.event_stream import EventStreamDecoder, ServerSentEvent


def events_of(*pieces: bytes) -> list[ServerSentEvent]:
    decoder = EventStreamDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


def test_an_event_ends_at_its_blank_line() -> None:
    assert [ServerSentEvent("a"), ServerSentEvent("b")] == events_of(b"data: a\n\ndata: b\n\ndata: c\n")


def test_several_data_lines_are_joined_by_newlines() -> None:
    assert [ServerSentEvent("a\n\nb")] == events_of(b"data: a\ndata\ndata: b\n\n")


def test_comments_and_unknown_fields_are_skipped() -> None:
    assert [ServerSentEvent("a")] == events_of(b": keep-alive\n\nretry: 5\nfoo: bar\ndata: a\n\n")


def test_only_one_space_after_the_colon_is_dropped() -> None:
    assert [ServerSentEvent(" a")] == events_of(b"data:  a\n\n")


def test_an_id_lasts_until_the_next() -> None:
    assert ["7", "7", "8"] == [event.id for event in events_of(b"id: 7\ndata: a\n\ndata: b\n\nid: 8\ndata: c\n\n")]


def test_an_event_name_lasts_for_one_event() -> None:
    assert ["ping", "message"] == [event.event for event in events_of(b"event: ping\ndata: a\n\ndata: b\n\n")]


def test_carriage_returns_end_lines_too() -> None:
    assert [ServerSentEvent("a\nb")] == events_of(b"data: a\rdata: b\r\n\r\n")


def test_a_line_feed_after_a_cut_carriage_return_is_no_second_line_end() -> None:
    assert [ServerSentEvent("a\nb")] == events_of(b"data: a\r", b"\ndata: b\r", b"", b"\n\r", b"\n")


def test_unicode_line_separators_are_text() -> None:
    text = "a\u2028b\u0085c\x0b"

    assert [ServerSentEvent(text)] == events_of(f"data: {text}\n\n".encode())


def test_a_byte_order_mark_at_the_start_is_dropped() -> None:
    assert [ServerSentEvent("a")] == events_of(b"\xef\xbb\xbfdata: a\n\n")


@given(
    st.lists(st.sampled_from([b"data: \xe2\x82\xac", b"\n", b"\r", b"\r\n", b": c", b"id: 1", b"data"])),
    st.lists(st.integers(0, 80)),
)
def test_where_the_bytes_are_cut_changes_nothing(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(edges)]

    assert events_of(stream) == events_of(*pieces)
