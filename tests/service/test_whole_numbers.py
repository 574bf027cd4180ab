"""A number is the same number however JSON writes it: 5.0 is an integer, 5.5 is none."""

from typing import Any

import pytest

from service.errors import InvalidField
from service.openai_domain import same_as_completion
from service.openai_schemas import CompletionRequest
from service.replay_record import read_record
from service.schemas import GenerateRequest, read

PROMPT = {"prompt": "a"}


@pytest.mark.parametrize(
    ("name", "value", "is_read_as"), [("top_k", 5.0, 5), ("seed", 7e3, 7000), ("stop_token_ids", [1.0, 2], (1, 2))]
)
def test_an_integer_may_be_written_with_a_point(name: str, value: Any, is_read_as: Any) -> None:
    found = getattr(read(GenerateRequest, PROMPT | {name: value}), name)

    assert repr(is_read_as) == repr(found)


@pytest.mark.parametrize("value", [5.5, "5", True, 1e300])
def test_what_is_no_integer_in_range_is_refused(value: Any) -> None:
    with pytest.raises(InvalidField, match="top_k must be: integer"):
        read(GenerateRequest, PROMPT | {"top_k": value})


def test_the_ids_of_a_completions_prompt_may_be_written_so() -> None:
    same = same_as_completion(read(CompletionRequest, {"prompt": [3.0, 4]}))

    assert "(3, 4)" == repr(same.body.prompt_tokens)


def test_the_seed_of_a_record_may_be_written_so() -> None:
    answer = {
        "model": "tiny",
        "text": "a",
        "token_ids": [3.0],
        "finish_reason": "length",
        "seed": 7.0,
        "usage": {"generated_tokens": 1},
        "reproducibility": {"level": "bitwise", "fingerprint": "f"},
    }

    record = read_record({"request": PROMPT, "answer": answer})

    assert "7" == repr(record.answer["seed"])
