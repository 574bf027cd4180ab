"""Log-probabilities of prompts from real engines: close to the truth, and the same bits whatever happens around."""

import math
import random
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from model.decoding.params import DecodingParameters, LogprobOptions
from model.loading.gguf import load_gguf
from service.client import Response, TaneClient
from service.request import Finished, TokenRecord
from service.settings import Settings
from service.startup import load
from tests.bits.conditions import available_isas, neighbours
from tests.bits.laboratory import Laboratory
from tests.bits.questions import Question, greedy, random_prompt
from tests.live import Live, live_server
from tests.reference.forward import forward
from tests.tiny_model import TinyShape, write_tiny_gguf

SHAPE = TinyShape(context=512)
VOCABULARY = 259
"""Ids below this are bytes and control tokens of the tiny vocabulary."""
TOP = 4
PROMPT = random_prompt(random.Random(5), 150, VOCABULARY)
SCORED = LogprobOptions(TOP, prompt=True)

Scores = tuple[tuple[int, str, tuple[tuple[int, str], ...]], ...]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=SHAPE, format="Q8_0")


@pytest.fixture(scope="module")
def reference(model: Path) -> torch.Tensor:
    """The log-probabilities of every token after every prefix of the prompt, in float64."""
    return torch.log_softmax(forward(load_gguf(model), PROMPT), dim=-1)


def question(prompt: tuple[int, ...] = PROMPT, new_tokens: int = 3) -> Question:
    return greedy(prompt, new_tokens, logprobs=SCORED)


def bits_of(records: tuple[TokenRecord, ...]) -> Scores:
    return tuple(
        (record.token_id, hexed(record.logprob), tuple((each.token_id, hexed(each.logprob)) for each in record.top))
        for record in records
    )


def hexed(logprob: float | None) -> str:
    assert logprob is not None
    return logprob.hex()


@pytest.fixture(scope="module")
def truth(model: Path) -> Scores:
    """Alone, cold and on one thread."""
    return bits_of(Laboratory(model, threads=1).finish(question()).prompt)


def test_every_token_but_the_first_is_scored(truth: Scores) -> None:
    assert list(PROMPT[1:]) == [token_id for token_id, _, _ in truth]


def test_on_torch_they_are_those_of_a_forward_pass(model: Path, reference: torch.Tensor) -> None:
    flags = {"model": str(model), "engine": "torch", "kv_cache_bytes": 8 << 20}
    engine = load(Settings.load({}, flags)).engine
    engine.submit(question(PROMPT[:70]).request("r"), 0.0)
    events: list[Any] = []
    while not engine.is_idle:
        events += engine.step()[0]

    scores = [record.logprob for record in events[-1].prompt]

    expected = [reference[row, token_id].item() for row, token_id in enumerate(PROMPT[1:70])]
    assert pytest.approx(expected, abs=1e-4) == scores


def test_on_the_native_engine_they_are_close_to_a_forward_pass(truth: Scores, reference: torch.Tensor) -> None:
    """As close as 8-bit activations of a random model come; of another row they are nats away."""
    here = [abs(float.fromhex(score) - reference[row, id_].item()) for row, (id_, score, _) in enumerate(truth)]
    next_row = [abs(float.fromhex(score) - reference[row + 1, id_].item()) for row, (id_, score, _) in enumerate(truth)]

    assert fmean(here) < 0.3
    assert fmean(next_row) > 1.5


def test_a_token_is_scored_as_it_was_when_it_was_generated(model: Path) -> None:
    """Bit for bit: the answer, sent back as a prompt, has the log-probabilities that it came with."""
    laboratory = Laboratory(model)
    parameters = DecodingParameters(40, seed=4, temperature=1.0, ignore_eos=True, logprobs=LogprobOptions(TOP))
    answer = laboratory.finish(Question(PROMPT[:20], parameters)).completions[0].tokens
    ids = tuple(token.token_id for token in answer)

    scored = laboratory.finish(question((*PROMPT[:20], *ids))).prompt

    assert bits_of(answer) == bits_of(scored)[19:]


