"""Several models behind one door: a request chooses with `model`, and each has its own engine, text and numbers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from model.tokenizer import Tokenizer
from service.context import Served
from service.model_report import ModelReport
from service.request import DeleteSession, DescribeSession, ForkSession, ListSessions
from tests.fake_runtime import ENGINE_INFO, MODEL, FakeRuntime, make_service, plain
from tests.service.door import Answer, Client
from tests.tiny_vocabulary import tiny_vocabulary

MERGING = Tokenizer(tiny_vocabulary())
"""Which spells "hello" in one token, where the main model's needs five."""
REPORT = ModelReport(1000, 437, 3.5, "gptq-3bit-g64", {"loss": 0.5}, {"perplexity": 20.5})
CHAT = [{"role": "user", "content": "Hi"}]
GENERATING: Mapping[str, dict[str, Any]] = {
    "/generate": {"prompt": "abc"},
    "/v1/completions": {"prompt": "abc"},
    "/v1/chat/completions": {"messages": CHAT},
}
BODIES: Mapping[str, dict[str, Any]] = {
    **GENERATING,
    "/tokenize": {"text": "hello"},
    "/detokenize": {"token_ids": [5]},
    "/sessions/known/fork": {"session_id": "b"},
}
SESSION_CALLS = [("GET", "/sessions"), ("GET", "/sessions/known"), ("DELETE", "/sessions/known")]


class Both:
    """A client of a server with the models `tiny` and `small`, and their fakes."""

    def __init__(self) -> None:
        self.tiny, self.small = FakeRuntime(plain("sun", "rise")), FakeRuntime(plain("moon"))
        info = replace(ENGINE_INFO, context_length=32, fingerprint="small-fp")
        variant = Served(self.small, info, replace(MODEL, name="small", tokenizer=MERGING, report=REPORT))
        self.client = Client(service=make_service(self.tiny, variants=[variant]))

    def post(self, path: str, body: Any) -> Answer:
        return self.client.post(path, body)


@pytest.fixture
def both() -> Both:
    return Both()


@pytest.mark.parametrize("route", GENERATING)
@pytest.mark.parametrize(
    ("chosen", "asked"), [({}, "tiny"), ({"model": "tiny"}, "tiny"), ({"model": "small"}, "small")]
)
def test_the_model_that_is_named_is_asked(both: Both, route: str, chosen: dict[str, str], asked: str) -> None:
    answer = both.post(route, {**GENERATING[route], **chosen})

    assert (200, asked) == (answer.status, answer.json["model"])
    assert {"tiny": (1, 0), "small": (0, 1)}[asked] == (len(both.tiny.requests), len(both.small.requests))


def test_a_stream_is_of_the_model_that_is_named(both: Both) -> None:
    assert b"moon" in both.post("/generate", {"prompt": "abc", "model": "small", "stream": True}).body


def test_an_answer_names_the_engine_of_its_model(both: Both) -> None:
    answer = both.post("/generate", {"prompt": "abc", "model": "small"}).json

    assert ("small-fp", "small") == (answer["reproducibility"]["fingerprint"], answer["parameters"]["model"])


def test_a_prompt_is_encoded_by_the_model_that_is_named(both: Both) -> None:
    both.post("/generate", {"prompt": "hello", "model": "small"})

    assert tuple(MERGING.encode("hello")) == both.small.request.prompt_ids


def test_the_context_is_that_of_the_model_that_is_named(both: Both) -> None:
    prompt = {"prompt": "x" * 40}

    assert 200 == both.post("/generate", prompt).status
    assert "context_length_exceeded" == both.post("/generate", {**prompt, "model": "small"}).error["code"]


@pytest.mark.parametrize("route", BODIES)
def test_a_model_that_is_not_served_is_not_found_and_those_that_are_are_named(both: Both, route: str) -> None:
    answer = both.post(route, {**BODIES[route], "model": "large"})

    assert (404, "model_not_found", "model", ["tiny", "small"]) == (
        answer.status,
        answer.error["code"],
        answer.error["param"],
        answer.error["allowed"],
    )


@pytest.mark.parametrize(("method", "path"), SESSION_CALLS)
def test_sessions_of_a_model_that_is_not_served_are_not_found(both: Both, method: str, path: str) -> None:
    answer = both.client.request(method, f"{path}?model=large")

    assert (404, "model_not_found", ["tiny", "small"]) == (answer.status, answer.error["code"], answer.error["allowed"])


@pytest.mark.parametrize("name", ["", "Small", "small ", "tiny/small"])
def test_a_name_is_taken_as_it_stands(both: Both, name: str) -> None:
    assert "model_not_found" == both.post("/generate", {"prompt": "abc", "model": name}).error["code"]


def test_text_becomes_the_ids_of_the_model_that_is_named(both: Both) -> None:
    ids = both.post("/tokenize", {"text": "hello", "model": "small"}).json["token_ids"]

    assert 1 == len(ids) < len(both.post("/tokenize", {"text": "hello"}).json["token_ids"])
    assert "hello" == both.post("/detokenize", {"token_ids": ids, "model": "small"}).json["text"]
    assert "out_of_range" == both.post("/detokenize", {"token_ids": ids}).error["code"]


@pytest.mark.parametrize(
    ("method", "path", "command"),
    [(*call, kind) for call, kind in zip(SESSION_CALLS, (ListSessions, DescribeSession, DeleteSession), strict=True)],
)
def test_sessions_are_those_of_the_model_that_is_named(both: Both, method: str, path: str, command: type) -> None:
    both.client.request(method, f"{path}?model=small")

    assert ([command], []) == ([type(each) for each in both.small.commands], both.tiny.commands)


