"""Beam searches through the whole server: answers, streams, disconnects, replays and the books."""

import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from service.answers import Delta, Response, TaneError
from service.client import TaneClient
from service.settings import Settings
from tests.hostile.wire import connected, post
from tests.live import Live, live_server
from tests.slow_steps import slow_steps
from tests.tiny_model import TinyShape, write_tiny_gguf

TEXT = "The seed lies in the ground and waits for the rain. "
SCORED: dict[str, Any] = {"logprobs": {"top": 1}}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=2048))
    with live_server(Settings.load({}, {"model": str(path), "kv_cache_bytes": 4 << 20})) as server:
        yield server


@pytest.fixture
def client(live: Live) -> Iterator[TaneClient]:
    with TaneClient(live.url) as client:
        yield client


def test_each_text_says_its_log_probability_and_its_score(client: TaneClient) -> None:
    answer = client.generate(prompt=TEXT, beam_width=4, num_return=3, max_new_tokens=12, length_penalty=1, **SCORED)

    assert [0, 1, 2] == [each.index for each in answer.completions]
    scores = [each.score for each in answer.completions]
    assert scores == sorted(scores, key=lambda score: -(score or 0.0))
    for each in answer.completions:
        assert each.logprobs is not None
        assert each.logprob == pytest.approx(sum(token["logprob"] for token in each.logprobs))
        assert each.score == pytest.approx((each.logprob or 0.0) / len(each.token_ids))
    assert answer.stopped in ("bound", "length")
    assert answer.usage.generated_tokens == sum(len(each.token_ids) for each in answer.completions)
    assert len({each.token_ids for each in answer.completions}) == 3


def test_one_text_stands_at_the_top_of_the_answer(client: TaneClient) -> None:
    raw = client.generate(prompt=TEXT, beam_width=4, max_new_tokens=8).raw

    assert {"text", "token_ids", "finish_reason", "logprob", "score", "stopped"} <= set(raw)
    assert "choices" not in raw


def test_an_answer_without_beams_has_nothing_of_them(client: TaneClient) -> None:
    assert not {"logprob", "score", "stopped"} & set(client.generate(prompt=TEXT, max_new_tokens=4).raw)


@pytest.mark.parametrize("returned", [1, 3])
def test_deltas_joined_are_the_texts_of_the_whole_answer(client: TaneClient, returned: int) -> None:
    fields: dict[str, Any] = {"prompt": TEXT, "beam_width": 3, "num_return": returned, "max_new_tokens": 40}
    whole = client.generate(**fields)

    *deltas, last = client.stream(**fields)

    assert isinstance(last, Response)
    assert whole.completions == last.completions
    for completion in whole.completions:
        own = [each for each in deltas if isinstance(each, Delta) and each.index == completion.index]
        assert completion.text == "".join(each.text for each in own)
        assert completion.token_ids == tuple(token for each in own for token in each.token_ids)
        assert [len(completion.token_ids)] == [each.sent for each in own][-1:]


def test_a_width_of_one_is_an_ordinary_answer(client: TaneClient) -> None:
    fields: dict[str, Any] = {"prompt": TEXT, "max_new_tokens": 20, "temperature": 0}

    assert client.generate(**fields).text == client.generate(**fields, beam_width=1).text


def test_a_clash_names_its_field(client: TaneClient) -> None:
    with pytest.raises(TaneError) as caught:
        client.generate(prompt=TEXT, beam_width=3, top_p=0.5)

    assert (422, "invalid_combination", "top_p") == (caught.value.status, caught.value.code, caught.value.param)


def test_a_session_goes_on_from_the_best_text(client: TaneClient) -> None:
    ids = [random.Random(1).randrange(3, 259) for _ in range(60)]
    first = client.generate(prompt_tokens=ids, beam_width=4, max_new_tokens=40, ignore_eos=True, session_id="beams")

    turn = client.generate(prompt_tokens=[*ids, *first.token_ids, 5], max_new_tokens=1, session_id="beams")

    assert "append" == turn.cache.reason
    assert len(ids) + len(first.token_ids) - 1 == turn.cache.reused_tokens


