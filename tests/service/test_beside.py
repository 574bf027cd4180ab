"""Which bodies are read in worker threads, and how many may wait for one."""

import asyncio
import threading

import pytest

from service import beside
from service.beside import Readers, read_beside
from service.errors import Overloaded
from tests.service.door import JSON, Client

CONSTRAINED = b'{"prompt":"a","constraint":{"choice":["a"]}}'
LONG = b'{"prompt":"' + b"a" * 9000 + b'"}'


def bounded(monkeypatch: pytest.MonkeyPatch, bound: str, most: int) -> None:
    """Have so much, and no more, wait for a thread."""
    monkeypatch.setattr(beside, bound, most)
    monkeypatch.setattr(beside, "_CONSTRAINED", Readers(1, "constraints"))
    monkeypatch.setattr(beside, "_LONG", Readers(4, "bodies"))


def thread_of(raw: bytes) -> str:
    return asyncio.run(read_beside(lambda body: threading.current_thread().name, raw))


@pytest.mark.parametrize(
    "raw",
    [
        CONSTRAINED,
        b'{"prompt":"a","\\u0063onstraint":{"choice":["a"]}}',
        b'{"prompt":"a","constr\\u0061int":{"choice":["a"]}}',
        b'{"messages":[],"respons\\u0065\\u005fformat":{}}',
        b'{"messages":[],"response_format":{}}',
        b'{"prompt":"\\\\" , "constraint" :{}}',
    ],
)
def test_what_may_have_to_be_compiled_is_read_in_the_one_thread_for_that(raw: bytes) -> None:
    assert thread_of(raw).startswith("constraints")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"prompt":"\\u00e9t\\u00e9 \\u7a2e \\ud83c\\udf31\\n"}',
        LONG.replace(b"aaa", b"\\u7a2e"),
        b'{"prompt":"what is a constraint, a \\"response_format\\"?"}',
    ],
    ids=["short", "long", "about"],
)
def test_text_in_escapes_or_about_constraints_does_not_wait_behind_what_is_compiled(raw: bytes) -> None:
    assert not thread_of(raw).startswith("constraints")


@pytest.mark.parametrize("raw", [CONSTRAINED, LONG], ids=["constrained", "long"])
@pytest.mark.parametrize("bound", ["MAX_WAITING", "MAX_WAITING_BYTES"])
def test_more_bodies_than_may_wait_for_a_thread_are_refused_with_a_time_to_return(
    raw: bytes, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded(monkeypatch, bound, 3 if bound == "MAX_WAITING" else 3 * len(raw))
    free = threading.Event()

    async def run() -> None:
        waiting = [asyncio.create_task(read_beside(lambda body: free.wait(10), raw)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded) as refused:
            await read_beside(len, raw)
        free.set()

        assert refused.value.retry_after_s
        assert [True] * 3 == await asyncio.gather(*waiting)
        assert len(raw) == await read_beside(len, raw)

    asyncio.run(run())


def test_a_body_that_was_refused_or_given_up_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded(monkeypatch, "MAX_WAITING", 1)

    async def run() -> None:
        with pytest.raises(ZeroDivisionError):
            await read_beside(lambda body: 1 // 0, LONG)
        given_up = asyncio.create_task(read_beside(len, LONG))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)

        assert len(LONG) == await read_beside(len, LONG)

    asyncio.run(run())


@pytest.mark.parametrize("raw", [CONSTRAINED, LONG], ids=["constrained", "long"])
def test_one_key_leaves_places_to_another(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded(monkeypatch, "MAX_WAITING", 8)
    free = threading.Event()

    async def run() -> None:
        waiting = [asyncio.create_task(read_beside(lambda body: free.wait(10), raw, "a")) for _ in range(10)]
        await asyncio.sleep(0)
        another = asyncio.create_task(read_beside(len, raw, "b"))
        await asyncio.sleep(0)
        free.set()

        assert len(raw) == await another
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [True] * 4 + [Overloaded] * 6 == [each if each is True else type(each) for each in ended]

    asyncio.run(run())


@pytest.mark.parametrize("route", ["/generate", "/v1/completions"])
def test_such_a_refusal_is_a_503_before_any_stream(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded(monkeypatch, "MAX_WAITING", 0)

    answer = Client().post(route, b'{"stream":true,' + CONSTRAINED[1:], JSON)

    assert (503, "overloaded") == (answer.status, answer.error["code"])
    assert answer.headers["retry-after"]