def test_sessions_are_those_of_the_main_model_where_none_is_named(both: Both) -> None:
    both.client.get("/sessions")

    assert ([ListSessions], []) == ([type(each) for each in both.tiny.commands], both.small.commands)


def test_a_fork_stays_with_its_model(both: Both) -> None:
    answer = both.post("/sessions/known/fork", {"session_id": "b", "model": "small"})

    assert (201, [ForkSession], []) == (answer.status, [type(each) for each in both.small.commands], both.tiny.commands)


@pytest.mark.parametrize(
    ("query", "code"), [("modle=small", "unknown_field"), ("model=small&model=tiny", "repeated_field")]
)
def test_a_query_that_says_anything_but_a_model_is_refused(both: Both, query: str, code: str) -> None:
    answer = both.client.delete(f"/sessions/known?{query}")

    assert (422, code, []) == (answer.status, answer.error["code"], both.tiny.commands)


@pytest.mark.parametrize("route", [*BODIES, "/replay"])
def test_a_model_in_the_query_is_not_ignored_where_there_is_a_body(both: Both, route: str) -> None:
    answer = both.post(f"{route}?model=small", BODIES.get(route, {}))

    assert (400 if route.startswith("/v1/") else 422, "model") == (answer.status, answer.error["param"])


def record_of(both: Both, **fields: Any) -> dict[str, Any]:
    request = {"prompt": "abc", "seed": 1, **fields}
    return {"request": request, "answer": both.post("/generate", request).json}


@pytest.mark.parametrize("name", ["tiny", "small"])
def test_a_record_is_replayed_by_the_model_that_answered(both: Both, name: str) -> None:
    result = both.post("/replay", record_of(both, model=name)).json

    assert (True, name, []) == (result["equal"], result["answer"]["model"], result["dropped"])


def test_a_record_can_be_replayed_by_another_served_model(both: Both) -> None:
    result = both.post("/replay", {**record_of(both, model="tiny"), "model": "small"}).json

    assert (False, "small", ["model"]) == (result["equal"], result["answer"]["model"], result["dropped"])
    assert ["other_model", "other_fingerprint"] == result["reasons"][:2]


@pytest.mark.parametrize("name", ["large", ""])
def test_a_record_for_a_model_that_is_not_served_is_not_found(both: Both, name: str) -> None:
    answer = both.post("/replay", {**record_of(both), "model": name})

    assert (404, "model_not_found", "model") == (answer.status, answer.error["code"], answer.error["param"])


def test_the_server_is_ready_only_when_every_model_is(both: Both) -> None:
    assert 200 == both.client.get("/readyz").status
    both.small.is_ready = False

    answer = both.client.get("/readyz")

    assert (503, "not_ready") == (answer.status, answer.error["code"])
    assert "small cannot take requests" == answer.error["message"]


def test_the_server_is_live_only_while_every_engine_is(both: Both) -> None:
    assert 200 == both.client.get("/livez").status
    both.small.is_live = False

    answer = both.client.get("/livez")

    assert (503, "not_live") == (answer.status, answer.error["code"])
    assert "the engine of small does not move" == answer.error["message"]


def test_the_server_drains_as_soon_as_one_engine_does(both: Both) -> None:
    both.small.draining, both.small.is_ready = True, False

    assert "draining" == both.client.get("/readyz").error["code"]


def test_every_model_is_listed_the_main_one_first(both: Both) -> None:
    assert ["tiny", "small"] == [model["id"] for model in both.client.get("/v1/models").json["data"]]


@pytest.mark.parametrize("name", ["tiny", "small"])
def test_every_model_is_described_by_its_name(both: Both, name: str) -> None:
    assert name == both.client.get(f"/v1/models/{name}").json["id"]


@pytest.mark.parametrize(
    "field", ["sha256", "bytes", "parameters", "bits_per_weight", "recipe", "report", "evaluation", "draft"]
)
def test_the_list_and_info_tell_the_same_of_each_model(both: Both, field: str) -> None:
    listed = both.client.get("/v1/models").json["data"]
    told = both.client.get("/info").json["models"]

    assert [model[field] for model in told] == [model[field] for model in listed]


def test_each_model_has_its_report_and_its_engine(both: Both) -> None:
    tiny, small = both.client.get("/info").json["models"]

    assert ("tiny", 5.0, None, 64, "fp") == (
        tiny["name"],
        tiny["bits_per_weight"],
        tiny["recipe"],
        tiny["engine"]["context_length"],
        tiny["reproducibility"]["fingerprint"],
    )
    assert ("small", 3.5, "gptq-3bit-g64", {"loss": 0.5}, {"perplexity": 20.5}, 32, "small-fp") == (
        small["name"],
        small["bits_per_weight"],
        small["recipe"],
        small["report"],
        small["evaluation"],
        small["engine"]["context_length"],
        small["reproducibility"]["fingerprint"],
    )


def test_at_the_top_info_tells_of_the_main_model(both: Both) -> None:
    info = both.client.get("/info").json
    main = info["models"][0]

    beside = {name: info[name] for name in ("draft", "engine", "reproducibility")}
    assert main == info["model"] | beside


def test_openapi_names_the_model_in_the_query_of_sessions(both: Both) -> None:
    operation = both.client.get("/openapi.json").json["paths"]["/sessions/{session_id}"]["delete"]

    assert {("session_id", "path"), ("model", "query")} == {
        (each["name"], each["in"]) for each in operation["parameters"]
    }
