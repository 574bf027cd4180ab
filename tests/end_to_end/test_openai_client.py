"""OpenAI's own client against the whole server: every way of calling it, and what it makes of our errors."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest

from service.errors import Draining, Overloaded, ServiceError, SessionBusy
from service.openai_domain import same_as_chat
from service.openai_schemas import ChatRequest
from service.request import GenerationRequest
from service.schemas import read
from tests.fake_runtime import FakeRuntime, FakeTicket
from tests.live import Live
from tests.service.door import Client
from tests.serving import serving

TEXT = "The seed lies in the ground and waits for the rain. "
MESSAGES: Any = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Name a "}, {"type": "text", "text": "fruit."}]},
]
SAMPLED: Any = {"model": "tiny", "max_tokens": 12, "temperature": 1.5, "seed": 7, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def client(live: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def generated(live: Live, **fields: Any) -> Any:
    """What `/generate` answers to the same request."""
    with live.client() as http:
        body = {"temperature": 1.5, "seed": 7, "max_new_tokens": 12, "ignore_eos": True, **fields}
        return http.post("/generate", json=body).json()


def test_a_completion_is_what_generate_answers(live: Live, client: openai.OpenAI) -> None:
    answer = client.completions.create(prompt=TEXT, **SAMPLED)

    assert generated(live, prompt=TEXT)["text"] == answer.choices[0].text


def test_a_chat_is_what_generate_answers(live: Live, client: openai.OpenAI) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a fruit."}]

    answer = client.chat.completions.create(messages=MESSAGES, **SAMPLED)

    assert generated(live, messages=messages)["text"] == answer.choices[0].message.content


def test_token_ids_are_a_prompt(live: Live, client: openai.OpenAI) -> None:
    answer = client.completions.create(prompt=[60, 70, 80], **SAMPLED)

    assert generated(live, prompt_tokens=[60, 70, 80])["text"] == answer.choices[0].text


def test_the_fingerprint_is_the_engines(live: Live, client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(messages=MESSAGES, **SAMPLED)

    assert live.service.main.engine_info.fingerprint == answer.system_fingerprint


def test_a_streamed_completion_is_the_whole_one(client: openai.OpenAI) -> None:
    whole = client.completions.create(prompt=TEXT, **SAMPLED)

    chunks = list(
        client.completions.create(prompt=TEXT, stream=True, stream_options={"include_usage": True}, **SAMPLED)
    )

    assert whole.choices[0].text == "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    assert whole.usage is not None
    assert chunks[-1].usage is not None
    assert whole.usage.total_tokens == chunks[-1].usage.total_tokens


def test_the_clients_stream_gathers_the_whole_chat(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(messages=MESSAGES, **SAMPLED)

    with client.chat.completions.stream(messages=MESSAGES, stream_options={"include_usage": True}, **SAMPLED) as stream:
        stream.until_done()
        gathered = stream.current_completion_snapshot

    assert whole.choices[0].message.content == gathered.choices[0].message.content
    assert whole.choices[0].finish_reason == gathered.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert gathered.usage is not None
    assert whole.usage.completion_tokens == gathered.usage.completion_tokens


def test_the_clients_stream_gathers_log_probabilities(client: openai.OpenAI) -> None:
    asked: Any = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 3, **SAMPLED}
    whole = client.chat.completions.create(**asked).choices[0].logprobs

    with client.chat.completions.stream(**asked) as stream:
        stream.until_done()
        gathered = stream.current_completion_snapshot.choices[0].logprobs

    assert whole is not None
    assert gathered is not None
    assert whole.content == gathered.content


def test_several_texts_stream_beside_each_other(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(messages=MESSAGES, n=3, **SAMPLED)

    texts = ["", "", ""]
    for chunk in client.chat.completions.create(messages=MESSAGES, n=3, stream=True, **SAMPLED):
        (choice,) = chunk.choices
        texts[choice.index] += choice.delta.content or ""

    assert [choice.message.content for choice in whole.choices] == texts
    assert 3 == len(set(texts))


def test_log_probabilities_of_a_completion_are_those_of_generate(live: Live, client: openai.OpenAI) -> None:
    ours = generated(live, prompt=TEXT, logprobs={"top": 2})

    found = client.completions.create(prompt=TEXT, logprobs=2, **SAMPLED).choices[0].logprobs

    assert found is not None
    assert [token["logprob"] for token in ours["logprobs"]] == found.token_logprobs


def test_offsets_point_at_the_tokens(client: openai.OpenAI) -> None:
    choice = client.completions.create(prompt=TEXT, logprobs=0, **{**SAMPLED, "temperature": 0}).choices[0]

    assert choice.logprobs is not None
    named = zip(choice.logprobs.tokens or (), choice.logprobs.text_offset or (), strict=True)
    assert all(choice.text[offset:].startswith(token) for token, offset in named if not token.startswith("bytes:"))


def test_a_stop_ends_the_text_before_it(client: openai.OpenAI) -> None:
    whole = client.completions.create(prompt=TEXT, **{**SAMPLED, "temperature": 0}).choices[0].text
    stop = whole[3]

    choice = client.completions.create(prompt=TEXT, stop=stop, **{**SAMPLED, "temperature": 0}).choices[0]

    assert (whole[: whole.index(stop)], "stop") == (choice.text, choice.finish_reason)


def test_no_part_of_a_stop_leaks_into_a_stream(client: openai.OpenAI) -> None:
    asked: Any = {"messages": MESSAGES, **SAMPLED, "temperature": 0}
    whole = client.chat.completions.create(**asked).choices[0].message.content or ""
    stop = whole[3:6]

    pieces = [chunk.choices[0] for chunk in client.chat.completions.create(stop=stop, stream=True, **asked)]

    assert whole[: whole.index(stop)] == "".join(piece.delta.content or "" for piece in pieces)
    assert "stop" == pieces[-1].finish_reason


def test_fields_of_ours_work_through_extra_body(client: openai.OpenAI) -> None:
    def ask(temperature: float, **ours: Any) -> str:
        return (
            client.completions.create(
                model="tiny", prompt=TEXT, max_tokens=12, temperature=temperature, seed=1, extra_body=ours
            )
            .choices[0]
            .text
        )

    assert ask(0) == ask(2, top_k=1) != ask(2)


def test_a_session_stays_warm_between_turns(client: openai.OpenAI) -> None:
    def turn() -> Any:
        body = {"session_id": "chat"}
        return client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=4, extra_body=body).usage

    assert turn().prompt_tokens == turn().prompt_tokens_details.cached_tokens + 1


def test_models_are_listed_and_described(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data

    assert model == client.models.retrieve(model.id)


def test_the_asynchronous_client_asks_and_streams(live: Live, client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(messages=MESSAGES, **SAMPLED).choices[0].message.content

    async def ask() -> tuple[str | None, str]:
        async with openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as asynchronous:
            answer = await asynchronous.chat.completions.create(messages=MESSAGES, **SAMPLED)
            stream = await asynchronous.chat.completions.create(messages=MESSAGES, stream=True, **SAMPLED)
            pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
            return answer.choices[0].message.content, "".join(pieces)

    assert (whole, whole) == asyncio.run(ask())


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"temperature": 3}, "out_of_range", "temperature"),
        ({"max_tokens": 10_000}, "out_of_range", "max_tokens"),
        ({"max_completion_tokens": 10_000}, "out_of_range", "max_completion_tokens"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "unsupported_value", "tools"),
        ({"extra_body": {"beam_widht": 2}}, "unknown_field", "beam_widht"),
    ],
)
def test_a_bad_value_is_the_clients_bad_request(
    client: openai.OpenAI, fields: dict[str, Any], code: str, param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=MESSAGES, **fields)

    assert (code, param, "invalid_request_error") == (caught.value.code, caught.value.param, caught.value.type)


def test_an_unknown_model_is_the_clients_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-4", messages=MESSAGES)

    assert ("model_not_found", "model") == (caught.value.code, caught.value.param)


def test_an_error_carries_the_request_id(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=[])

    assert caught.value.request_id == caught.value.response.headers["x-request-id"] != ""


class Refuses(FakeRuntime):
    """Refuses so many requests, and accepts those after."""

    def __init__(self, error: ServiceError, times: int) -> None:
        super().__init__()
        self._error = error
        self._times = times

    def submit(self, request: GenerationRequest) -> FakeTicket:
        if self._times:
            self._times -= 1
            raise self._error
        return super().submit(request)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Overloaded("full", retry_after_s=7), openai.InternalServerError),
        (Draining("stopping"), openai.InternalServerError),
        (SessionBusy("busy", param="session_id"), openai.ConflictError),
    ],
)
def test_a_refusal_is_one_of_the_clients_errors(error: ServiceError, kind: type[openai.APIStatusError]) -> None:
    with (
        serving(Client(Refuses(error, 1)).app) as base,
        openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(kind) as caught,
    ):
        client.chat.completions.create(model="tiny", messages=MESSAGES)

    assert (error.status, error.code) == (caught.value.status_code, caught.value.code)


@pytest.mark.slow
def test_the_client_comes_back_when_it_was_told_to() -> None:
    """Its own first pause is at most half a second."""
    with (
        serving(Client(Refuses(Overloaded("full", retry_after_s=1), 1)).app) as base,
        openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=1) as client,
    ):
        began = time.monotonic()
        answer = client.chat.completions.create(model="tiny", messages=MESSAGES)
        waited = time.monotonic() - began

    assert "sunrise" == answer.choices[0].message.content
    assert 1 <= waited


class Fruit(pydantic.BaseModel):
    name: str
    sweet: bool


def test_what_the_clients_parser_asks_for_is_a_constraint() -> None:
    """The body as the client writes it, taken by an application that answers nothing."""
    bodies: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        bodies.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with (
        serving(app) as base,
        openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.BadRequestError),
    ):
        client.chat.completions.parse(model="tiny", messages=MESSAGES, response_format=Fruit)

    constraint = same_as_chat(read(ChatRequest, json.loads(bodies[0]))).body.constraint
    assert constraint is not None
    assert constraint.json_schema is not None
    assert {"name", "sweet"} == set(constraint.json_schema["properties"])
