"""`POST /logits` on a real server: the row that a token is drawn from, wherever in an answer it stands."""

import base64
import logging
import time
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from service.logs import fields_of
from tests.live import Live

PROMPT = [5, 9, 30, 31, 77, 12]
CONTEXT = 512


def asked(live: Live, **fields: Any) -> dict[str, Any]:
    response = httpx.post(f"{live.url}/logits", json=fields)
    assert 200 == response.status_code, response.text
    answer: dict[str, Any] = response.json()
    return answer


def row_of(answer: dict[str, Any]) -> NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(answer["logits"]), "<f4")


def error_of(live: Live, **fields: Any) -> dict[str, Any]:
    response = httpx.post(f"{live.url}/logits", json=fields)
    assert 422 == response.status_code
    error: dict[str, Any] = response.json()["error"]
    return error


def generated(live: Live, **fields: Any) -> dict[str, Any]:
    body = {"prompt_tokens": PROMPT, "max_new_tokens": 6, "seed": 4, "ignore_eos": True, "temperature": 1.0}
    answer: dict[str, Any] = httpx.post(f"{live.url}/generate", json=body | fields).json()
    return answer


def test_the_row_has_the_whole_vocabulary(live: Live) -> None:
    answer = asked(live, prompt_tokens=PROMPT)

    assert len(row_of(answer)) == answer["vocabulary_size"] == live.service.main.model.tokenizer.vocabulary_size
    assert len(PROMPT) == answer["context_tokens"]


@pytest.mark.parametrize("number", [0, 1, 5])
def test_a_token_is_explained_by_the_row_before_it(live: Live, number: int) -> None:
    """To the last bits that the division of two sums leaves: the softmax of the row is what `explain` begins with."""
    answer = generated(live, explain=True)
    before = answer["token_ids"][:number]

    row = row_of(asked(live, prompt_tokens=PROMPT, resume={"token_ids": before})).astype(np.float64)

    weights = np.exp(row - row.max())
    probabilities = weights / weights.sum()
    model = answer["explain"][number]["stages"][0]
    expected = [entry["probability"] for entry in model["top"]]
    np.testing.assert_allclose([probabilities[entry["token_id"]] for entry in model["top"]], expected, rtol=1e-14)


def test_what_is_cached_changes_no_bit(live: Live) -> None:
    cold = asked(live, prompt_tokens=[*PROMPT, 99, 98])["logits"]
    generated(live, prompt_tokens=[*PROMPT, 99, 98, 97])

    assert cold == asked(live, prompt_tokens=PROMPT, resume={"token_ids": [99, 98]})["logits"]


def test_the_likeliest_are_named_in_order(live: Live) -> None:
    answer = asked(live, prompt_tokens=PROMPT, top=5)

    row = row_of(answer)
    expected = sorted(range(len(row)), key=lambda token_id: (-row[token_id], token_id))[:5]
    assert expected == [entry["token_id"] for entry in answer["top"]]
    assert [float(row[token_id]) for token_id in expected] == [entry["logit"] for entry in answer["top"]]


def test_none_is_named_unless_asked(live: Live) -> None:
    assert [] == asked(live, prompt_tokens=PROMPT)["top"]


@pytest.mark.parametrize(("prompt_tokens", "field"), [(CONTEXT, "resume.token_ids"), (CONTEXT + 1, "prompt_tokens")])
def test_a_context_that_is_too_long_is_refused_by_what_makes_it_so(prompt_tokens: int, field: str, live: Live) -> None:
    error = error_of(live, prompt_tokens=[7] * prompt_tokens, resume={"token_ids": [1]})

    assert ("context_length_exceeded", field) == (error["code"], error["param"])


def test_an_id_that_is_none_is_refused(live: Live) -> None:
    assert "resume.token_ids.1" == error_of(live, prompt_tokens=PROMPT, resume={"token_ids": [1, 10**6]})["param"]


def test_a_field_that_is_not_known_is_refused(live: Live) -> None:
    assert "unknown_field" == error_of(live, prompt_tokens=PROMPT, temperature=1)["code"]


def test_it_ends_as_nothing_that_was_generated(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "service")

    headers = {"x-request-id": "of-this-test"}
    httpx.post(f"{live.url}/logits", json={"prompt_tokens": PROMPT}, headers=headers).raise_for_status()

    assert ("/logits", 200, None) == line_of_the_log(caplog, headers["x-request-id"])


def line_of_the_log(caplog: pytest.LogCaptureFixture, request_id: str) -> tuple[Any, ...]:
    """Route, status and outcome; it is written when the answer has gone, which its reader may know first."""
    for _ in range(3000):
        for told in map(fields_of, list(caplog.records)):
            if told.get("client_request_id") == request_id:
                return told["route"], told["status"], told["outcome"]
        time.sleep(0.01)
    raise AssertionError("the request has no line")
