"""Pages of other origins: let in by name, and by nothing else."""

import logging
from typing import Any

import pytest

from service.settings import Settings, SettingsError
from tests.fake_runtime import FakeRuntime, make_service
from tests.service.door import JSON, Answer, Client
from tests.service.test_error_envelope import broken

PAGE = "https://page.example"
ALLOW = "access-control-allow-origin"


def client(*origins: str, runtime: FakeRuntime | None = None) -> Client:
    return Client(service=make_service(runtime, settings=Settings(cors_origin=origins)))


def preflight(client: Client, origin: str, **headers: str) -> Answer:
    asked = {"origin": origin, "access-control-request-method": "POST", **headers}
    return client.request("OPTIONS", "/v1/chat/completions", headers=asked)


def test_without_the_setting_no_page_is_let_in() -> None:
    answer = Client().post("/generate", {"prompt": "a"}, {**JSON, "origin": PAGE})

    assert (200, False) == (answer.status, ALLOW in answer.headers)


def test_without_the_setting_a_preflight_request_is_another_method() -> None:
    assert 405 == preflight(Client(), PAGE).status


def test_a_preflight_request_of_a_named_origin_is_answered() -> None:
    answer = preflight(client(PAGE), PAGE, **{"access-control-request-headers": "authorization, content-type"})

    assert (200, PAGE, "authorization, content-type") == (
        answer.status,
        answer.headers[ALLOW],
        answer.headers["access-control-allow-headers"],
    )
    assert "POST" in answer.headers["access-control-allow-methods"]


def test_a_preflight_request_of_another_origin_is_refused_in_the_common_form() -> None:
    answer = preflight(client(PAGE), "https://other.example")

    assert (403, "origin_refused", False) == (answer.status, answer.error["code"], ALLOW in answer.headers)


def test_a_preflight_request_has_an_id() -> None:
    assert 32 == len(preflight(client(PAGE), PAGE).headers["x-request-id"])


def test_an_answer_to_a_named_origin_may_be_read() -> None:
    answer = client(PAGE).post("/generate", {"prompt": "a"}, {**JSON, "origin": PAGE})

    assert (PAGE, "x-request-id, retry-after, x-tane-fingerprint") == (
        answer.headers[ALLOW],
        answer.headers["access-control-expose-headers"],
    )


def test_caches_are_told_that_answers_depend_on_the_origin() -> None:
    assert "Origin" in client(PAGE).post("/generate", {"prompt": "a"}, JSON).headers["vary"]


def test_an_answer_to_another_origin_may_not_be_read() -> None:
    answer = client(PAGE).post("/generate", {"prompt": "a"}, {**JSON, "origin": "https://other.example"})

    assert ALLOW not in answer.headers


def test_a_star_lets_every_page_in() -> None:
    answer = client("*").post("/generate", {"prompt": "a"}, {**JSON, "origin": PAGE})

    assert "*" == answer.headers[ALLOW]


def test_a_stream_may_be_read() -> None:
    answer = client(PAGE).post("/generate", {"prompt": "a", "stream": True}, {**JSON, "origin": PAGE})

    assert (PAGE, True) == (answer.headers[ALLOW], answer.body.endswith(b"data: [DONE]\n\n"))


def test_an_error_may_be_read() -> None:
    answer = client(PAGE).post("/generate", {"prompt": ""}, {**JSON, "origin": PAGE})

    assert (422, PAGE) == (answer.status, answer.headers[ALLOW])


def test_a_fault_of_ours_may_be_read() -> None:
    logging.disable(logging.CRITICAL)
    try:
        answer = client(PAGE, runtime=FakeRuntime(broken)).post("/generate", {"prompt": "a"}, {**JSON, "origin": PAGE})
    finally:
        logging.disable(logging.NOTSET)

    assert (500, PAGE) == (answer.status, answer.headers[ALLOW])


def test_several_origins_are_each_let_in() -> None:
    app = client(PAGE, "http://localhost:3000")

    assert [PAGE, "http://localhost:3000"] == [
        preflight(app, origin).headers[ALLOW] for origin in (PAGE, "http://localhost:3000")
    ]


def test_origins_come_from_flags_or_from_one_variable() -> None:
    origins = (PAGE, "http://[::1]:3000")

    assert origins == Settings.load({}, {"cors_origin": origins}).cors_origin
    assert origins == Settings.load({"TANE_CORS_ORIGIN": " ".join(origins)}, {"cors_origin": ()}).cors_origin


@pytest.mark.parametrize(
    "bad", ["page.example", "https://page.example/", "https://page.example/a", "null", "https://*"]
)
def test_what_is_no_origin_is_refused(bad: str) -> None:
    flags: dict[str, Any] = {"cors_origin": (PAGE, bad)}

    with pytest.raises(SettingsError) as caught:
        Settings.load({}, flags)

    assert ("--cors-origin must be * or like https://example.org",) == caught.value.problems
