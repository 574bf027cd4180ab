"""Which replica answered what, and whether requests that belong together came to one."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from service.cli.load import run_load
from service.cli.load_places import Places, ReplicaLoad, places_of
from service.cli.load_plan import Load, LoadPlan, Target
from service.cli.load_prompts import Length
from service.cli.load_report import LevelReport
from tests.service.cli.completions_fake import CompletionsFake
from tests.serving import serving

PLAN = LoadPlan(
    loads=(Load("concurrency", 1),),
    requests=6,
    prompt_tokens=Length(90, 90),
    output_tokens=Length(3, 3),
    seed=1,
    warmup=0,
    timeout_s=60.0,
    shared_prefix=80,
)


@dataclass(frozen=True)
class Answer:
    replica: str | None
    affinity: str | None = None
    started: float = 0.0
    generated_tokens: int = 3


def test_each_replica_has_its_requests_and_tokens() -> None:
    places = places_of([Answer("b"), Answer("a", generated_tokens=5), Answer("b")])

    assert places is not None
    assert [("a", ReplicaLoad(1, 5)), ("b", ReplicaLoad(2, 6))] == list(places.replicas.items())


def test_the_first_request_of_a_header_cannot_come_back() -> None:
    assert Places({"a": ReplicaLoad(2, 6)}, 0, 0) == places_of([Answer("a", "s"), Answer("a", "t")])


def test_a_request_comes_back_to_the_replica_of_the_last_with_its_header() -> None:
    places = places_of([Answer("a", "s", 0), Answer("b", "s", 1), Answer("b", "s", 2), Answer("b", "t", 3)])

    assert places is not None
    assert (2, 1, 0.5) == (places.could_return, places.returned, places.share)


def test_requests_are_taken_in_the_order_in_which_they_began() -> None:
    places = places_of([Answer("b", "s", 2), Answer("a", "s", 0), Answer("a", "s", 1), Answer("b", "s", 3)])

    assert places is not None
    assert (3, 2) == (places.could_return, places.returned)


def test_requests_without_a_header_belong_with_nothing() -> None:
    places = places_of([Answer("a"), Answer("a")])

    assert places is not None
    assert None is places.share


def test_a_server_that_names_nobody_has_no_places() -> None:
    assert None is places_of([Answer(None, "s"), Answer(None, "s")])


@pytest.fixture
def running() -> Iterator[tuple[CompletionsFake, str]]:
    fake = CompletionsFake(paths={"/v1/models": {"data": [{"id": "tiny"}]}})
    with serving(fake) as url:
        yield fake, url


def level_of(url: str, plan: LoadPlan = PLAN) -> LevelReport:
    (report,) = asyncio.run(run_load([Target(url)], plan, lambda: None))
    return report.levels[0]


def test_prompts_of_a_group_begin_alike(running: tuple[CompletionsFake, str]) -> None:
    server, url = running

    level_of(url, replace(PLAN, prefix_groups=3))

    beginnings = [tuple(body["prompt"].split()[:80]) for body in server.bodies]
    assert beginnings[:3] == beginnings[3:]
    assert 3 == len(set(beginnings))


def test_what_belongs_together_carries_one_header(running: tuple[CompletionsFake, str]) -> None:
    server, url = running

    level_of(url, replace(PLAN, prefix_groups=2))

    one, other, *again = server.affinities
    assert [one, other] * 2 == again
    assert None is not one != other


def test_replicas_that_name_themselves_are_told_apart(running: tuple[CompletionsFake, str]) -> None:
    server, url = running
    server.headers = ((b"x-tane-replica", b"r1"),)

    assert Places({"r1": ReplicaLoad(6, 18)}, 5, 5) == level_of(url).places
