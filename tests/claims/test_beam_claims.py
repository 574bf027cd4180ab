"""Beam search: definition 3.2, proposition 3.3 and remark 9.1, on distributions that the statements give.

Ids count from 0 where the statements count from 1: a, b, c are 0, 1, 2.
"""

import math
from itertools import product

import pytest
import torch

from model.decoding.choice import Ask, Asking
from model.decoding.params import DecodingParameters, Penalties
from model.decoding.sampler import Sampler
from model.studies.beam import BEAM_FAILS, GREEDY_FAILS, TableModel
from tests.beam_driver import Asked, RandomModel, found, ids_of, run
from tests.reference import beams as reference
from tests.reference.beams import Model, Row, Tokens
from tests.torch_chooser import TorchChooser

A, B, C = range(3)


def parameters(width: int, most: int, alpha: float = 0.0) -> DecodingParameters:
    return DecodingParameters(most, seed=0, beam_width=width, length_penalty=alpha)


def search(model: Model, width: int, most: int, *, alpha: float = 0.0, eos: frozenset[int] = frozenset()) -> Tokens:
    """The best sequence that a search of this width finds."""
    (ended,) = run([Asked(model, parameters(width, most, alpha))], eos=eos)
    return found(ended)[0].tokens


def greedy(model: Model, most: int) -> Tokens:
    """Token after token, at temperature 0, by the sampler."""
    sampler, tokens = Sampler(TorchChooser(), frozenset()), Tokens()
    wanted = DecodingParameters(most, seed=0, temperature=0.0)
    while len(tokens) < most:
        ask = Ask((Asking((0,), len(tokens)),), (0,), (0,), wanted)
        (choice,) = sampler.choose(torch.from_numpy(model(tokens)[None]), [ask])
        tokens += ids_of(choice.tokens[0])
    return tokens


def probability(model: Model, tokens: Tokens) -> float:
    return math.exp(sum(reference.log_softmax(model(tokens[:t]))[token] for t, token in enumerate(tokens)))


def test_d3_2_candidates_are_ranked_by_the_probability_of_the_whole_sequence() -> None:
    """ba has the second-best beginning and the best continuation, and wins."""
    (ended,) = run([Asked(GREEDY_FAILS, parameters(2, 2))])

    assert [(B, A), (A, A)] == [each.tokens for each in found(ended)]
    assert [math.log(0.36), math.log(0.33)] == pytest.approx([each.logprob for each in found(ended)], abs=1e-6)


def test_d3_2_ties_have_a_fixed_order() -> None:
    """Parent first, then id."""
    even = TableModel((1 / 3,) * 3, ((1 / 3,) * 3,) * 3)

    (ended,) = run([Asked(even, parameters(4, 2))])

    assert [(A, A), (A, B), (A, C), (B, A)] == [each.tokens for each in found(ended)]


def test_d3_2_there_are_never_more_beams_than_candidates() -> None:
    (ended,) = run([Asked(BEAM_FAILS, parameters(16, 2))])

    assert set(product(range(3), repeat=2)) == {each.tokens for each in found(ended)}


def test_p3_3_1_greedy_is_not_optimal() -> None:
    probabilities = {tokens: probability(GREEDY_FAILS, tokens) for tokens in product(range(2), repeat=2)}

    assert {(A, A): 0.33, (A, B): 0.27, (B, A): 0.36, (B, B): 0.04} == pytest.approx(probabilities, abs=1e-6)
    assert (A, A) == greedy(GREEDY_FAILS, 2)
    assert (B, A) == max(probabilities, key=probabilities.__getitem__)


def test_p3_3_2_a_width_of_one_is_greedy_token_for_token() -> None:
    for seed in range(20):
        model = RandomModel(9, seed, ties=seed % 2 == 1)

        assert greedy(model, 8) == search(model, 1, 8)


@pytest.mark.parametrize(("vocabulary", "length"), [(2, 4), (3, 3), (4, 2), (2, 5)])
def test_p3_3_3_a_wide_enough_search_finds_the_optimum(vocabulary: int, length: int) -> None:
    for seed in range(10):
        model = RandomModel(vocabulary, seed)

        best, _ = reference.exhaustive(model, vocabulary, length)

        assert best == search(model, vocabulary ** (length - 1), length)


def test_p3_3_4_a_search_in_between_can_miss_the_optimum() -> None:
    best, logprob = reference.exhaustive(BEAM_FAILS, 3, 2)

    assert (C, A) == best
    assert logprob == pytest.approx(math.log(0.225), abs=1e-6)
    assert (A, A) == search(BEAM_FAILS, 2, 2)
    assert pytest.approx(0.16, abs=1e-6) == probability(BEAM_FAILS, (A, A))
    assert (C, A) == search(BEAM_FAILS, 3, 2)


@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_p3_3_5_a_search_evaluates_at_most_n_b_v_probabilities(width: int) -> None:
    vocabulary, length = 11, 7
    model, rows = RandomModel(vocabulary), []

    def counted(tokens: Tokens) -> Row:
        rows.append(tokens)
        return model(tokens)

    search(counted, width, length)

    assert len(rows) * vocabulary <= length * width * vocabulary
    assert len(rows) == 1 + (length - 1) * min(width, vocabulary)


def test_r9_1_a_length_penalty_can_prefer_the_longer_text() -> None:
    """After a, the end has probability 0.9: 0.45 for two tokens, against 0.5 for the end at once."""
    model = TableModel((0.5, 0.5 - 1e-3, 1e-3), ((0.9, 0.05, 0.05),) * 3)
    eos = frozenset({A})

    assert (A,) == search(model, 2, 3, alpha=0.0, eos=eos)
    assert (B, A) == search(model, 2, 3, alpha=1.0, eos=eos)


def test_r9_1_a_score_is_the_log_probability_over_the_generated_length() -> None:
    """The token that ends the text counts."""
    (ended,) = run([Asked(RandomModel(6, 3), parameters(4, 6, 0.7))], eos=frozenset({2}))

    reasons = {each.reason for each in found(ended)}
    assert {"eos", "length"} >= reasons
    assert "eos" in reasons
    for each in found(ended):
        assert each.score == pytest.approx(each.logprob / len(each.tokens) ** 0.7, rel=1e-14)


def test_r9_1_a_repetition_penalty_changes_the_order_of_beams() -> None:
    """Unlike temperature, which keeps it (theorem 4.2)."""
    model = TableModel((0.6, 0.4), ((0.6, 0.4),) * 2)
    penalised = DecodingParameters(3, 0, beam_width=2, penalties=Penalties(repetition=2.0))

    (plain,), (other,) = run([Asked(model, parameters(2, 3))]), run([Asked(model, penalised)])

    assert (A, A, A) == found(plain)[0].tokens
    assert (A, A, A) != found(other)[0].tokens
