"""Which fields of a request go with beams: what would be ignored is refused by name, what changes nothing passes."""

from typing import Any

import pytest

from model.decoding.params import DecodingParameters
from tests.service.test_generate_fields import BASE, ask, error_of, request_of

BEAMS: dict[str, Any] = {**BASE, "beam_width": 3}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 0.7}, "temperature"),
        ({"temperature": 2}, "temperature"),
        ({"top_k": 5}, "top_k"),
        ({"top_p": 0.9}, "top_p"),
        ({"min_p": 0.1}, "min_p"),
        ({"num_return": 4}, "num_return"),
        ({"logprobs": {"of": "sampled"}}, "logprobs.of"),
        ({"speculation": "prompt_lookup"}, "speculation"),
        ({"speculation": "draft"}, "speculation"),
    ],
)
def test_a_field_that_beams_would_ignore_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    error = error_of({**BEAMS, **fields})

    assert (422, "invalid_combination", param) == (error.status, error.code, error.param)
    assert error.allowed


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": 0.7}, "temperature must be 0 or 1 with beam_width above 1: a beam search draws nothing"),
        ({"top_k": 5}, "top_k must be 0 with beam_width above 1: a beam search draws nothing"),
        ({"speculation": "draft"}, "speculation draft is not available with beam_width above 1"),
    ],
)
def test_a_clash_says_what_to_write(fields: dict[str, Any], message: str) -> None:
    assert message == error_of({**BEAMS, **fields}).message


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"temperature": 1},
        {"top_k": 0},
        {"top_p": 1},
        {"min_p": 0},
        {"explain": False},
        {"logprobs": {"of": "model", "top": 2, "prompt": True}},
        {"speculation": "off"},
        {"speculation": "auto"},
        {"num_return": 3},
        {"length_penalty": -2},
        {"stream": True, "session_id": "s"},
    ],
)
def test_a_field_that_changes_nothing_of_a_search_passes(fields: dict[str, Any]) -> None:
    assert 3 == request_of({**BEAMS, **fields}).parameters.beam_width


def test_a_length_penalty_without_beams_is_refused() -> None:
    error = error_of({**BASE, "length_penalty": 0.5})

    assert (422, "invalid_combination", "length_penalty") == (error.status, error.code, error.param)
    assert 0 == request_of({**BASE, "length_penalty": 0}).parameters.length_penalty


def test_a_width_of_one_is_no_beam_search() -> None:
    assert request_of(BASE) == request_of({**BASE, "beam_width": 1})
    assert request_of({**BASE, "beam_width": 1, "temperature": 0.3}).parameters.temperature == 0.3


def test_the_models_own_sampling_defaults_do_not_apply_to_beams() -> None:
    """The served model's are temperature 0.2 and top-p 0.9."""
    parameters = request_of(BEAMS).parameters

    assert DecodingParameters(parameters.max_new_tokens, parameters.seed, beam_width=3) == parameters


@pytest.mark.parametrize("temperature", [None, 0, 1])
def test_the_effective_values_of_a_search_are_echoed(temperature: float | None) -> None:
    given = {} if temperature is None else {"temperature": temperature}

    parameters = ask({**BEAMS, **given, "length_penalty": 0.5}).parameters

    shown = 1 if temperature is None else temperature
    expected = {"temperature": shown, "top_k": 0, "top_p": 1, "min_p": 0, "beam_width": 3, "length_penalty": 0.5}
    assert expected == {name: parameters[name] for name in expected}
    assert "off" == parameters["speculation"]
