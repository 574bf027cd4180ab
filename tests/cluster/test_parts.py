"""What a run through several replicas is told from, tried without them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from service.affinity import HEADER, Caller
from service.cli.load_places import Places, ReplicaLoad
from service.cli.load_report import LevelReport, level_report
from service.client import AsyncClient
from tests.cluster.__main__ import Shown, notes, table
from tests.cluster.partings import Failover, Leaving
from tests.cluster.router_load import affinity
from tests.cluster.streams import Stream, streams
from tests.cluster.witness import Witness
from tests.service.test_client import ANSWER, event

WHOLE = event({"index": 0, "text": "né", "token_ids": [5, 6], "logprobs": None}, 2) + event(ANSWER, 2)
LOST = Failover(16, 16, 9, 16, 32, (), {"broke off": 9}, 2.0, 5.0)
LEFT = Leaving(16, 16, 16)
LEVEL = replace(
    level_report("2 sessions", 2, [], 1.0), places=Places({"a": ReplicaLoad(3, 9), "b": ReplicaLoad(1, 4)}, 20, 19)
)
SHOWN = Shown(2, 9.0, [LEVEL], True, LOST, LEFT)


class Breaking(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield WHOLE[:20]
        raise httpx.ReadError("gone")


def read(stream: Stream, *answers: Any) -> Witness:
    """Read the stream through a transport that answers so, one after another."""
    left = iter(answers)

    def server(request: httpx.Request) -> httpx.Response:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(**{"status_code": 200, "headers": {"x-tane-replica": "r1"}, **answer})

    witness = Witness(httpx.MockTransport(server))

    async def run() -> None:
        async with AsyncClient("http://a.test", "key", transport=witness, attempts=len(answers)) as client:
            await stream.read(client)

    asyncio.run(run())
    return witness


def one_stream() -> Stream:
    (stream,) = streams(1, 4, "key", 1)
    return stream


def test_a_stream_that_ended_is_whole() -> None:
    read(stream := one_stream(), {"content": WHOLE})

    assert (True, False, "né", None) == (stream.is_whole, stream.runs, stream.text, stream.error)


def test_a_stream_whose_pieces_are_not_its_text_is_not_whole() -> None:
    read(stream := one_stream(), {"content": event(ANSWER, 2)})

    assert not stream.is_whole


def test_a_stream_that_nobody_answers_has_an_error() -> None:
    read(stream := one_stream(), {"status_code": 401, "json": {"error": {"code": "c", "message": "m"}}})

    assert "m (c)" == stream.error


def test_a_witness_knows_who_answered() -> None:
    witness = read(stream := one_stream(), {"content": WHOLE})

    assert "r1" == witness.answered_by(stream.affinity)
    assert [] == witness.failed


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        ({"stream": Breaking()}, "broke off"),
        ({"status_code": 500, "text": "Internal Server Error"}, "status 500"),
        (httpx.ConnectError("refused"), "no answer"),
    ],
)
def test_a_witness_knows_which_attempts_failed(failure: Any, told: str) -> None:
    witness = read(stream := one_stream(), failure, {"content": WHOLE})

    assert [told] == [str(attempt) for attempt in witness.failed]
    assert stream.is_whole


def test_each_stream_belongs_with_itself_alone() -> None:
    made = streams(4, 9, "key", 1)

    assert 4 == len({stream.affinity for stream in made})
    assert [stream.affinity for stream in made] == [Caller("key").affinity(stream.fields)[HEADER] for stream in made]


def test_affinity_is_over_all_levels() -> None:
    other = replace(LEVEL, places=Places({}, 80, 80))

    assert 0.99 == affinity([LEVEL, other])


def test_a_run_that_lost_nothing_holds() -> None:
    assert SHOWN.holds


def failed_level() -> LevelReport:
    return replace(LEVEL, errors={"timeout": 1})


@pytest.mark.parametrize(
    "shown",
    [
        replace(SHOWN, levels=[replace(LEVEL, places=Places({}, 20, 18))]),
        replace(SHOWN, levels=[failed_level()]),
        replace(SHOWN, is_heard_to_go=False),
        replace(SHOWN, failover=replace(LOST, lost=("connection_failed",))),
        replace(SHOWN, failover=replace(LOST, as_calm=15)),
        replace(SHOWN, failover=replace(LOST, had_begun=15)),
        replace(SHOWN, failover=replace(LOST, broken=0)),
        replace(SHOWN, leaving=replace(LEFT, whole=15)),
    ],
)
def test_a_run_with_a_fault_or_without_a_test_does_not_hold(shown: Shown) -> None:
    assert not shown.holds
    assert "NOT as it should be." == notes(shown)[-1]


def test_the_report_tells_load_affinity_and_loss() -> None:
    cells = [list(column.cells) for column in table(SHOWN).columns]
    told = "\n".join(notes(SHOWN))

    assert ["a 3 (9)\nb 1 (4)"] == cells[3]
    assert "Affinity: 95.0%" in told
    assert "16 of 16 streams ran, 9 of them there; 16 ended" in told
