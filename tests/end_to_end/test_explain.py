"""Explanations from real engines: they agree with the answer they explain, and change nothing of it."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch

from model.decoding.params import DecodingParameters, Explanation, LogprobOptions, Penalties
from model.loading.gguf import load_gguf
from service.client import Response, TaneClient
from service.request import TokenRecord
from service.settings import Settings
from service.startup import load
from tests.bits.conditions import available_isas, neighbours
from tests.bits.laboratory import Laboratory
from tests.bits.questions import Question, random_prompt
from tests.live import Live, live_server
from tests.reference.forward import forward
from tests.reference.sampling import entropy, uniform
from tests.tiny_model import TinyShape, write_tiny_gguf

SHAPE = TinyShape(context=512)
PROMPT = random_prompt(random.Random(6), 40, 259)
SEED, NEW = 9, 12
LISTED = 10
"""Most tokens that a stage lists."""
NARROW = DecodingParameters(NEW, SEED, temperature=1.3, top_k=8, top_p=0.9, min_p=0.01, ignore_eos=True, explain=True)
GREEDY = DecodingParameters(NEW, SEED, temperature=0.0, ignore_eos=True, explain=True)
EDITED = replace(
    NARROW,
    logit_bias=((40, 3.0),),
    penalties=Penalties(repetition=1.4, presence=0.5),
    banned_token_ids=(3, 50),
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=SHAPE, format="Q8_0")


@pytest.fixture(scope="module")
def laboratory(model: Path) -> Laboratory:
    return Laboratory(model)


def tokens_of(
    laboratory: Laboratory, parameters: DecodingParameters, *, samples: int = 1, index: int = 0, **given: Any
) -> tuple[TokenRecord, ...]:
    return laboratory.finish(Question(PROMPT, parameters, samples), **given).completions[index].tokens


def explained(record: TokenRecord) -> Explanation:
    assert record.explanation is not None
    return record.explanation


@pytest.mark.parametrize("parameters", [NARROW, GREEDY, EDITED], ids=["narrow", "greedy", "edited"])
def test_every_generated_token_is_explained_and_nothing_else(
    parameters: DecodingParameters, laboratory: Laboratory
) -> None:
    """So that what is kept is bounded by `max_new_tokens`, whatever the length of the prompt."""
    finished = laboratory.finish(Question(PROMPT, replace(parameters, logprobs=LogprobOptions(prompt=True))))

    tokens = finished.completions[0].tokens
    assert NEW == len(tokens) == sum(token.explanation is not None for token in tokens)
    assert {None} == {record.explanation for record in finished.prompt}


@pytest.mark.parametrize("parameters", [NARROW, GREEDY, EDITED], ids=["narrow", "greedy", "edited"])
def test_an_explanation_is_of_bounded_size(parameters: DecodingParameters, laboratory: Laboratory) -> None:
    for token in tokens_of(laboratory, parameters):
        stages = explained(token).stages
        assert len(stages) <= 8
        assert max(len(stage.top) for stage in stages) <= LISTED


@pytest.mark.parametrize("index", range(3))
def test_the_uniform_is_that_of_seed_sample_and_place(index: int, laboratory: Laboratory) -> None:
    tokens = tokens_of(laboratory, NARROW, samples=3, index=index)

    assert [uniform(SEED, index, place) for place in range(NEW)] == [explained(token).uniform for token in tokens]


def test_nothing_is_drawn_at_temperature_0(laboratory: Laboratory) -> None:
    assert {None} == {explained(token).uniform for token in tokens_of(laboratory, GREEDY)}


@pytest.mark.parametrize("parameters", [NARROW, EDITED], ids=["narrow", "edited"])
def test_the_token_is_among_those_that_the_last_stage_left(
    parameters: DecodingParameters, laboratory: Laboratory
) -> None:
    for token in tokens_of(laboratory, parameters):
        last = explained(token).stages[-1]
        assert last.candidates == len(last.top)
        assert token.token_id in [token_id for token_id, _ in last.top]


@pytest.mark.parametrize("parameters", [NARROW, EDITED], ids=["narrow", "edited"])
def test_the_uniform_picks_the_token_among_what_the_last_stage_left(
    parameters: DecodingParameters, laboratory: Laboratory
) -> None:
    """The first id, ascending, with C_j > u·C_last: anyone can make the draw again from what is told."""
    for token in tokens_of(laboratory, parameters):
        told = explained(token)
        ids, probabilities = zip(*sorted(told.stages[-1].top), strict=True)
        assert told.uniform is not None
        place = sum(reached <= told.uniform for reached in accumulate(probabilities))
        assert ids[place] == token.token_id


def test_at_temperature_0_the_token_is_the_first_of_the_last_stage(laboratory: Laboratory) -> None:
    for token in tokens_of(laboratory, GREEDY):
        assert explained(token).stages[-1].top[0][0] == token.token_id


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        (GREEDY, ["model"]),
        (replace(GREEDY, banned_token_ids=(3,)), ["model", "mask"]),
        (NARROW, ["model", "temperature", "top_k", "top_p", "min_p"]),
        (replace(NARROW, temperature=1.0, top_p=1.0, min_p=0.0), ["model", "top_k"]),
        (EDITED, ["model", "bias", "penalties", "mask", "temperature", "top_k", "top_p", "min_p"]),
    ],
)
def test_the_stages_are_those_that_were_asked_for_in_their_order(
    parameters: DecodingParameters, names: list[str], laboratory: Laboratory
) -> None:
    for token in tokens_of(laboratory, parameters)[1:]:
        assert names == [stage.name for stage in explained(token).stages]


def test_candidates_never_grow_and_masses_are_shares(laboratory: Laboratory) -> None:
    for token in tokens_of(laboratory, EDITED):
        stages = explained(token).stages
        counts = [stage.candidates for stage in stages]
        assert sorted(counts, reverse=True) == counts
        assert all(0 < stage.mass <= 1 for stage in stages)


def test_a_filter_keeps_what_it_is_asked_to_keep(laboratory: Laboratory) -> None:
    for token in tokens_of(laboratory, NARROW):
        stages = {stage.name: stage for stage in explained(token).stages}
        assert 8 == stages["top_k"].candidates
        assert stages["top_p"].mass >= 0.9


def test_banned_tokens_are_gone_after_the_mask(laboratory: Laboratory) -> None:
    banned = explained(tokens_of(laboratory, GREEDY)[0]).stages[0].top[0][0]

    tokens = tokens_of(laboratory, replace(GREEDY, banned_token_ids=(banned,)))

    before, after = explained(tokens[0]).stages
    assert (banned, before.candidates - 1) == (before.top[0][0], after.candidates)
    assert banned not in [token_id for token_id, _ in after.top]


@pytest.mark.parametrize("name", ["model", "sampled"])
def test_what_is_told_agrees_with_the_log_probabilities(name: Any, laboratory: Laboratory) -> None:
    """The first stage is what `of: model` speaks of, the last one what `of: sampled` does."""
    for token in tokens_of(laboratory, replace(NARROW, logprobs=LogprobOptions(8, of=name))):
        stage = explained(token).stages[0 if name == "model" else -1]
        likeliest = [(each.token_id, each.logprob) for each in token.top]
        told = torch.tensor([probability for _, probability in stage.top[:8]], dtype=torch.float64).log().tolist()
        assert [token_id for token_id, _ in stage.top[:8]] == [token_id for token_id, _ in likeliest]
        assert pytest.approx(told, abs=1e-9) == [logprob for _, logprob in likeliest]


def test_entropy_and_probabilities_are_those_of_a_forward_pass(model: Path) -> None:
    flags = {"model": str(model), "engine": "torch", "kv_cache_bytes": 8 << 20}
    engine = load(Settings.load({}, flags)).engine
    engine.submit(Question(PROMPT, GREEDY).request("r"), 0.0)
    events: list[Any] = []
    while not engine.is_idle:
        events += engine.step()[0]
    tokens = events[-1].completions[0].tokens
    ids = (*PROMPT, *(token.token_id for token in tokens))
    rows = torch.softmax(forward(load_gguf(model), ids), dim=-1)[len(PROMPT) - 1 :]

    for token, row in zip(tokens, rows, strict=False):
        assert pytest.approx(entropy(row.tolist()), abs=1e-4) == explained(token).entropy
        for token_id, probability in explained(token).stages[0].top:
            assert pytest.approx(row[token_id].item(), abs=1e-4) == probability


@pytest.mark.parametrize("parameters", [NARROW, GREEDY, EDITED], ids=["narrow", "greedy", "edited"])
def test_to_explain_changes_no_bit_of_the_answer(parameters: DecodingParameters, laboratory: Laboratory) -> None:
    with_logprobs = replace(parameters, logprobs=LogprobOptions(3))

    silent = tokens_of(laboratory, replace(with_logprobs, explain=False))

    told = tokens_of(laboratory, with_logprobs)
    assert silent == tuple(replace(token, explanation=None) for token in told)


@pytest.mark.parametrize("parameters", [NARROW, EDITED], ids=["narrow", "edited"])
def test_an_explanation_has_the_same_bits_among_neighbours_and_from_the_cache(
    parameters: DecodingParameters, laboratory: Laboratory
) -> None:
    alone = tokens_of(laboratory, parameters, use_cache=False)
    crowd = neighbours(random.Random(2), 259, 6)
    requests = [each.request(laboratory.new_id()) for each in [*crowd, Question(PROMPT, parameters)]]

    *_, ended = laboratory.run(requests)

    assert alone == ended.completions[0].tokens == tokens_of(laboratory, parameters)  # type: ignore[union-attr]


@pytest.mark.parametrize("isa", available_isas())
def test_an_explanation_has_the_same_bits_on_every_instruction_set(
    isa: str, model: Path, laboratory: Laboratory
) -> None:
    assert tokens_of(laboratory, EDITED) == tokens_of(Laboratory(model, isa=isa), EDITED)


@pytest.fixture(scope="module")
def live(model: Path) -> Iterator[Live]:
    with live_server(Settings.load({}, {"model": str(model), "kv_cache_bytes": 8 << 20})) as server:
        yield server


@pytest.fixture
def client(live: Live) -> Iterator[TaneClient]:
    with TaneClient(live.url) as client:
        yield client


def test_the_answer_tells_each_token_with_its_stages(client: TaneClient) -> None:
    (completion,) = client.generate(prompt="hi", max_new_tokens=4, top_k=3, temperature=1, explain=True).completions

    assert completion.explain is not None
    assert list(completion.token_ids) == [told["token_id"] for told in completion.explain]
    first = completion.explain[0]
    assert {"token_id", "text", "entropy", "uniform", "stages"} == first.keys()
    assert {"name", "candidates", "mass", "top"} == first["stages"][0].keys()
    assert {"token_id", "text", "probability"} == first["stages"][0]["top"][0].keys()
    assert 3 == first["stages"][-1]["candidates"]


def test_several_texts_are_explained_each(client: TaneClient) -> None:
    response = client.generate(prompt="hi", max_new_tokens=4, num_return=2, temperature=1, explain=True, seed=3)

    for completion in response.completions:
        assert completion.explain is not None
        assert [uniform(3, completion.index, place) for place in range(len(completion.token_ids))] == [
            told["uniform"] for told in completion.explain
        ]


def test_pieces_of_a_stream_are_explained_as_the_whole(client: TaneClient) -> None:
    *deltas, response = client.stream(prompt="hi", max_new_tokens=20, temperature=1, seed=3, explain=True)

    assert isinstance(response, Response)
    pieces = [told for delta in deltas if not isinstance(delta, Response) for told in delta.explain or ()]
    assert json.dumps(response.completions[0].explain) == json.dumps(pieces)


def test_nobody_is_told_unasked(client: TaneClient) -> None:
    response = client.generate(prompt="hi", max_new_tokens=2)

    assert "explain" not in response.raw
    assert None is response.completions[0].explain
