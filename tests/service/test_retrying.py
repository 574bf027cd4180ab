"""When those who were refused are told to come back."""

import pytest

from service.errors import RETRIED, Draining, GenerationFailed, Overloaded, RateLimited, ServiceError
from service.retrying import SPREAD, SPREAD_S, retry_after
from tests.fake_runtime import FakeRuntime, failing
from tests.service.door import Client
from tests.service.test_memory_guard import full_server

DRAWS = 200


def every_error() -> list[type[ServiceError]]:
    return [each for each in ServiceError.__subclasses__() if each is not GenerationFailed]


@pytest.mark.parametrize("expected_s", [0.0, 0.4, 1.0, 20.0, 60.0])
def test_nobody_is_told_to_come_before_there_is_room_nor_much_later(expected_s: float) -> None:
    waits = [retry_after(expected_s) for _ in range(DRAWS)]

    assert max(1, expected_s) <= min(waits)
    assert max(waits) <= expected_s + max(SPREAD_S, SPREAD * expected_s) + 1


@pytest.mark.parametrize("expected_s", [0.0, 0.4, 1.0, 20.0, 60.0])
def test_not_all_are_told_to_come_back_at_once(expected_s: float) -> None:
    assert len({retry_after(expected_s) for _ in range(DRAWS)}) >= 3


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_exactly_errors_that_pass_say_when_to_come_back(kind: type[ServiceError]) -> None:
    waits = {kind("refused").retry_after_s for _ in range(DRAWS)}

    assert ({1, 2, 3} if kind.status in RETRIED else {None}) == waits


def test_what_the_server_knows_better_is_told_instead() -> None:
    assert [7] * 3 == [kind("full", retry_after_s=7).retry_after_s for kind in (Overloaded, Draining, RateLimited)]


def test_a_request_that_ended_with_its_engine_says_when_to_come_back() -> None:
    answers = [Client(FakeRuntime(failing("engine_stopped"))).post("/generate", {"prompt": "a"}) for _ in range(100)]

    assert {503} == {answer.status for answer in answers}
    assert {"1", "2", "3"} == {answer.headers["retry-after"] for answer in answers}


@pytest.mark.parametrize("attribute", ["is_live", "is_ready"])
def test_health_that_fails_says_when_to_come_back(attribute: str) -> None:
    runtime = FakeRuntime()
    setattr(runtime, attribute, False)

    answer = Client(runtime).get("/livez" if attribute == "is_live" else "/readyz")

    assert (503, True) == (answer.status, answer.headers["retry-after"] in {"1", "2", "3"})


def test_a_server_short_of_memory_says_when_to_come_back() -> None:
    client, _, _ = full_server()

    assert {"1", "2", "3"} == {client.post("/generate", {"prompt": "a"}).headers["retry-after"] for _ in range(100)}
