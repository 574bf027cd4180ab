"""What a body must be before any field is looked at."""

import asyncio
import json
import time
from collections.abc import MutableMapping
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.arriving import SMALL_BYTES, Arriving, ArrivingBody, most_bytes
from service.errors import BodyTooLarge, GenerationFailed, Overloaded, ServiceError
from service.json_body import MAX_DEPTH, MAX_KEYS, parse, read_body

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def error_of(raw: bytes) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        parse(raw)
    return caught.value


def read(
    headers: dict[str, str], *pieces: bytes | None, limit: int = 100, arriving: Arriving | None = None
) -> tuple[bytes, int]:
    """The body that arrives in these pieces, None being a disconnect, and how many pieces were taken."""
    taken = 0

    async def receive() -> MutableMapping[str, Any]:
        nonlocal taken
        piece = pieces[taken]
        taken += 1
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": taken < len(pieces)}

    headers = {"content-type": "application/json", **headers}
    return asyncio.run(read_body(headers, receive, limit, arriving or Arriving())), taken


@given(JSON_VALUES)
def test_ordinary_json_comes_through_unchanged(value: Any) -> None:
    assert value == parse(json.dumps(value).encode())


@given(st.text())
def test_text_comes_through_whether_escaped_or_not(text: str) -> None:
    assert [text] * 2 == parse(f"[{json.dumps(text)},{json.dumps(text, ensure_ascii=False)}]".encode())


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b'{"a":1', b"{a:1}", b"[1,]", b"[}", b"]", b"'a'", b'"a', b'"\\"', b"[1]]", b"\xef\xbb\xbf{}", b'"\n"'],
)
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    assert (400, "invalid_json") == (error_of(raw).status, error_of(raw).code)


@pytest.mark.parametrize("token", [b"NaN", b"Infinity", b"-Infinity"])
def test_numbers_that_json_lacks_are_refused(token: bytes) -> None:
    assert "invalid_json" == error_of(b'{"temperature":' + token + b"}").code


@pytest.mark.parametrize("number", [b"1" * 65, b"1" * 5000, b"0." + b"1" * 5000, b"-" + b"1" * 65])
def test_a_number_of_too_many_characters_is_refused(number: bytes) -> None:
    assert "invalid_json" == error_of(b'{"seed":' + number + b"}").code


def test_a_long_number_inside_a_text_is_no_number() -> None:
    assert "1" * 100 == parse(b'"' + b"1" * 100 + b'"')


@pytest.mark.parametrize("raw", [b'"\xff"', b'"\xed\xa0\x80"', '"é"'.encode("latin-1"), '{"a":1}'.encode("utf-16")])
def test_bytes_that_are_not_utf8_are_refused(raw: bytes) -> None:
    assert (400, "invalid_utf8") == (error_of(raw).status, error_of(raw).code)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_nesting_beyond_the_limit_is_refused(opening: bytes) -> None:
    assert (400, "json_too_deep") == (error_of(opening * 50_000).status, error_of(opening * 50_000).code)


def test_nesting_up_to_the_limit_is_read() -> None:
    raw = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH

    assert raw == json.dumps(parse(raw)).encode()


def test_brackets_inside_texts_do_not_nest() -> None:
    text = '[{"\\' * 100

    assert [text] == parse(json.dumps([text]).encode())


def test_one_level_more_than_the_limit_is_refused() -> None:
    assert "json_too_deep" == error_of(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1)).code


def test_a_key_that_stands_twice_is_refused_by_name() -> None:
    error = error_of(b'{"a":{"seed":1,"seed":2}}')

    assert ("duplicate_key", "seed") == (error.code, error.param)


def test_a_duplicate_key_that_is_no_name_is_not_repeated() -> None:
    assert "?" == error_of(b'{"<b>\\ud800":1,"<b>\\ud800":2}').param


def test_an_object_of_too_many_keys_is_refused() -> None:
    assert "too_many" == error_of(json.dumps({str(i): i for i in range(MAX_KEYS + 1)}).encode()).code


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b'{"prompt":"\\ud800"}', "prompt"),
        (b'{"prompt":"a\\uDFFFb"}', "prompt"),
        (b'{"messages":[{"content":"\\udc00\\ud800"}]}', "messages.0.content"),
        (b'{"stop":["a","\\ud83d"]}', "stop.1"),
        (b'{"\\ud800":1}', "?"),
        (b'"\\ud800"', None),
    ],
)
def test_half_a_surrogate_pair_is_refused_where_it_stands(raw: bytes, param: str | None) -> None:
    error = error_of(raw)

    assert (422, "invalid_unicode", param) == (error.status, error.code, error.param)


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert "😀" == parse(b'"\\ud83d\\ude00"')


@pytest.mark.parametrize(
    "raw",
    [
        b'"' + b'\\"' * 500_000,
        b'\\"' * 500_000,
        b"[" + b"[]," * 300_000 + b"[]]",
        b"[" * 1_000_000,
        b"{" + b",".join(b'"%d":1' % i for i in range(100_000)) + b"}",
    ],
)
def test_hostile_megabytes_take_linear_time(raw: bytes) -> None:
    started = time.thread_time()
    with suppress(ServiceError):
        parse(raw)

    assert time.thread_time() - started < 2


def test_a_body_in_pieces_is_joined() -> None:
    assert (b"abc", 3) == read({}, b"a", b"", b"bc")


