"""Numbers in answers are numbers: JSON holds them and none stands for another, at the edges of what may be asked."""

import json
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from service.settings import Settings
from tests.live import Live, live_server
from tests.tiny_model import TinyShape, write_tiny_gguf

TEXT = "The seed lies in the ground. "
LARGEST = 1e12
"""Beyond a seed, a size or a count of anything here: what is larger stands for something else."""
BIAS = {str(token_id): 100.0 if token_id % 2 else -100.0 for token_id in range(3, 300)}
EDGES: dict[str, dict[str, Any]] = {
    "the least temperature": {"temperature": 5e-324},
    "no temperature": {"temperature": 0},
    "the least top-p": {"top_p": 5e-324},
    "the least min-p": {"min_p": 5e-324, "temperature": 2},
    "the greatest min-p": {"min_p": 1},
    "one candidate": {"top_k": 1},
    "the greatest biases": {"logit_bias": BIAS},
    "all penalties": {"repetition_penalty": 0.01, "presence_penalty": -2, "frequency_penalty": -2, "temperature": 2},
    "all penalties the other way": {"repetition_penalty": 2, "presence_penalty": 2, "frequency_penalty": 2},
    "one token left": {"banned_token_ids": [n for n in range(320) if n != 80], "ignore_eos": True},
    "one token": {"max_new_tokens": 1},
}
BEAMS: dict[str, dict[str, Any]] = {
    "long texts preferred": {"beam_width": 4, "num_return": 4, "length_penalty": 5},
    "short texts preferred": {"beam_width": 4, "num_return": 4, "length_penalty": -2},
    "biased beams": {"beam_width": 4, "num_return": 4, "logit_bias": BIAS},
    "fewer texts than beams": {"beam_width": 4, "num_return": 4, "constraint": {"choice": ["a", "b"]}},
}
SCORES: list[dict[str, Any]] = [
    {"logprobs": {"top": 20, "of": "sampled", "prompt": True}, "explain": True},
    {"logprobs": {"top": 20, "of": "model"}},
]


@pytest.fixture(scope="module", params=["native", "torch"])
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=512))
    settings = {"model": str(path), "kv_cache_bytes": 4 << 20, "engine": request.param}
    with live_server(Settings.load({}, settings)) as server:
        yield server


def refuse(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")


def numbers_in(value: Any) -> Iterator[float]:
    match value:
        case dict():
            for each in value.values():
                yield from numbers_in(each)
        case list():
            for each in value:
                yield from numbers_in(each)
        case int() | float():
            yield value


def answered(live: Live, path: str, body: dict[str, Any]) -> list[Any]:
    """Every JSON value of an answer, whole or streamed."""
    with live.client() as client:
        response = client.post(path, json=body)
    assert 200 == response.status_code, response.text
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")] or [response.text, "[DONE]"]
    return [json.loads(line, parse_constant=refuse) for line in lines[:-1]]


def check(values: list[Any]) -> None:
    numbers = [number for value in values for number in numbers_in(value)]
    assert numbers
    assert [] == [number for number in numbers if not -LARGEST < number < LARGEST]


@pytest.mark.parametrize("scores", SCORES, ids=["sampled", "model"])
@pytest.mark.parametrize("edge", EDGES)
def test_no_number_is_missing_or_stands_for_another(edge: str, scores: dict[str, Any], live: Live) -> None:
    """In a stream, whose last event is the answer that is not streamed."""
    body = {"prompt": TEXT, "max_new_tokens": 6, "temperature": 1, "seed": 3, "stream": True, **scores, **EDGES[edge]}

    check(answered(live, "/generate", body))


@pytest.mark.parametrize("beams", BEAMS)
def test_beams_have_scores_that_are_numbers(beams: str, live: Live) -> None:
    body = {"prompt": TEXT, "max_new_tokens": 6, "seed": 3, "logprobs": {"top": 20}, **BEAMS[beams]}

    check(answered(live, "/generate", body))


@pytest.mark.parametrize(("edge", "stream"), [*((edge, True) for edge in EDGES), ("the greatest biases", False)])
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/completions", {"prompt": TEXT, "logprobs": 5}),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": TEXT}], "logprobs": True, "top_logprobs": 20},
        ),
    ],
    ids=["completions", "chat"],
)
def test_no_number_is_missing_in_openais_form(
    path: str, fields: dict[str, Any], stream: bool, edge: str, live: Live
) -> None:
    body = {"max_new_tokens": 6, "temperature": 1, "seed": 3, "stream": stream, **fields, **EDGES[edge]}

    check(answered(live, path, body))


@pytest.mark.parametrize("path", ["/info", "/sessions", "/v1/models"])
def test_what_is_told_of_the_server_is_made_of_numbers(path: str, live: Live) -> None:
    with live.client() as client:
        json.loads(client.get(path).text, parse_constant=refuse)