def test_the_likeliest_are_listed_in_order(truth: Scores) -> None:
    for _, _, top in truth:
        logprobs = [float.fromhex(logprob) for _, logprob in top]
        assert TOP == len(logprobs)
        assert sorted(logprobs, reverse=True) == logprobs


def test_the_numbers_are_log_probabilities(truth: Scores) -> None:
    for _, score, top in truth:
        assert -math.inf < float.fromhex(score) <= float.fromhex(top[0][1]) <= 0


@pytest.mark.parametrize("rows", [1, 7, 32, 63, 64, 65, 512])
def test_chunks_of_any_length_give_the_same_bits(rows: int, model: Path, truth: Scores) -> None:
    assert truth == bits_of(Laboratory(model, prompt_rows=rows).finish(question()).prompt)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_any_number_of_threads_gives_the_same_bits(threads: int, model: Path, truth: Scores) -> None:
    assert truth == bits_of(Laboratory(model, threads=threads).finish(question()).prompt)


@pytest.mark.parametrize("isa", available_isas())
def test_every_instruction_set_gives_the_same_bits(isa: str, model: Path, truth: Scores) -> None:
    assert truth == bits_of(Laboratory(model, isa=isa).finish(question()).prompt)


@pytest.mark.parametrize("kept", [1, 31, 32, 33, 64, 100, 149, 150])
def test_a_prefix_in_the_cache_gives_the_same_bits(kept: int, model: Path, truth: Scores) -> None:
    """The order of requests must not show in what a prompt is worth."""
    laboratory = Laboratory(model)
    laboratory.finish(greedy((*PROMPT[:kept], 7, 8), 2, logprobs=LogprobOptions()))

    finished = laboratory.finish(question())

    assert ("recomputed", truth) == (finished.cache.reason, bits_of(finished.prompt))


def test_without_the_cache_the_bits_are_the_same(model: Path, truth: Scores) -> None:
    laboratory = Laboratory(model)
    laboratory.finish(question())

    assert truth == bits_of(laboratory.finish(question(), use_cache=False).prompt)


def test_asked_again_the_bits_are_the_same(model: Path, truth: Scores) -> None:
    laboratory = Laboratory(model)

    assert [truth, truth] == [bits_of(laboratory.finish(question(), session_id="s").prompt) for _ in range(2)]


@pytest.mark.parametrize("place", [0, 3, 7])
def test_neighbours_change_no_bit(place: int, model: Path, truth: Scores) -> None:
    laboratory = Laboratory(model)
    crowd = neighbours(random.Random(place), VOCABULARY, 6)
    asked = [*crowd[:place], question(), *crowd[place:]]

    ended = laboratory.run([each.request(laboratory.new_id()) for each in asked])[place]

    assert isinstance(ended, Finished)
    assert truth == bits_of(ended.prompt)


def test_two_scored_prompts_beside_each_other_change_no_bit(model: Path, truth: Scores) -> None:
    laboratory = Laboratory(model)
    asked = [question(), question(PROMPT[::-1]), question()]

    ended = laboratory.run([each.request(laboratory.new_id()) for each in asked])

    assert isinstance(ended[0], Finished)
    assert isinstance(ended[2], Finished)
    assert truth == bits_of(ended[0].prompt) == bits_of(ended[2].prompt)


def test_the_answer_to_a_scored_prompt_has_the_bits_of_the_same_unscored(model: Path) -> None:
    plain = Laboratory(model).ask(greedy(PROMPT, 6, logprobs=LogprobOptions(TOP)))

    assert plain == Laboratory(model).ask(question(new_tokens=6))


@pytest.mark.parametrize("of", ["model", "sampled"])
def test_a_prompt_is_scored_by_the_model_whatever_is_drawn_from(of: Any, model: Path, truth: Scores) -> None:
    """Of a prompt nothing was drawn: temperature and filters say nothing about it."""
    parameters = DecodingParameters(3, seed=1, temperature=0.5, top_k=3, logprobs=LogprobOptions(TOP, of, True))

    assert truth == bits_of(Laboratory(model).finish(Question(PROMPT, parameters)).prompt)