@pytest.mark.parametrize(
    "media",
    ["application/json", "Application/JSON", "application/json; charset=utf-8", 'application/json;charset="UTF-8"'],
)
def test_json_media_types_are_read(media: str) -> None:
    assert b"{}" == read({"content-type": media}, b"{}")[0]


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": ""},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=utf-16"},
        {"content-encoding": "gzip"},
        {"content-encoding": "br, gzip"},
    ],
)
def test_other_media_are_refused_before_the_body_is_read(headers: dict[str, str]) -> None:
    with pytest.raises(ServiceError) as caught:
        read(headers)

    assert (415, "unsupported_media_type") == (caught.value.status, caught.value.code)


def test_a_body_that_says_it_is_too_large_is_refused_unread() -> None:
    with pytest.raises(ServiceError) as caught:
        read({"content-length": "101"})

    assert (413, "body_too_large") == (caught.value.status, caught.value.code)


def test_a_body_that_turns_out_too_large_is_refused_at_the_limit() -> None:
    pieces = [b"x" * 60, b"x" * 60, b"never taken"]

    with pytest.raises(ServiceError) as caught:
        read({}, *pieces)

    assert 413 == caught.value.status


def test_a_client_that_leaves_before_its_body_is_complete_was_cancelled() -> None:
    with pytest.raises(ServiceError) as caught:
        read({}, b"a", None)

    assert 499 == caught.value.status


def test_bodies_that_arrive_together_are_bounded_in_bytes() -> None:
    with pytest.raises(Overloaded) as refused:
        asyncio.run(two_at_once(b"a" * 80, Arriving(150)))

    assert refused.value.retry_after_s


def begun(arriving: Arriving, key_id: str | None, size: int, times: int) -> list[ArrivingBody]:
    """Bodies of a key that have so much of them arrive and wait for more, as many of so many as were let in."""
    bodies = []
    for _ in range(times):
        body = ArrivingBody(arriving.shares, key_id)
        with suppress(Overloaded):
            body.add(size)
            bodies.append(body)
    return bodies


@pytest.mark.parametrize("size", [1, SMALL_BYTES, 2 << 20])
def test_whatever_one_key_has_begun_to_send_another_sends_the_largest_body(size: int) -> None:
    arriving = Arriving(most_bytes(512 << 20, 2 << 20))
    begun(arriving, "a", size, 2000)

    assert [2 << 20] == [body.size for body in begun(arriving, "b", 2 << 20, 1)]


def test_with_little_memory_too_another_key_sends_an_ordinary_body() -> None:
    arriving = Arriving(most_bytes(1, 2 << 20))
    begun(arriving, "a", SMALL_BYTES, 2000)

    assert begun(arriving, "b", 1 << 20, 1)


@pytest.mark.parametrize("key_id", [None, "a"])
def test_a_body_of_the_largest_size_gets_in_alone(key_id: str | None) -> None:
    arriving = Arriving(most_bytes(1, 2 << 20))

    assert begun(arriving, key_id, 2 << 20, 1)


@pytest.mark.parametrize("key_id", [None, "a"])
def test_large_bodies_leave_room_for_small_ones_of_the_same_key_and_of_none(key_id: str | None) -> None:
    arriving = Arriving(most_bytes(1, 2 << 20))
    begun(arriving, key_id, SMALL_BYTES + 1, 2000)

    assert 8 == len(begun(arriving, key_id, SMALL_BYTES, 8))


async def two_at_once(piece: bytes, arriving: Arriving) -> None:
    """Two bodies of which each has this piece, and waits for more."""

    async def receive() -> MutableMapping[str, Any]:
        if pieces:
            return {"type": "http.request", "body": pieces.pop(), "more_body": True}
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    pieces = [piece, piece]
    headers = {"content-type": "application/json"}
    async with asyncio.timeout(5):
        await asyncio.gather(*(read_body(headers, receive, 100, arriving) for _ in pieces))


def test_what_was_refused_or_read_holds_nothing_any_more() -> None:
    arriving = Arriving(200)
    for pieces, error in (((b"a" * 90, None), GenerationFailed), ((b"a" * 90, b"a" * 90), BodyTooLarge)):
        with pytest.raises(error):
            read({}, *pieces, arriving=arriving)
    read({}, b"a" * 90, arriving=arriving)

    assert b"b" * 90 == read({}, b"b" * 90, arriving=arriving)[0]


@pytest.mark.parametrize(
    ("memory", "body", "most"),
    [(None, 2, 64 << 20), (8 << 30, 2, 64 << 20), (512 << 20, 2, 16 << 20), (32 << 20, 2 << 20, 12 << 20)],
)
def test_what_may_arrive_at_once_is_little_of_the_memory_and_six_bodies_at_least(
    memory: int | None, body: int, most: int
) -> None:
    assert most == most_bytes(memory, body)


@pytest.mark.parametrize("size", [SMALL_BYTES, SMALL_BYTES + 1, 2 << 20])
def test_whatever_one_key_begins_to_send_there_is_room_for_the_largest_body_of_another(size: int) -> None:
    largest = 2 << 20
    arriving = Arriving(most_bytes(32 << 20, largest))
    with ExitStack() as stack:
        for _ in range(1000):
            with suppress(Overloaded):
                stack.enter_context(arriving.one("a")).add(size)

        stack.enter_context(arriving.one("b")).add(largest)
