"""Answers of thousands of log-probabilities: written down beside the event loop, with the same bytes."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.decoding.params import TokenLogprob
from service import sse
from service.openai_responses import ChatAnswer, CompletionAnswer
from service.request import Completion, Finished, GenerationRequest, TokenRecord
from service.responses import GenerateAnswer
from service.sse import encode_json, encode_long_json
from tests.fake_runtime import FakeRuntime, finished
from tests.service.door import Client
from tests.service.test_streams import data_of

TOKEN = TokenRecord(70, -0.5, tuple(TokenLogprob(rank, -1.0 - rank) for rank in range(20)))
MESSAGES = [{"role": "user", "content": "abc"}]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50)
@given(value=values)
def test_pieces_are_the_same_json(value: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sse, "LONG_LIST", 2)
        assert encode_json(value) == encode_long_json(value)


def test_pieces_hold_no_number_that_json_lacks() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_long_json({"a": [0.5] * 100 + [float("nan")]})


def of_length(count: int) -> Callable[[GenerationRequest], list[Finished]]:
    """A text of so many tokens, and nothing before its end."""

    def script(request: GenerationRequest) -> list[Finished]:
        return [replace(finished(request, ""), completions=(Completion(0, "x", (TOKEN,) * count, "length"),))]

    return script


@pytest.mark.parametrize("count", [5, 500])
@pytest.mark.parametrize(
    ("route", "form", "body"),
    [
        ("/generate", GenerateAnswer, {"prompt": "abc", "logprobs": {"top": 20}}),
        ("/generate", GenerateAnswer, {"prompt": "abc", "logprobs": {"top": 20}, "stream": True}),
        ("/v1/completions", CompletionAnswer, {"prompt": "abc", "logprobs": 5}),
        ("/v1/chat/completions", ChatAnswer, {"messages": MESSAGES, "logprobs": True, "top_logprobs": 20}),
    ],
    ids=["generate", "stream", "completions", "chat"],
)
def test_a_long_answer_is_written_beside_the_event_loop(
    route: str, form: Any, body: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other callers' tokens are sent meanwhile; a short one is not worth another thread."""
    threads = []
    whole = form.whole

    def watched(answer: Any, event: Finished) -> Any:
        threads.append(threading.current_thread())
        return whole(answer, event)

    monkeypatch.setattr(form, "whole", watched)

    answer = Client(FakeRuntime(of_length(count))).post(route, body)

    assert [count > 100] == [thread is not threading.main_thread() for thread in threads]
    (value,) = data_of(answer.body) if body.get("stream") else [answer.json]
    assert json.dumps(value).count("-0.5") >= count