def test_bias_penalties_and_bans_say_nothing_about_the_prompt(model: Path, truth: Scores) -> None:
    edited = DecodingParameters(
        3, seed=1, logprobs=SCORED, logit_bias=((PROMPT[1], -50.0),), banned_token_ids=(PROMPT[2],)
    )

    finished = Laboratory(model).finish(Question(PROMPT, edited))

    assert truth == bits_of(finished.prompt)
    assert PROMPT[2] not in [token.token_id for token in finished.completions[0].tokens]


@pytest.fixture(scope="module")
def live(model: Path) -> Iterator[Live]:
    with live_server(Settings.load({}, {"model": str(model), "kv_cache_bytes": 8 << 20})) as server:
        yield server


@pytest.fixture
def client(live: Live) -> Iterator[TaneClient]:
    with TaneClient(live.url) as client:
        yield client


def json_bits(response: Response) -> Scores:
    assert response.prompt_logprobs is not None
    first, *others = response.prompt_logprobs
    assert first is None
    entries = [entry for entry in others if entry is not None]
    return tuple(
        (
            entry["token_id"],
            float(entry["logprob"]).hex(),
            tuple((each["token_id"], float(each["logprob"]).hex()) for each in entry["top"]),
        )
        for entry in entries
    )


def test_a_client_reads_the_very_bits(client: TaneClient, truth: Scores) -> None:
    response = client.generate(prompt_tokens=PROMPT, max_new_tokens=2, logprobs={"prompt": True, "top": TOP})

    assert truth == json_bits(response)


def test_a_stream_brings_them_with_its_last_event(client: TaneClient, truth: Scores) -> None:
    *deltas, response = client.stream(
        prompt_tokens=PROMPT, max_new_tokens=9, logprobs={"prompt": True, "top": TOP}, temperature=0
    )

    assert isinstance(response, Response)
    assert truth == json_bits(response)
    tokens = [token_id for delta in deltas if not isinstance(delta, Response) for token_id in delta.token_ids]
    assert tokens == list(response.token_ids)


def test_several_texts_share_the_scores_of_their_prompt(client: TaneClient, truth: Scores) -> None:
    response = client.generate(
        prompt_tokens=PROMPT, max_new_tokens=2, num_return=3, logprobs={"prompt": True, "top": TOP}
    )

    assert (3, truth) == (len(response.completions), json_bits(response))


def test_a_prompt_of_one_token_has_one_empty_entry(client: TaneClient) -> None:
    assert (None,) == client.generate(
        prompt_tokens=PROMPT[:1], max_new_tokens=2, logprobs={"prompt": True}
    ).prompt_logprobs


def test_entries_are_those_of_generated_tokens(client: TaneClient) -> None:
    response = client.generate(prompt="Né", max_new_tokens=1, logprobs={"prompt": True, "top": 2})

    assert response.prompt_logprobs is not None
    assert response.completions[0].logprobs is not None
    entry, generated = response.prompt_logprobs[1], response.completions[0].logprobs[0]
    assert entry is not None
    assert generated.keys() == entry.keys()
    assert [generated["top"][0].keys()] * 2 == [each.keys() for each in entry["top"]]


@pytest.mark.parametrize("fields", [{}, {"logprobs": {"top": 1}}])
def test_nobody_gets_them_unasked(client: TaneClient, fields: Any) -> None:
    assert None is client.generate(prompt="hi", max_new_tokens=1, **fields).prompt_logprobs


def test_a_request_without_its_session_is_the_same(model: Path) -> None:
    """A turn of a warm session that is scored, and the same out of the blue."""
    laboratory = Laboratory(model)
    history = question(PROMPT[:90])
    laboratory.finish(history, session_id="s")

    warm = laboratory.finish(question(), session_id="s")

    assert bits_of(Laboratory(model).finish(question()).prompt) == bits_of(warm.prompt)
