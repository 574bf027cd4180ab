"""Answers as bytes: every way in which a body may be framed, cut anywhere, and what is no answer."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cli.http_answer import MOST_HEAD_BYTES, AnswerReader, BrokenAnswer

CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5;name=value\r\na\r\n\r\n\r\nC \r\nhello, world\r\n0\r\nTrailer: z\r\n\r\n"
)
SIZED = b"HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\nabc"
UNTIL_CLOSED = b"HTTP/1.0 200\r\n\r\nabc\r\n\r\nd"
EMPTY = b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"
CASES = [
    pytest.param(CHUNKED, 200, b"a\r\n\r\nhello, world", id="chunked"),
    pytest.param(SIZED, 404, b"abc", id="sized"),
    pytest.param(UNTIL_CLOSED, 200, b"abc\r\n\r\nd", id="until closed"),
    pytest.param(EMPTY, 204, b"", id="empty"),
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b"", id="sized, nothing in it"),
]


def read(*pieces: bytes) -> tuple[int | None, bytes]:
    reader = AnswerReader()
    body = b"".join([reader.feed(piece) for piece in pieces])
    reader.close()
    return reader.status, body


@pytest.mark.parametrize(("answer", "status", "body"), CASES)
def test_a_body_comes_out_of_its_frame(answer: bytes, status: int, body: bytes) -> None:
    assert (status, body) == read(answer)


@given(case=st.sampled_from([case.values for case in CASES]), cuts=st.lists(st.integers(0, 140)))
def test_how_the_bytes_are_cut_changes_nothing(case: tuple[bytes, int, bytes], cuts: list[int]) -> None:
    answer, status, body = case
    ends = sorted({0, len(answer), *(cut for cut in cuts if cut < len(answer))})

    assert (status, body) == read(*(answer[start:end] for start, end in pairwise(ends)))


@pytest.mark.parametrize("answer", [CHUNKED, SIZED])
def test_an_answer_that_breaks_off_is_no_answer(answer: bytes) -> None:
    for end in range(len(answer)):
        with pytest.raises(BrokenAnswer):
            read(answer[:end])


def test_a_piece_of_the_body_comes_as_soon_as_it_is_there() -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    assert (b"ab", b"c") == (reader.feed(b"3\r\nab"), reader.feed(b"c\r"))


@pytest.mark.parametrize(
    "answer",
    [
        b"hello\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20\r\n\r\n",
        b"HTTP/1.1 2000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1_0\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a" * MOST_HEAD_BYTES,
    ],
)
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    with pytest.raises(BrokenAnswer):
        AnswerReader().feed(answer)
