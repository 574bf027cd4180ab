"""What a server does when its memory grows short, as far as an injected reader tells it."""

import logging

import pytest

from service.errors import Overloaded
from service.logs import fields_of
from service.memory import MemoryUse
from service.memory_guard import SHED_EVERY, MemoryGuard, Pressure
from service.metrics import Metrics
from tests.fake_runtime import FakeRuntime, make_service
from tests.service.door import Client

LIMIT = 1000


class Memory:
    """What a test says is held."""

    def __init__(self, used: int = 0) -> None:
        self.used = used

    def __call__(self) -> tuple[MemoryUse, ...]:
        return (MemoryUse(self.used, LIMIT),)


def pressures(*used: int) -> list[Pressure]:
    """After a look at each of these, one after the other."""
    memory = Memory()
    guard = MemoryGuard(memory)
    seen: list[Pressure] = []
    for memory.used in used:
        guard.look()
        seen.append(guard.pressure)
    return seen


def test_it_sheds_from_92_percent_and_refuses_from_95() -> None:
    assert ["none", "shed", "shed", "refuse"] == pressures(919, 920, 949, 950)


def test_it_refuses_until_it_is_below_92_and_sheds_until_it_is_below_88() -> None:
    assert ["refuse", "refuse", "refuse", "shed", "shed", "none"] == pressures(950, 940, 920, 919, 880, 879)


def test_it_does_not_shed_again_before_92() -> None:
    assert ["shed", "none", "none", "shed"] == pressures(920, 870, 910, 920)


def test_the_nearest_bound_counts() -> None:
    guard = MemoryGuard(lambda: (MemoryUse(1, 100), MemoryUse(96, 100)))

    guard.look()

    assert "refuse" == guard.pressure


def test_where_nothing_is_known_nothing_is_refused() -> None:
    guard = MemoryGuard(tuple)

    guard.look()
    guard.check()

    assert ("none", None) == (guard.pressure, guard.use)


def test_what_can_be_is_given_back_at_once_and_then_now_and_then() -> None:
    given: list[int] = []
    looks = 0
    guard = MemoryGuard(Memory(930), [lambda: given.append(looks)])

    for looks in range(2 * SHED_EVERY + 1):  # noqa: B007
        guard.look()

    assert [0, SHED_EVERY, 2 * SHED_EVERY] == given


def test_each_change_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    memory = Memory()
    guard = MemoryGuard(memory)
    with caplog.at_level(logging.WARNING):
        for memory.used in (100, 930, 931, 960, 100):
            guard.look()

    assert [("shed", 930), ("refuse", 960), ("none", 100)] == [
        (fields_of(record)["pressure"], fields_of(record)["used_bytes"]) for record in caplog.records
    ]


def full_server() -> tuple[Client, FakeRuntime, Memory]:
    runtime, memory = FakeRuntime(), Memory(960)
    service = make_service(runtime, memory=MemoryGuard(memory))
    service.memory.look()
    return Client(service=service), runtime, memory


@pytest.mark.parametrize("path", ["/generate", "/v1/completions", "/v1/chat/completions", "/tokenize", "/estimate"])
def test_new_work_is_refused_before_its_body_is_read(path: str) -> None:
    client, runtime, _ = full_server()

    answer = client.post(path, b"no JSON at all")

    assert (503, "overloaded") == (answer.status, answer.error["code"])
    assert int(answer.headers["retry-after"]) > 0
    assert [] == runtime.requests


def test_readiness_tells_and_life_goes_on() -> None:
    client, _, _ = full_server()

    answer = client.get("/readyz")

    assert (503, "overloaded", 200) == (answer.status, answer.error["code"], client.get("/livez").status)


def test_it_takes_work_again_when_there_is_room() -> None:
    client, _, memory = full_server()
    memory.used = 100
    client.service.memory.look()

    assert [200, 200] == [client.post("/generate", {"prompt": "abc"}).status, client.get("/readyz").status]


def test_a_body_that_arrives_while_memory_runs_out_is_refused_too() -> None:
    runtime, memory = FakeRuntime(), Memory()
    guard = MemoryGuard(memory)
    checks = iter((None, Overloaded("full")))

    def check() -> None:
        if (refusal := next(checks)) is not None:
            raise refusal

    guard.check = check  # type: ignore[method-assign]
    answer = Client(service=make_service(runtime, memory=guard)).post("/generate", {"prompt": "abc"})

    assert (503, []) == (answer.status, runtime.requests)


def test_the_metrics_show_what_is_held_and_what_is_done_about_it() -> None:
    guard = MemoryGuard(Memory(930))
    metrics = Metrics()
    metrics.of_memory(lambda: guard.use, lambda: guard.pressure)
    guard.look()

    lines = [line for line in metrics.render().decode().splitlines() if line.startswith("tane_memory")]
    assert {
        'tane_memory_bytes{kind="used"} 930.0',
        'tane_memory_bytes{kind="limit"} 1000.0',
        'tane_memory_pressure{state="none"} 0.0',
        'tane_memory_pressure{state="shed"} 1.0',
        'tane_memory_pressure{state="refuse"} 0.0',
    } == set(lines)
