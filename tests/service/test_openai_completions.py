"""Answers of `/v1/completions` and `/v1/models`: OpenAI's form, whole and in chunks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from service.request import GenerationRequest
from tests.fake_runtime import FakeRuntime, failing, finished, plain
from tests.service.door import Client
from tests.service.test_streams import data_of

BASE: Mapping[str, Any] = {"prompt": "abc", "seed": 1}


def chunks_of(runtime: FakeRuntime, **fields: Any) -> list[Any]:
    return data_of(Client(runtime).post("/v1/completions", {**BASE, "stream": True, **fields}).body)


def test_a_whole_answer_has_openais_form() -> None:
    answer = Client().post("/v1/completions", BASE).json

    assert ("text_completion", "tiny", "fp", 1) == (
        answer["object"],
        answer["model"],
        answer["system_fingerprint"],
        answer["seed"],
    )
    assert [{"index": 0, "text": "sunrise", "logprobs": None, "finish_reason": "length"}] == answer["choices"]


def test_usage_has_openais_names() -> None:
    usage = Client().post("/v1/completions", BASE).json["usage"]

    assert {
        "prompt_tokens": 3,
        "completion_tokens": 7,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
    } == usage


@pytest.mark.parametrize(
    ("ours", "theirs"), [("eos", "stop"), ("stop", "stop"), ("length", "length"), ("deadline", "length")]
)
def test_finish_reasons_have_openais_names(ours: Any, theirs: str) -> None:
    def script(request: GenerationRequest) -> Any:
        event = finished(request, "a")
        return [replace(event, completions=(replace(event.completions[0], finish_reason=ours),))]

    answer = Client(FakeRuntime(script)).post("/v1/completions", BASE)

    assert theirs == answer.json["choices"][0]["finish_reason"]


def test_several_texts_are_several_choices() -> None:
    choices = Client().post("/v1/completions", {**BASE, "n": 2}).json["choices"]

    assert [(0, "sunrise"), (1, "sunrise")] == [(choice["index"], choice["text"]) for choice in choices]


def test_a_stream_is_text_and_then_the_finish_reason() -> None:
    chunks = chunks_of(FakeRuntime(plain("sun", "rise")))

    assert [("sun", None), ("rise", None), ("", "length")] == [
        (chunk["choices"][0]["text"], chunk["choices"][0]["finish_reason"]) for chunk in chunks
    ]


def test_every_chunk_of_several_texts_names_its_index() -> None:
    chunks = chunks_of(FakeRuntime(plain("sun", "rise")), n=2)

    assert [(0, "sun"), (1, "sun"), (0, "rise"), (1, "rise"), (0, ""), (1, "")] == [
        (chunk["choices"][0]["index"], chunk["choices"][0]["text"]) for chunk in chunks
    ]


def test_every_text_of_a_stream_has_its_finish_reason() -> None:
    choices = [chunk["choices"][0] for chunk in chunks_of(FakeRuntime(), n=3)]

    assert [0, 1, 2] == [choice["index"] for choice in choices if choice["finish_reason"] == "length"]


def test_usage_comes_last_and_alone_where_it_was_asked_for() -> None:
    *chunks, last = chunks_of(FakeRuntime(), stream_options={"include_usage": True})

    assert ([], 7) == (last["choices"], last["usage"]["completion_tokens"])
    assert [None] * 3 == [chunk["usage"] for chunk in chunks]


def test_without_being_asked_for_no_chunk_has_usage() -> None:
    assert not any("usage" in chunk for chunk in chunks_of(FakeRuntime()))


def test_all_chunks_have_one_id_and_one_object() -> None:
    chunks = chunks_of(FakeRuntime(), stream_options={"include_usage": True})

    assert 1 == len({(chunk["id"], chunk["object"], chunk["created"]) for chunk in chunks})


def test_a_failure_in_a_stream_is_an_error_and_then_the_end() -> None:
    *_, last = chunks_of(FakeRuntime(failing("engine_stopped", "sun")))

    assert "engine_stopped" == last["error"]["code"]


def test_the_served_model_is_listed() -> None:
    (model,) = Client().get("/v1/models").json["data"]

    assert ("tiny", "model", "tane") == (model["id"], model["object"], model["owned_by"])


def test_the_served_model_is_described() -> None:
    assert "tiny" == Client().get("/v1/models/tiny").json["id"]


@pytest.mark.parametrize("name", ["gpt-4", "org/model"])
def test_another_model_is_not_found(name: str) -> None:
    answer = Client().get(f"/v1/models/{name}")

    assert (404, "model_not_found") == (answer.status, answer.error["code"])
