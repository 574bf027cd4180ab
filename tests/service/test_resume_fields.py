"""`resume` at the door: what it does to the request, what it clashes with, and which tokens cannot begin an answer."""

from typing import Any

import pytest

from service.errors import ServiceError
from service.request import GenerationRequest
from tests.fake_runtime import TOKENIZER
from tests.service.test_generate_fields import error_of, request_of
from tests.tiny_vocabulary import END

A, B, C = TOKENIZER.encode("abc")


def fields(*token_ids: int, **given: Any) -> dict[str, Any]:
    return {"prompt": "xyz", "seed": 1, "resume": {"token_ids": token_ids}, **given}


def resumed(*token_ids: int, **given: Any) -> GenerationRequest:
    return request_of(fields(*token_ids, **given))


def refusal(*token_ids: int, **given: Any) -> tuple[int, str, str | None]:
    error: ServiceError = error_of(
        {name: value for name, value in fields(*token_ids, **given).items() if value != "none"}
    )
    return error.status, error.code, error.param


@pytest.mark.parametrize(("clash", "value"), [("beam_width", 2), ("num_return", 2)], ids=str)
def test_only_one_text_goes_on(clash: str, value: int) -> None:
    assert (422, "invalid_combination", clash) == refusal(A, temperature=0, **{clash: value})


def test_sampling_goes_on_with_its_seed_alone() -> None:
    assert (422, "invalid_combination", "seed") == refusal(A, seed="none", temperature=0.5)


def test_so_does_sampling_at_the_model_s_own_temperature() -> None:
    assert (422, "invalid_combination", "seed") == refusal(A, seed="none")


def test_what_draws_nothing_needs_no_seed() -> None:
    asked = request_of({"prompt": "xyz", "temperature": 0, "resume": {"token_ids": [A]}})

    assert (A,) == asked.resumed_ids


def test_a_token_that_the_vocabulary_lacks_is_named() -> None:
    assert (422, "out_of_range", "resume.token_ids.1") == refusal(A, TOKENIZER.vocabulary_size)


def test_more_tokens_than_the_answer_may_have_are_refused() -> None:
    assert (422, "too_long", "resume.token_ids") == refusal(A, B, C, max_new_tokens=2)


@pytest.mark.parametrize(
    ("token_ids", "given"),
    [
        ((A, END), {}),
        ((A, B), {"stop": ["ab"]}),
        ((A, B), {"stop_token_ids": [B]}),
        ((A, B), {"max_new_tokens": 2}),
    ],
    ids=["eos", "stop", "stop token", "length"],
)
def test_tokens_that_are_the_whole_answer_end_it(token_ids: tuple[int, ...], given: dict[str, Any]) -> None:
    assert resumed(*token_ids, **given).resumed_ends


@pytest.mark.parametrize(
    ("token_ids", "given"),
    [
        ((A, B), {}),
        ((A, END), {"ignore_eos": True}),
        ((A, B), {"stop": ["ab"], "min_new_tokens": 3}),
        ((A, B), {"max_new_tokens": 3}),
        ((), {}),
    ],
    ids=["more", "an eos that is ignored", "a stop too soon", "shorter", "none"],
)
def test_tokens_that_are_a_beginning_do_not(token_ids: tuple[int, ...], given: dict[str, Any]) -> None:
    assert not resumed(*token_ids, **given).resumed_ends


@pytest.mark.parametrize(
    ("token_ids", "given", "place"),
    [
        ((A, END, B), {}, 2),
        ((A, B, C), {"stop": ["ab"]}, 2),
        ((A, B, C), {"stop_token_ids": [A]}, 1),
    ],
    ids=["eos", "stop", "stop token"],
)
def test_a_token_after_the_end_is_named(token_ids: tuple[int, ...], given: dict[str, Any], place: int) -> None:
    assert (422, "invalid_combination", f"resume.token_ids.{place}") == refusal(*token_ids, **given)


def test_a_token_that_breaks_the_form_is_named() -> None:
    assert (422, "invalid_combination", "resume.token_ids.1") == refusal(A, B, constraint={"regex": "ac+"})


def test_tokens_that_keep_the_form_go_on() -> None:
    assert (A, C, C) == resumed(A, C, C, constraint={"regex": "ac+"}).resumed_ids


def test_the_limit_counts_from_the_first_token_of_the_answer() -> None:
    asked = resumed(A, B, max_new_tokens=5)

    assert (5, 3) == (asked.parameters.max_new_tokens, asked.tokens_left)


def test_what_was_resumed_is_read_with_the_prompt() -> None:
    asked = resumed(A, B)

    assert len(asked.prompt_ids) + 2 == asked.read_tokens
