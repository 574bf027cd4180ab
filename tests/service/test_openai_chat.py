"""Answers of `/v1/chat/completions`: OpenAI's form, whole and in chunks."""

from collections.abc import Mapping
from typing import Any

from tests.fake_runtime import FakeRuntime, failing, finished, plain
from tests.service.door import Client
from tests.service.test_streams import data_of

BASE: Mapping[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "seed": 1}


def whole(runtime: FakeRuntime | None = None, **fields: Any) -> Any:
    return Client(runtime).post("/v1/chat/completions", {**BASE, **fields}).json


def chunks_of(runtime: FakeRuntime, **fields: Any) -> list[Any]:
    return data_of(Client(runtime).post("/v1/chat/completions", {**BASE, "stream": True, **fields}).body)


def test_a_whole_answer_has_openais_form() -> None:
    answer = whole()

    assert ("chat.completion", "tiny", "fp", 1) == (
        answer["object"],
        answer["model"],
        answer["system_fingerprint"],
        answer["seed"],
    )
    assert [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "sunrise", "refusal": None},
            "logprobs": None,
            "finish_reason": "length",
        }
    ] == answer["choices"]


def test_ids_say_what_they_name() -> None:
    assert whole()["id"].startswith("chatcmpl-")


def test_several_texts_are_several_choices() -> None:
    choices = whole(n=2)["choices"]

    assert [(0, "sunrise"), (1, "sunrise")] == [(choice["index"], choice["message"]["content"]) for choice in choices]


def test_a_stream_is_the_role_then_text_then_the_finish_reason() -> None:
    choices = [chunk["choices"][0] for chunk in chunks_of(FakeRuntime(plain("sun", "rise")))]

    assert [
        ({"role": "assistant", "content": "", "refusal": None}, None),
        ({"content": "sun"}, None),
        ({"content": "rise"}, None),
        ({}, "length"),
    ] == [(choice["delta"], choice["finish_reason"]) for choice in choices]


def test_a_stream_without_text_has_a_role_too() -> None:
    first, last = chunks_of(FakeRuntime(lambda request: [finished(request, "")]))

    assert "assistant" == first["choices"][0]["delta"]["role"]
    assert "length" == last["choices"][0]["finish_reason"]


def test_every_text_of_a_stream_has_role_text_and_finish_reason() -> None:
    choices = [chunk["choices"][0] for chunk in chunks_of(FakeRuntime(plain("sun")), n=2)]

    assert [0, 1, 0, 1, 0, 1] == [choice["index"] for choice in choices]
    assert ["assistant"] * 2 == [choice["delta"]["role"] for choice in choices[:2]]
    assert ["sun"] * 2 == [choice["delta"]["content"] for choice in choices[2:4]]
    assert ["length"] * 2 == [choice["finish_reason"] for choice in choices[4:]]


def test_usage_comes_last_and_alone_where_it_was_asked_for() -> None:
    *chunks, last = chunks_of(FakeRuntime(), stream_options={"include_usage": True})

    assert ([], 7) == (last["choices"], last["usage"]["completion_tokens"])
    assert [None] * 4 == [chunk["usage"] for chunk in chunks]


def test_without_being_asked_for_no_chunk_has_usage() -> None:
    assert not any("usage" in chunk for chunk in chunks_of(FakeRuntime()))


def test_all_chunks_have_one_id_and_are_chunks() -> None:
    chunks = chunks_of(FakeRuntime(), stream_options={"include_usage": True})

    assert {(chunks[0]["id"], "chat.completion.chunk")} == {(chunk["id"], chunk["object"]) for chunk in chunks}


def test_a_failure_in_a_stream_is_an_error_and_then_the_end() -> None:
    *_, last = chunks_of(FakeRuntime(failing("engine_stopped", "sun")))

    assert "engine_stopped" == last["error"]["code"]