def test_a_recorded_search_is_the_same_when_it_is_replayed(client: TaneClient, live: Live) -> None:
    request = {"prompt": TEXT, "beam_width": 4, "num_return": 2, "max_new_tokens": 10, "length_penalty": 0.5}
    answer = httpx.post(f"{live.url}/generate", json=request).json()

    verdict = httpx.post(f"{live.url}/replay", json={"request": request, "answer": answer}).json()

    assert verdict["equal"] is True, verdict


def test_a_client_that_goes_away_frees_the_search(live: Live) -> None:
    cancelled = live.samples()["tane_requests_total cancelled"]
    fields = {"prompt": TEXT, "beam_width": 8, "max_new_tokens": 1500, "ignore_eos": True, "stream": False}
    with slow_steps(0.002), connected(live.url) as connection:
        connection.sendall(post("/generate", fields))
        live.wait_until(lambda samples: samples["tane_active_requests running"] > 0)

    live.wait_until(lambda samples: samples["tane_requests_total cancelled"] > cancelled)
    assert live.samples()["tane_active_requests running"] == 0
    assert live.samples()["tane_kv_cache_bytes leased"] == 0


def test_counters_grow_by_what_is_returned(client: TaneClient, live: Live) -> None:
    live.wait_until_idle()
    before = live.samples()["tane_generated_tokens_total"]

    answer = client.generate(prompt=TEXT, beam_width=6, num_return=2, max_new_tokens=17)

    live.wait_until_idle()
    assert live.samples()["tane_generated_tokens_total"] - before == answer.usage.generated_tokens


def traced(steps: list[list[dict[str, Any]]], last: int, index: int) -> list[int]:
    """The ids of a beam, from its place in a step back to the prompt."""
    ids = []
    for step in reversed(steps[: last + 1]):
        ids.append(step[index]["token_id"])
        index = step[index]["parent"]
    return ids[::-1]


def told_beams(client: TaneClient, **fields: Any) -> tuple[Response, list[list[dict[str, Any]]]]:
    answer = client.generate(prompt=TEXT, beam_width=4, num_return=3, max_new_tokens=12, explain=True, **fields)
    return answer, answer.raw["beams"]


def test_a_search_that_is_explained_tells_each_step(client: TaneClient) -> None:
    _, steps = told_beams(client, ignore_eos=True)

    assert 12 == len(steps)
    assert [{None}] * 12 == [{beam["ending"] for beam in step} for step in steps]
    assert [4] * 12 == [len(step) for step in steps]
    assert {0} == {beam["parent"] for beam in steps[0]}


def test_the_texts_of_a_search_are_traced_through_its_steps(client: TaneClient) -> None:
    answer, steps = told_beams(client)

    last = {tuple(traced(steps, at, place)): beam for at, step in enumerate(steps) for place, beam in enumerate(step)}
    for each in answer.completions:
        assert each.logprob == last[each.token_ids]["logprob"]


def test_beams_rank_by_their_sums(client: TaneClient) -> None:
    _, steps = told_beams(client, ignore_eos=True)

    for step in steps:
        sums = [beam["logprob"] for beam in step]
        assert sorted(sums, reverse=True) == sums


def test_telling_the_steps_changes_no_bit(client: TaneClient) -> None:
    told, _ = told_beams(client)
    untold = client.generate(prompt=TEXT, beam_width=4, num_return=3, max_new_tokens=12)

    assert untold.completions == told.completions
    assert "beams" not in untold.raw


def test_beams_that_ended_are_told_in_the_step_they_ended_in(client: TaneClient) -> None:
    answer, steps = told_beams(client, logit_bias={"2": 12.0})

    ended = [
        tuple(traced(steps, at, place)) for at, step in enumerate(steps) for place, b in enumerate(step) if b["ending"]
    ]
    texts = [each.token_ids for each in answer.completions if each.finish_reason == "eos"]
    assert texts
    assert set(texts) <= set(ended)


def test_more_beams_than_may_be_explained_are_refused(client: TaneClient) -> None:
    with pytest.raises(TaneError) as refused:
        client.generate(prompt=TEXT, beam_width=16, max_new_tokens=300, explain=True)

    assert ("explain", {"max_tokens": 4096}) == (refused.value.param, refused.value.allowed)
