"""The native routes: what each answers, and what it asks of the engine."""

from dataclasses import replace
from typing import Any

import pytest

from service import __version__
from service.context import ServedDraft
from service.request import DeleteSession, DescribeSession, ForkSession
from service.schemas import GenerateRequest, schema
from service.settings import Settings
from tests.fake_runtime import CONTEXT_LENGTH, ENGINE_INFO, MODEL, TOKENIZER, FakeRuntime, make_service
from tests.service.door import JSON, Client

KNOWN = {"id": "known", "tokens": 5, "bytes": 320, "idle_s": 1.5, "busy": False, "parent": None}


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def client(runtime: FakeRuntime) -> Client:
    return Client(runtime)


def generate(client: Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/generate", {"prompt": "abc", "seed": 1, **fields})
    assert 200 == answer.status
    response: dict[str, Any] = answer.json
    return response


def test_generate_answers_with_exactly_the_promised_fields(client: Client) -> None:
    assert {
        "id",
        "model",
        "text",
        "token_ids",
        "finish_reason",
        "logprobs",
        "prompt_logprobs",
        "usage",
        "seed",
        "parameters",
        "cache",
        "speculation",
        "timings",
        "reproducibility",
    } == set(generate(client))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model", "tiny"),
        ("text", "sunrise"),
        ("token_ids", TOKENIZER.encode("sunrise")),
        ("finish_reason", "length"),
        ("logprobs", None),
        ("prompt_logprobs", None),
        ("usage", {"prompt_tokens": 3, "generated_tokens": 7, "cached_tokens": 1, "resumed_tokens": 0}),
        ("seed", 1),
        (
            "cache",
            {
                "reused_tokens": 1,
                "computed_tokens": 2,
                "evicted_tokens": 0,
                "first_changed_token": None,
                "reason": "prefix",
            },
        ),
        ("timings", {"queue_s": 0.25, "prefill_s": 0.5, "decode_s": 1.0, "tokens_per_second": 2.0, "paused_s": 0.0}),
        ("reproducibility", {"level": "best_effort", "fingerprint": "fp", "version": __version__}),
    ],
)
def test_generate_answers_what_the_engine_said(client: Client, name: str, expected: Any) -> None:
    assert expected == generate(client)[name]


def test_several_texts_stand_in_choices(client: Client) -> None:
    response = generate(client, num_return=2)

    one = {"text": "sunrise", "token_ids": TOKENIZER.encode("sunrise"), "logprobs": None, "finish_reason": "length"}
    assert [{"index": 0, **one}, {"index": 1, **one}] == response["choices"]


@pytest.mark.parametrize("name", ["text", "token_ids", "finish_reason", "logprobs"])
def test_several_texts_leave_nothing_of_one_at_the_top(client: Client, name: str) -> None:
    assert name not in generate(client, num_return=2)


def test_log_probabilities_list_every_token_and_its_rivals(client: Client) -> None:
    first, *others = generate(client, logprobs={"top": 1})["logprobs"]

    assert 6 == len(others)
    assert {
        "token_id": TOKENIZER.encode("s")[0],
        "text": "s",
        "bytes": [115],
        "logprob": -0.5,
        "top": [{"token_id": 0, "text": "<|end|>", "bytes": [], "logprob": -1.0}],
    } == first


def test_a_long_prompt_is_read_beside_the_event_loop_with_the_same_result(runtime: FakeRuntime) -> None:
    client = Client(service=make_service(runtime, engine_info=replace(ENGINE_INFO, context_length=10**6)))

    generate(client, prompt="x" * 10_000)

    assert tuple(TOKENIZER.encode("x" * 10_000)) == runtime.request.prompt_ids


def test_text_that_the_vocabulary_cannot_spell_is_refused() -> None:
    class Poor:
        vocabulary_size = 1

        def encode_prompt(self, text: str) -> list[int]:
            TOKENIZER.require_encodable("\ud800")
            raise AssertionError

    service = make_service(model=replace(MODEL, tokenizer=Poor()))  # type: ignore[arg-type]

    answer = Client(service=service).post("/generate", {"prompt": "a"})

    assert (422, "unencodable_text", "prompt") == (answer.status, answer.error["code"], answer.error["param"])


def test_tokenize_takes_text_as_text_only(client: Client) -> None:
    answer = client.post("/tokenize", {"text": "<|end|>é"})

    assert {"token_ids": TOKENIZER.encode("<|end|>é")} == answer.json


def test_tokenize_takes_the_empty_text(client: Client) -> None:
    assert {"token_ids": []} == client.post("/tokenize", {"text": ""}).json


def test_detokenize_writes_control_tokens_out(client: Client) -> None:
    assert {"text": "<|end|>a"} == client.post("/detokenize", {"token_ids": [0, *TOKENIZER.encode("a")]}).json


def test_detokenize_tells_what_each_token_adds_to_an_answer(client: Client) -> None:
    ids = [0, *TOKENIZER.encode("é")]

    tokens = client.post("/detokenize", {"token_ids": ids, "tokens": True}).json["tokens"]

    assert ids == [token["token_id"] for token in tokens]
    assert ["<|end|>", []] == [tokens[0]["text"], tokens[0]["bytes"]]
    assert list("é".encode()) == [byte for token in tokens[1:] for byte in token["bytes"]]


def test_tokens_are_named_for_no_more_ids_than_the_context_holds(client: Client) -> None:
    """Each takes a hundred times the room of its id."""

    def status(count: int, tokens: bool) -> int | None:
        return client.post("/detokenize", {"token_ids": [5] * count, "tokens": tokens}).status

    assert [200, 422, 200] == [status(CONTEXT_LENGTH, True), status(CONTEXT_LENGTH + 1, True), status(99, False)]


