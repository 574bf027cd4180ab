"""Prompts that do not fit: refused with what they have and what there is, on every route and in every form."""

from typing import Any

import pytest

from tests.fake_runtime import FakeRuntime
from tests.service.door import Client


@pytest.mark.parametrize(
    ("route", "fields", "param", "tokens"),
    [
        ("/generate", {"prompt": "x" * 70}, "prompt", 70),
        ("/generate", {"prompt_tokens": [5] * 64}, "prompt_tokens", 64),
        ("/generate", {"messages": [{"role": "user", "content": "x" * 60}]}, "messages", 67),
        ("/v1/completions", {"prompt": "x" * 70}, "prompt", 70),
        ("/v1/completions", {"prompt": ["x" * 70]}, "prompt", 70),
        ("/v1/completions", {"prompt": [5] * 64}, "prompt", 64),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 60}]}, "messages", 67),
    ],
)
@pytest.mark.parametrize("more", [{}, {"stream": True}, {"session_id": "s"}], ids=["whole", "stream", "session"])
def test_a_prompt_that_is_too_long_is_refused_with_both_counts_and_never_cut(
    route: str, fields: dict[str, Any], param: str, tokens: int, more: dict[str, Any]
) -> None:
    runtime = FakeRuntime()

    answer = Client(runtime).post(route, {**fields, **more})

    assert (400 if "v1" in route else 422, "context_length_exceeded", param) == (
        answer.status,
        answer.error["code"],
        answer.error["param"],
    )
    assert f"the prompt has {tokens} tokens" in answer.error["message"]
    assert "the context holds 64" in answer.error["message"]
    assert (tokens, 64) == (answer.error["allowed"]["prompt_tokens"], answer.error["allowed"]["context_length"])
    assert [] == runtime.requests
