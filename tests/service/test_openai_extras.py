"""What answers of OpenAI's routes say beyond OpenAI's form: guesses, and beams under the names of `/generate`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from service.request import Finished, GenerationRequest, SpeculationReport
from tests.fake_runtime import FakeRuntime, finished
from tests.service.door import Client
from tests.service.test_streams import data_of

ROUTES: Mapping[str, Mapping[str, Any]] = {
    "/v1/completions": {"prompt": "abc", "seed": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], "seed": 1},
}
BEAMS: Mapping[str, Any] = {"beam_width": 3, "n": 2}


def searched(request: GenerationRequest) -> Sequence[Finished]:
    """The end of a search, or of a request without beams whose tokens were guessed."""
    event = replace(finished(request, "sunrise"), speculation=SpeculationReport(drafted_tokens=9, accepted_tokens=4))
    if not request.searches:
        return [event]
    texts = [replace(text, logprob=-3.0 - text.index, score=-0.5) for text in event.completions]
    return [replace(event, completions=tuple(texts), stopped="bound")]


def post(route: str, **fields: Any) -> Any:
    return Client(FakeRuntime(searched)).post(route, {**ROUTES[route], **fields})


def chunks_of(route: str, **fields: Any) -> list[Any]:
    chunks: list[Any] = data_of(post(route, stream=True, **fields).body)
    return chunks


GUESSES = {"accepted_prediction_tokens": 4, "rejected_prediction_tokens": 5}


@pytest.mark.parametrize("route", ROUTES)
def test_guesses_are_counted_in_the_usage(route: str) -> None:
    assert GUESSES == post(route).json["usage"]["completion_tokens_details"]


@pytest.mark.parametrize("route", ROUTES)
def test_guesses_are_counted_in_the_usage_of_a_stream(route: str) -> None:
    *_, last = chunks_of(route, stream_options={"include_usage": True})

    assert GUESSES == last["usage"]["completion_tokens_details"]


@pytest.mark.parametrize("route", ROUTES)
def test_beams_say_how_good_they_are_and_why_the_search_ended(route: str) -> None:
    answer = post(route, **BEAMS).json

    assert [(-3.0, -0.5), (-4.0, -0.5)] == [(choice["logprob"], choice["score"]) for choice in answer["choices"]]
    assert "bound" == answer["stopped"]


@pytest.mark.parametrize("route", ROUTES)
def test_the_last_chunk_of_a_beam_says_how_good_it_is(route: str) -> None:
    *_, first, second = chunks_of(route, **BEAMS)

    assert [(0, -3.0, "bound"), (1, -4.0, "bound")] == [
        (chunk["choices"][0]["index"], chunk["choices"][0]["logprob"], chunk["stopped"]) for chunk in (first, second)
    ]


@pytest.mark.parametrize("route", ROUTES)
def test_without_beams_nothing_is_said_of_them(route: str) -> None:
    answer = post(route).json

    assert not {"stopped", "logprob", "score"} & {*answer, *answer["choices"][0]}
