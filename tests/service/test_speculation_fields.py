"""`speculation`: what each server takes, what takes effect, and what is said of the rest."""

from dataclasses import replace
from typing import Any

import pytest

from service.context import ServedDraft, ServedModel
from service.domain import Asked, read_generate
from service.errors import InvalidField
from service.schemas import GenerateRequest, read
from tests.fake_runtime import CONTEXT_LENGTH, MODEL

DRAFTED = replace(MODEL, draft=ServedDraft("small", "00" * 32, 1 << 20))
NEARLY = replace(DRAFTED, repeats_bits=False)
"""On an op set whose bits depend on the batch."""


def asked(model: ServedModel, **fields: Any) -> Asked:
    body = read(GenerateRequest, {"prompt": "abc", "seed": 1, **fields})
    return read_generate(body, model, CONTEXT_LENGTH, "r")


def effective(model: ServedModel, **fields: Any) -> tuple[Any, Any]:
    """What the engine is told and what the caller is told."""
    what = asked(model, **fields)
    return what.request.parameters.speculation, what.parameters["speculation"]


@pytest.mark.parametrize(
    ("model", "fields", "expected"),
    [
        (MODEL, {}, "auto"),
        (MODEL, {"speculation": "off"}, "off"),
        (MODEL, {"speculation": "prompt_lookup", "temperature": 1.5}, "prompt_lookup"),
        (DRAFTED, {"speculation": "draft"}, "draft"),
        (DRAFTED, {"speculation": "auto"}, "auto"),
        (DRAFTED, {"beam_width": 3}, "off"),
        (DRAFTED, {"beam_width": 3, "speculation": "auto"}, "off"),
        (NEARLY, {"temperature": 0.5}, "off"),
        (NEARLY, {}, "off"),
        (NEARLY, {"temperature": 0}, "auto"),
        (NEARLY, {"temperature": 0, "speculation": "draft"}, "draft"),
        (NEARLY, {"temperature": 0, "speculation": "prompt_lookup"}, "prompt_lookup"),
    ],
)
def test_the_effective_way_reaches_engine_and_caller(model: ServedModel, fields: dict[str, Any], expected: str) -> None:
    assert (expected, expected) == effective(model, **fields)


@pytest.mark.parametrize(
    ("model", "fields", "allowed"),
    [
        (MODEL, {"speculation": "draft"}, ["off", "prompt_lookup", "auto"]),
        (NEARLY, {"speculation": "draft", "temperature": 0.1}, ["off", "auto"]),
        (NEARLY, {"speculation": "prompt_lookup", "temperature": 0.1}, ["off", "auto"]),
        (NEARLY, {"speculation": "prompt_lookup"}, ["off", "auto"]),
        (MODEL, {"speculation": "prompt_lookup", "beam_width": 2}, {"enum": ["off", "auto"]}),
        (DRAFTED, {"speculation": "draft", "beam_width": 2}, {"enum": ["off", "auto"]}),
    ],
)
def test_a_way_that_cannot_be_had_is_refused_by_name(model: ServedModel, fields: dict[str, Any], allowed: Any) -> None:
    with pytest.raises(InvalidField) as caught:
        asked(model, **fields)

    error = caught.value
    assert (422, "invalid_combination", "speculation", allowed) == (
        error.status,
        error.code,
        error.param,
        error.allowed,
    )


@pytest.mark.parametrize(
    ("model", "fields", "message"),
    [
        (MODEL, {"speculation": "draft"}, "speculation draft needs a draft model, which --draft gives the main model"),
        (
            NEARLY,
            {"speculation": "prompt_lookup"},
            "speculation prompt_lookup is available only at temperature 0 on this server's op set",
        ),
    ],
)
def test_a_refusal_says_what_is_needed(model: ServedModel, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidField) as caught:
        asked(model, **fields)

    assert message == caught.value.message