def test_tokenize_and_detokenize_are_inverse(client: Client) -> None:
    text = 'naïve 種 🌱 \u0000 "\n'

    ids = client.post("/tokenize", {"text": text}).json["token_ids"]

    assert text == client.post("/detokenize", {"token_ids": ids}).json["text"]


def test_sessions_are_listed(client: Client) -> None:
    assert {"sessions": [KNOWN]} == client.get("/sessions").json


def test_one_session_is_described(client: Client, runtime: FakeRuntime) -> None:
    answer = client.get("/sessions/known")

    (command,) = runtime.commands
    assert isinstance(command, DescribeSession)
    assert ("known", KNOWN) == (command.session_id, answer.json)


def test_a_deleted_session_is_answered_with_nothing(client: Client, runtime: FakeRuntime) -> None:
    answer = client.delete("/sessions/known")

    (command,) = runtime.commands
    assert isinstance(command, DeleteSession)
    assert ("known", 204, b"") == (command.session_id, answer.status, answer.body)


def test_a_fork_is_answered_with_the_new_session(client: Client, runtime: FakeRuntime) -> None:
    answer = client.post("/sessions/known/fork", {"session_id": "child"})

    (command,) = runtime.commands
    assert isinstance(command, ForkSession)
    assert ("known", "child") == (command.session_id, command.new_session_id)
    assert (201, {**KNOWN, "id": "child", "parent": "known"}) == (answer.status, answer.json)


@pytest.mark.parametrize(
    ("problem", "status"), [("session_not_found", 404), ("session_busy", 409), ("session_exists", 409)]
)
@pytest.mark.parametrize(
    "call",
    [
        ("GET", "/sessions/known", b""),
        ("DELETE", "/sessions/known", b""),
        ("POST", "/sessions/known/fork", b'{"session_id":"a"}'),
    ],
)
def test_a_session_problem_has_its_status(
    client: Client, runtime: FakeRuntime, call: tuple[str, str, bytes], problem: Any, status: int
) -> None:
    runtime.problem = problem

    answer = client.request(*call, JSON)

    assert (status, problem) == (answer.status, answer.error["code"])


def test_info_names_the_model_the_engine_and_the_limits(client: Client) -> None:
    info = client.get("/info").json

    assert ("tane", __version__, "tiny", "00" * 32, 64, True) == (
        info["name"],
        info["version"],
        info["model"]["name"],
        info["model"]["sha256"],
        info["model"]["config"]["context_length"],
        info["model"]["chat"],
    )


@pytest.mark.parametrize(
    "name", ["engine", "kv_cache_bytes", "kv_bytes_per_token", "max_queue_tokens", "context_length", "page_count"]
)
def test_info_shows_a_limit_of_the_engine(client: Client, name: str) -> None:
    assert getattr(ENGINE_INFO, name) == client.get("/info").json["engine"][name]


def test_info_shows_the_draft_model() -> None:
    draft = ServedDraft("small", "ab" * 32, 1 << 20)
    drafted = make_service(model=replace(MODEL, draft=draft))

    assert MODEL.draft is None
    assert Client().get("/info").json["draft"] is None
    assert {"name": "small", "sha256": "ab" * 32, "kv_cache_bytes": 1 << 20} == Client(service=drafted).get(
        "/info"
    ).json["draft"]


def test_info_shows_the_settings(client: Client) -> None:
    assert 2 << 20 == client.get("/info").json["settings"]["max_body_bytes"]


def test_info_shows_no_path() -> None:
    settings = Settings(model="/canary/a", variant=("a=/canary/b",), draft="/canary/c", cache_folder="/canary/d")

    assert b"canary" not in Client(service=make_service(settings=settings)).get("/info").body


def test_a_live_and_ready_server_says_so(client: Client) -> None:
    assert (200, 200) == (client.get("/livez").status, client.get("/readyz").status)


def test_a_server_whose_engine_hangs_is_not_live(client: Client, runtime: FakeRuntime) -> None:
    runtime.is_live = False

    answer = client.get("/livez")

    assert (503, "not_live") == (answer.status, answer.error["code"])


def test_a_server_whose_engine_hangs_is_not_ready(client: Client, runtime: FakeRuntime) -> None:
    runtime.is_ready = False

    answer = client.get("/readyz")

    assert (503, "not_ready") == (answer.status, answer.error["code"])


def test_a_draining_server_is_live_and_not_ready(client: Client, runtime: FakeRuntime) -> None:
    runtime.draining, runtime.is_ready = True, False

    answer = client.get("/readyz")

    assert (503, "draining", 200) == (answer.status, answer.error["code"], client.get("/livez").status)


@pytest.mark.parametrize("path", ["/info", "/readyz", "/livez", "/nowhere"])
def test_a_draining_server_ends_each_connection_that_it_answers(
    client: Client, runtime: FakeRuntime, path: str
) -> None:
    before = client.get(path)
    runtime.draining = True

    assert [None, "close"] == [answer.headers.get("connection") for answer in (before, client.get(path))]


def test_openapi_documents_the_bodies_that_are_read_by_hand(client: Client) -> None:
    paths = client.get("/openapi.json").json["paths"]

    body = paths["/generate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    fields = schema(GenerateRequest)["properties"]
    assert {name: field["description"] for name, field in fields.items()} == {
        name: field["description"] for name, field in body["properties"].items()
    }


def test_openapi_refers_to_nothing_that_is_missing(client: Client) -> None:
    assert b"$defs" not in client.get("/openapi.json").body


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_bits_depend_on_is_told_before_any_of_them(client: Client, stream: bool) -> None:
    answer = client.post("/generate", {"prompt": "abc", "stream": stream})

    assert "fp" == answer.headers["x-tane-fingerprint"]
