"""Constrained texts through the whole server: they conform and end, however they are sampled, sent or guessed ahead."""

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest
from jsonschema import Draft202012Validator

from service.settings import Settings
from tests.live import Live, live_server
from tests.random_schemas import random_schema
from tests.tiny_model import TinyShape, write_tiny_gguf

PROMPT = "A form to fill in: "
LIMIT = 400
WILD = {"temperature": 2.0, "top_p": 1.0, "top_k": 0}


@pytest.fixture(scope="module", params=["native", "torch"])
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=1024))
    settings = {"model": str(path), "kv_cache_bytes": 16 << 20, "engine": request.param}
    with live_server(Settings.load({}, settings)) as server:
        yield server


def generated(live: Live, **fields: Any) -> dict[str, Any]:
    body = {"prompt": PROMPT, "max_new_tokens": LIMIT, "seed": 5, **WILD, **fields}
    with live.client() as http:
        answer = http.post("/generate", json=body)
        assert 200 == answer.status_code, answer.text
        result: dict[str, Any] = answer.json()
        return result


def check(schema: Any, text: str) -> None:
    """Raises ValidationError, formats included."""
    Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(json.loads(text))


@pytest.mark.parametrize("seed", range(4))
def test_a_document_conforms_to_its_schema(live: Live, seed: int) -> None:
    schema = random_schema(seed)

    check(schema, generated(live, constraint={"json_schema": schema}, seed=seed)["text"])


@pytest.mark.parametrize(
    ("constraint", "pattern"),
    [
        ({"regex": "[a-f]{3}-[0-9]+"}, "[a-f]{3}-[0-9]+"),
        ({"choice": ["yes", "no", "perhaps not"]}, "yes|no|perhaps not"),
        ({"grammar": 'start: "<" word ">"\nword: /[a-z]{2,8}/'}, "<[a-z]{2,8}>"),
    ],
)
def test_every_kind_of_constraint_is_kept(live: Live, constraint: dict[str, Any], pattern: str) -> None:
    answer = generated(live, constraint=constraint)

    assert re.fullmatch(pattern, answer["text"])
    assert answer["finish_reason"] in ("eos", "length")


def test_a_text_ends_and_conforms_at_its_limit(live: Live) -> None:
    """The model would go on for ever; every limit that is accepted gives a whole document."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}

    for limit in (12, 13, 20, 40):
        answer = generated(live, constraint={"json_schema": schema}, max_new_tokens=limit)
        assert len(answer["token_ids"]) <= limit
        check(schema, answer["text"])


def test_samples_each_conform(live: Live) -> None:
    answer = generated(live, constraint={"regex": "[ab]{20}"}, num_return=3)

    texts = [choice["text"] for choice in answer["choices"]]
    assert all(re.fullmatch("[ab]{20}", text) for text in texts)
    assert 1 < len(set(texts))


def test_beams_each_conform(live: Live) -> None:
    with live.client() as http:
        answer = http.post(
            "/generate",
            json={
                "prompt": PROMPT,
                "max_new_tokens": 12,
                "beam_width": 3,
                "num_return": 3,
                "constraint": {"regex": "[ab]{4}|c+d"},
            },
        ).json()

    texts = [choice["text"] for choice in answer["choices"]]
    assert all(re.fullmatch("[ab]{4}|c+d", text) for text in texts), texts
    assert 3 == len(set(texts))


def test_a_stream_says_what_the_whole_answer_says(live: Live) -> None:
    body = {"prompt": PROMPT, "max_new_tokens": 40, "seed": 5, **WILD, "constraint": {"regex": "[a-z ]{30}"}}
    with live.client() as http:
        whole = http.post("/generate", json=body).json()
        lines = http.post("/generate", json={**body, "stream": True}).text.splitlines()

    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert whole["text"] == "".join(event["text"] for event in events[:-1]) == events[-1]["text"]
    assert whole["token_ids"] == events[-1]["token_ids"]


def test_guessing_ahead_changes_no_constrained_text(live: Live) -> None:
    """Greedily, so that the torch op set guesses too."""
    asked = {"constraint": {"json_schema": random_schema(3)}, "temperature": 0, "logprobs": {"top": 1}}
    off = generated(live, **asked, speculation="off")

    ahead = generated(live, **asked, speculation="prompt_lookup")

    assert (off["text"], off["token_ids"]) == (ahead["text"], ahead["token_ids"])
    if live.service.main.engine_info.engine == "native":
        assert off["logprobs"] == ahead["logprobs"]


def test_the_fingerprint_names_what_makes_the_masks(live: Live) -> None:
    plain = generated(live, max_new_tokens=1)["reproducibility"]["fingerprint"]

    constrained = generated(live, constraint={"regex": "a+"})["reproducibility"]["fingerprint"]

    assert constrained.startswith(f"{plain}-constraint-")
    assert "llguidance" in constrained


@pytest.mark.parametrize(
    ("constraint", "limit", "code"),
    [
        ({"regex": "("}, 50, "invalid_grammar"),
        ({"json_schema": {"$ref": "https://example.org/schema.json"}}, 50, "remote_reference"),
        ({"regex": "a{30}"}, 3, "limit_too_small"),
    ],
)
def test_a_constraint_that_cannot_be_kept_is_refused(
    live: Live, constraint: dict[str, Any], limit: int, code: str
) -> None:
    with live.client() as http:
        answer = http.post("/generate", json={"prompt": PROMPT, "max_new_tokens": limit, "constraint": constraint})

    assert (422, code) == (answer.status_code, answer.json()["error"]["code"])
    assert answer.json()["error"]["param"].startswith("constraint.")


class Fruit(pydantic.BaseModel):
    name: str
    sweet: bool


def test_the_openai_clients_parser_gets_its_object(live: Live) -> None:
    messages: Any = [{"role": "user", "content": "Name a fruit."}]
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client:
        answer = client.chat.completions.parse(
            model="tiny", messages=messages, response_format=Fruit, max_tokens=120, temperature=1.2, seed=1
        )

    assert isinstance(answer.choices[0].message.parsed, Fruit)
