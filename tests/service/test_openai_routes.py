"""The routes in OpenAI's form, as raw answers and through OpenAI's own client."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from service.domain import read_completion
from service.request import GenerationRequest
from service.schemas import CompletionRequest, read
from service.supported import COMPLETION_VALUES
from tests.fake_runtime import CONTEXT_LENGTH, MODEL, TOKENIZER, FakeRuntime, failing, finished, plain
from tests.service.door import Client
from tests.service.test_streams import data_of
from tests.serving import serving

if TYPE_CHECKING:
    import openai

BASE: Mapping[str, Any] = {"prompt": "abc", "seed": 1}
EFFECTS: Mapping[str, tuple[Any, str, Any]] = {
    "prompt": ("abd", "prompt_ids", tuple(TOKENIZER.encode("abd"))),
    "max_tokens": (9, "parameters.max_new_tokens", 9),
    "temperature": (0.5, "parameters.temperature", 0.5),
    "top_p": (0.5, "parameters.top_p", 0.5),
    "seed": (2, "parameters.seed", 2),
    "stop": ("a", "parameters.stop", ("a",)),
    "ignore_eos": (True, "parameters.ignore_eos", True),
    "stream": (True, "streams", True),
}
REFUSED: Mapping[str, Any] = {
    "n": 2,
    "best_of": 2,
    "echo": True,
    "logprobs": 0,
    "suffix": "x",
    "repetition_penalty": 1.1,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "logit_bias": {"5": 1.0},
}
CHANGE_NOTHING: Mapping[str, Any] = {
    "user": "u1",
    "store": True,
    "metadata": {"a": "b"},
    "service_tier": "auto",
    "safety_identifier": "x",
    "prompt_cache_key": "x",
    "model": "tiny",
}


def request_of(fields: Mapping[str, Any]) -> GenerationRequest:
    return read_completion(read(CompletionRequest, dict(fields)), MODEL, CONTEXT_LENGTH, "r").request


def test_every_field_of_the_schema_is_accounted_for() -> None:
    assert set(CompletionRequest.model_fields) == {*EFFECTS, *REFUSED, *CHANGE_NOTHING, "stream_options"}


@pytest.mark.parametrize("name", EFFECTS)
def test_a_field_reaches_the_request(name: str) -> None:
    value, path, expected = EFFECTS[name]
    found: Any = request_of({**BASE, name: value})
    for step in path.split("."):
        found = getattr(found, step)

    assert expected == found


@pytest.mark.parametrize("name", EFFECTS)
def test_a_field_changes_the_request(name: str) -> None:
    assert request_of(BASE) != request_of({**BASE, name: EFFECTS[name][0]})


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_is_not_served_is_refused_by_name(name: str) -> None:
    answer = Client().post("/v1/completions", {**BASE, name: REFUSED[name]})

    assert (400, "unsupported_value", name) == (answer.status, answer.error["code"], answer.error["param"])


@pytest.mark.parametrize("name", CHANGE_NOTHING)
def test_a_field_that_cannot_change_an_answer_is_accepted(name: str) -> None:
    assert request_of(BASE) == request_of({**BASE, name: CHANGE_NOTHING[name]})


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in COMPLETION_VALUES.items() for value in values]
)
def test_the_values_that_are_served_change_nothing(name: str, value: Any) -> None:
    assert request_of(BASE) == request_of({**BASE, name: value})


def test_sixteen_tokens_are_the_default() -> None:
    assert 16 == request_of(BASE).parameters.max_new_tokens


def test_the_default_is_what_the_context_leaves() -> None:
    assert 4 == request_of({"prompt": "x" * 60}).parameters.max_new_tokens


def test_a_list_of_stops_is_accepted() -> None:
    assert ("a", "b") == request_of({**BASE, "stop": ["a", "b"]}).parameters.stop


@pytest.mark.parametrize("value", [65, 62])
def test_too_many_tokens_are_refused_in_openais_words(value: int) -> None:
    answer = Client().post("/v1/completions", {**BASE, "max_tokens": value})

    assert (400, "max_tokens") == (answer.status, answer.error["param"])
    assert "max_new_tokens" not in answer.error["message"]


def test_stream_options_without_a_stream_are_refused() -> None:
    answer = Client().post("/v1/completions", {**BASE, "stream_options": {"include_usage": True}})

    assert (400, "invalid_combination", "stream_options") == (
        answer.status,
        answer.error["code"],
        answer.error["param"],
    )


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
    } == usage


@pytest.mark.parametrize(("ours", "theirs"), [("eos", "stop"), ("stop", "stop"), ("length", "length")])
def test_finish_reasons_have_openais_names(ours: Any, theirs: str) -> None:
    def script(request: GenerationRequest) -> Any:
        event = finished(request, "a")
        return [replace(event, completions=(replace(event.completions[0], finish_reason=ours),))]

    answer = Client(FakeRuntime(script)).post("/v1/completions", BASE)

    assert theirs == answer.json["choices"][0]["finish_reason"]


def chunks_of(runtime: FakeRuntime, **fields: Any) -> list[Any]:
    return data_of(Client(runtime).post("/v1/completions", {**BASE, "stream": True, **fields}).body)


def test_a_stream_is_text_and_then_the_finish_reason() -> None:
    chunks = chunks_of(FakeRuntime(plain("sun", "rise")))

    assert [("sun", None), ("rise", None), ("", "length")] == [
        (chunk["choices"][0]["text"], chunk["choices"][0]["finish_reason"]) for chunk in chunks
    ]


def test_usage_comes_last_and_alone_where_it_was_asked_for() -> None:
    *chunks, last = chunks_of(FakeRuntime(), stream_options={"include_usage": True})

    assert ([], 7) == (last["choices"], last["usage"]["completion_tokens"])
    assert [None] * 3 == [chunk["usage"] for chunk in chunks]


def test_without_being_asked_for_no_chunk_has_usage() -> None:
    assert not any("usage" in chunk for chunk in chunks_of(FakeRuntime()))


def test_all_chunks_have_one_id() -> None:
    assert 1 == len({chunk["id"] for chunk in chunks_of(FakeRuntime())})


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


@pytest.fixture
def openai_client() -> Iterator["openai.OpenAI"]:
    import openai

    with (
        serving(Client(FakeRuntime(plain("sun", "rise"))).app) as base,
        openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


@pytest.mark.slow
def test_openais_client_completes(openai_client: "openai.OpenAI") -> None:
    answer = openai_client.completions.create(model="tiny", prompt="abc", temperature=0, max_tokens=7, seed=1)

    assert ("sunrise", "length", 10) == (
        answer.choices[0].text,
        answer.choices[0].finish_reason,
        answer.usage and answer.usage.total_tokens,
    )


@pytest.mark.slow
def test_openais_client_streams(openai_client: "openai.OpenAI") -> None:
    chunks = list(
        openai_client.completions.create(
            model="tiny", prompt="abc", stream=True, stream_options={"include_usage": True}
        )
    )

    assert "sunrise" == "".join(chunk.choices[0].text for chunk in chunks[:-1])
    assert chunks[-1].usage is not None
    assert 7 == chunks[-1].usage.completion_tokens


@pytest.mark.slow
def test_openais_client_reads_our_errors(openai_client: "openai.OpenAI") -> None:
    import openai

    with pytest.raises(openai.BadRequestError) as caught:
        openai_client.completions.create(model="tiny", prompt="abc", temperature=3)

    assert ("out_of_range", "temperature") == (caught.value.code, caught.value.param)


@pytest.mark.slow
def test_openais_client_lists_models(openai_client: "openai.OpenAI") -> None:
    assert ["tiny"] == [model.id for model in openai_client.models.list()]
