"""Numbers that a caller writes: where they end, how they come back, and what is said of those that are refused."""

import pytest

from tests.service.test_generate_fields import BASE, ask, error_of, request_of

NUMBERS = ("temperature", "length_penalty", "repetition_penalty", "presence_penalty", "frequency_penalty", "min_p")


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_echoed_as_a_float_whether_it_was_given_or_not(name: str) -> None:
    values = [ask(BASE).parameters[name]]
    values.append(ask({**BASE, "beam_width": 2, name: 1 if name != "min_p" else 0}).parameters[name])

    assert [float, float] == [type(value) for value in values]


@pytest.mark.parametrize("value", [1e-300, 1e-40, 0.0099])
def test_a_repetition_penalty_that_no_logit_survives_is_refused_by_name(value: float) -> None:
    error = error_of({**BASE, "repetition_penalty": value})

    assert (422, "out_of_range", "repetition_penalty") == (error.status, error.code, error.param)
    assert {"type": "number", "minimum": 0.01, "maximum": 2} == error.allowed


def test_the_least_repetition_penalty_is_accepted() -> None:
    assert 0.01 == request_of({**BASE, "repetition_penalty": 0.01}).parameters.penalties.repetition


def test_a_bias_out_of_range_does_not_repeat_its_name() -> None:
    error = error_of({**BASE, "logit_bias": {"87878": 101}})

    assert "logit_bias must be: object with at most 1024 entries of number in [-100, 100]" == error.message
    assert {"type": "number", "minimum": -100, "maximum": 100} == error.allowed["additionalProperties"]
