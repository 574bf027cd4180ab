"""Distances of log-probabilities, over the places that all models know."""

import json

import httpx
import numpy as np
import pytest

from tests.bench.llama_logprobs import FLOAT32, OURS, THEIRS, distances, figures_of, from_peer, places, table

LOGPROBS = {
    OURS: np.array([-1.0, -2.0, -3.0, -4.0]),
    FLOAT32: np.array([-1.0, -2.5, -3.0, -4.0]),
    THEIRS: np.array([-1.5, -2.5, -3.5, np.nan]),
}


def test_a_place_that_the_peer_does_not_list_counts_for_no_pair() -> None:
    found = {tuple(each["pair"]): each for each in distances(LOGPROBS)}

    assert 1 / 6 == pytest.approx(found[OURS, FLOAT32]["mean"])
    assert 0.5 == pytest.approx(found[OURS, THEIRS]["root_mean_square"])
    assert 1 / 3 == pytest.approx(found[FLOAT32, THEIRS]["bias"])


def test_the_peer_is_asked_for_each_place_in_turn() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        asked.append(body["prompt"])
        listed = [{"id": 5, "logprob": -0.5}]
        return httpx.Response(200, json={"completion_probabilities": [{"top_logprobs": listed}]})

    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        found = from_peer(client, "http://peer", [1, 5, 6], range(1, 3))

    assert [[1], [1, 5]] == asked
    assert [-0.5] == found[:1].tolist()
    assert np.isnan(found[1])


def test_places_lie_equally_far_apart_behind_the_first_tokens() -> None:
    assert [32, 40, 48, 56] == list(places(64, 8))


def test_the_table_names_every_pair() -> None:
    text = table({"models": [figures_of("m", LOGPROBS)], "command": "c"})

    assert all(f"| m | {a} and {b} |" in text for a, b in [(OURS, FLOAT32), (OURS, THEIRS), (FLOAT32, THEIRS)])
    assert "m 3 of 4" in text
