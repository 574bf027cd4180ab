"""A model in process answers what a server answers, field by field and bit by bit."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from model.decoding.params import Score
from model.ops.native_choice import NativeChooser
from service.local import InvalidValue, Tane
from service.settings import Settings
from tests.live import Live, live_server
from tests.tiny_model import TinyShape, write_tiny_gguf

PROMPT = "The seed lies in the ground and waits for the rain."
QUESTIONS: dict[str, dict[str, Any]] = {
    "greedy": {"prompt": PROMPT, "temperature": 0, "seed": 0, "max_new_tokens": 24},
    "seeded": {"prompt": PROMPT, "temperature": 0.8, "seed": 7, "max_new_tokens": 24, "logprobs": {"top": 3}},
    "sampled": {"prompt": PROMPT, "seed": 2, "top_k": 9, "logprobs": {"top": 2, "of": "sampled"}, "max_new_tokens": 9},
    "several": {"prompt": PROMPT, "seed": 1, "num_return": 3, "max_new_tokens": 8, "stop": ["e"]},
    "beams": {"prompt": PROMPT, "beam_width": 3, "num_return": 2, "max_new_tokens": 8, "logprobs": {}, "seed": 1},
    "scored": {"prompt": PROMPT, "seed": 4, "max_new_tokens": 2, "logprobs": {"top": 1, "prompt": True}},
    "explained": {"prompt": PROMPT, "seed": 5, "max_new_tokens": 4, "explain": True, "top_p": 0.9},
    "constrained": {"prompt": PROMPT, "seed": 6, "constraint": {"choice": ["yes", "no", "perhaps"]}},
    "resumed": {"prompt": PROMPT, "seed": 6, "resume": {"token_ids": [40, 41]}, "logprobs": {}, "max_new_tokens": 6},
    "edited": {
        "prompt_tokens": [5, 6, 7],
        "seed": 8,
        "logit_bias": {"9": 4.5},
        "banned_token_ids": [3],
        "presence_penalty": 1,
    },
    "in a session": {"messages": [{"role": "user", "content": "?"}], "seed": 9, "session_id": "s", "max_new_tokens": 6},
}
NOT_COMPARED = {"id", "timings", "speculation"}
"""What no two answers share, and how many tokens it was worth to guess."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    shape = TinyShape(context=512)
    model = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=shape, format="Q8_0")
    return {"model": str(model), "kv_cache_bytes": 16 << 20, "threads": 1}


@pytest.fixture(scope="module")
def server(settings: dict[str, Any]) -> Iterator[Live]:
    with live_server(Settings.load({}, settings)) as live:
        yield live


@pytest.fixture(scope="module")
def tane(settings: dict[str, Any]) -> Iterator[Tane]:
    with Tane(**settings) as tane:
        yield tane


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in NOT_COMPARED}


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_answer_is_the_server_s_answer(name: str, server: Live, tane: Tane) -> None:
    expected = httpx.post(f"{server.url}/generate", json=QUESTIONS[name]).json()

    assert comparable(expected) == comparable(tane.generate(**QUESTIONS[name]))


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_stream_is_the_server_s_stream(name: str, server: Live, tane: Tane) -> None:
    """But for where the pieces were cut, which is a matter of time."""
    question = {**QUESTIONS[name], "use_cache": False}
    text = httpx.post(f"{server.url}/generate", json={**question, "stream": True}).text
    *expected, whole = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]

    *deltas, found = tane.stream(**question)

    assert comparable(whole) == comparable(found)
    assert joined(expected) == joined(deltas)
    assert {frozenset(delta) for delta in expected} == {frozenset(delta) for delta in deltas}


def joined(deltas: list[dict[str, Any]]) -> dict[int, list[Any]]:
    """For each text: its pieces put together, with their tokens and what is told of them."""
    texts: dict[int, list[Any]] = {}
    for delta in deltas:
        text = texts.setdefault(delta["index"], ["", [], [], []])
        text[0] += delta["text"]
        text[1] += delta["token_ids"]
        text[2] += delta["logprobs"] or []
        text[3] += delta.get("explain") or []
    return texts


def test_raw_logits_are_what_the_server_scores_prompts_by(server: Live, tane: Tane) -> None:
    answer = httpx.post(f"{server.url}/generate", json=QUESTIONS["scored"]).json()
    ids = tane.tokenize(PROMPT)

    logits = tane.logits(PROMPT, all_positions=True)

    scored = NativeChooser().score(logits, [Score(row, token_id) for row, token_id in enumerate(ids[1:])])
    assert [entry["logprob"] for entry in answer["prompt_logprobs"][1:]] == [each.logprob for each in scored]


def test_the_log_softmax_of_the_logits_is_the_server_s_log_probability(server: Live, tane: Tane) -> None:
    answer = httpx.post(f"{server.url}/generate", json={**QUESTIONS["greedy"], "logprobs": {"top": 20}}).json()
    listed = answer["logprobs"][0]["top"]

    logits = tane.logits(PROMPT).astype(np.float64)

    expected = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    ids = [entry["token_id"] for entry in listed]
    np.testing.assert_allclose([entry["logprob"] for entry in listed], expected[ids], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"prompt": ""},
        {"prompt": "x", "temperature": "hot"},
        {"prompt": "x", "seed": -1},
        {"prompt": "x", "nucleus": 1},
        {"prompt": "x", "prompt_tokens": [1]},
        {"prompt": "x", "model": "other"},
        {"prompt": "x", "beam_width": 2, "top_k": 3},
        {"prompt": "x", "constraint": {"regex": "("}},
        {"prompt": "x", "resume": {"token_ids": [1]}},
        {"prompt": "x", "max_new_tokens": 10**6},
        {"messages": [{"role": "robot", "content": "?"}]},
    ],
    ids=str,
)
def test_a_bad_value_is_refused_in_the_server_s_words(fields: dict[str, Any], server: Live, tane: Tane) -> None:
    expected = httpx.post(f"{server.url}/generate", json=fields).json()["error"]

    with pytest.raises(InvalidValue) as raised:
        tane.generate(**fields)

    assert {name: value for name, value in expected.items() if name != "request_id"} == {
        name: getattr(raised.value, name) for name in ("type", "code", "message", "param", "allowed")
    }
