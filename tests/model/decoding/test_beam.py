"""Beam search against a slow truth: the same sequences in the same order, whatever width, ending and penalty."""

import gc
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from model.decoding.beam import Hypothesis, Row, Search, begin, power, select
from model.decoding.choice import Ask, Asking
from model.decoding.params import DecodingParameters, Drawn, LogprobOptions, Penalties, Ranked, Ranking
from model.decoding.sampler import Sampler
from tests.beam_driver import Asked, RandomModel, found, ids_of, run
from tests.reference import beams as reference
from tests.reference.beams import Found, Tokens
from tests.reference.beams import Row as LogitRow
from tests.torch_chooser import TorchChooser

VOCABULARY = 12
EOS = 3
WIDTHS = range(2, 9)
ALPHAS = (0.0, 0.5, 1.0, 2.0, -1.0)


def parameters(width: int, most: int = 7, **given: Any) -> DecodingParameters:
    return DecodingParameters(max_new_tokens=most, seed=0, beam_width=width, **given)


def assert_equal(expected: tuple[list[Found], str], search: Search) -> None:
    """Tokens, order and reasons exactly; sums to the last bits, as the two take logarithms by other routes."""
    mine, (truth, stopped) = found(search), expected
    assert [(each.tokens, each.reason) for each in truth] == [(each.tokens, each.reason) for each in mine]
    assert stopped == search.stopped
    assert [each.logprob for each in mine] == pytest.approx([each.logprob for each in truth], abs=1e-12)
    assert [each.score for each in mine] == pytest.approx([each.score for each in truth], abs=1e-12)


def eos_ends(tokens: Tokens) -> str | None:
    return "eos" if tokens[-1] == EOS else None


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_search_finds_what_the_slow_one_finds(width: int, alpha: float) -> None:
    for seed in range(6):
        model = RandomModel(VOCABULARY, seed, spread=2.0)

        (search,) = run([Asked(model, parameters(width, length_penalty=alpha))], eos=frozenset({EOS}))

        assert_equal(reference.beam_search(model, width=width, most=7, alpha=alpha, ends=eos_ends), search)


def test_eight_searches_of_different_widths_at_once_find_what_each_finds_alone() -> None:
    asked = [Asked(RandomModel(VOCABULARY, width), parameters(width, most=3 + width % 4)) for width in range(2, 10)]

    searches = run(asked, eos=frozenset({EOS}))

    for each, search in zip(asked, searches, strict=True):
        most, width = each.parameters.max_new_tokens, each.parameters.beam_width
        assert_equal(reference.beam_search(each.model, width=width, most=most, ends=eos_ends), search)


@pytest.mark.parametrize("width", WIDTHS)
def test_equal_sums_rank_by_parent_then_logit_then_id(width: int) -> None:
    """Whole-number logits make many sums equal."""
    for seed in range(6):
        model = RandomModel(6, seed, ties=True)

        (search,) = run([Asked(model, parameters(width, most=4))], eos=frozenset({EOS}))

        # The slow search must round its logarithms alike for ties to be ties: it reads the op set's.
        assert found(search) == ranked_by_sorting(model, width, 4)


def ranked_by_sorting(model: RandomModel, width: int, most: int) -> list[Found]:
    """The slow search with log-probabilities as the op set ranks them."""
    chooser = TorchChooser()

    def model_of_logprobs(tokens: Tokens) -> list[Ranked]:
        return list(chooser.rank(torch.from_numpy(model(tokens)[None]), [Ranking(0, model.vocabulary)])[0])

    live: list[tuple[Tokens, float]] = [((), 0.0)]
    pool: list[Found] = []
    for length in range(1, most + 1):
        keyed = [
            ((-(total + each.logprob), rank, -each.logit, each.token_id), (*tokens, each.token_id))
            for rank, (tokens, total) in enumerate(live)
            for each in model_of_logprobs(tokens)
        ]
        keyed.sort()
        pool += [Found(t, -key[0], -key[0], "eos") for key, t in keyed[:width] if t[-1] == EOS]
        pool = sorted(pool, key=lambda entry: -entry.score)[:width]
        live = [(t, -key[0]) for key, t in keyed if t[-1] != EOS][:width]
        if length < most and len(pool) == width and live[0][1] <= pool[-1].score:
            return pool
    pool += [Found(tokens, total, total, "length") for tokens, total in live]
    return sorted(pool, key=lambda entry: -entry.score)[:width]


@pytest.mark.parametrize("width", WIDTHS)
def test_penalties_bias_and_bans_apply_to_each_beam_by_itself(width: int) -> None:
    bias = {1: 1.5, 4: -2.0}
    given = {"repetition": 1.3, "presence": 0.4, "frequency": 0.3}
    model = RandomModel(VOCABULARY, 5, spread=2.0)

    def edited(tokens: Tokens) -> LogitRow:
        return reference.penalised(model(tokens), tokens, bias=bias, **given)

    asked = parameters(
        width,
        penalties=Penalties(given["repetition"], "generated", given["presence"], given["frequency"]),
        logit_bias=tuple(bias.items()),
        banned_token_ids=(0, 7),
        ignore_eos=True,
    )
    (search,) = run([Asked(model, asked)])

    expected = reference.beam_search(edited, width=width, most=7, excluded=lambda tokens: tokens[-1] in (0, 7))
    assert_equal(expected, search)


@pytest.mark.parametrize("width", WIDTHS)
def test_stops_and_the_least_length_count_for_each_beam(width: int) -> None:
    """A stop id or EOS is banned until enough tokens are there; a stop string completed sooner is ordinary text."""
    stops, stop_id, least = ("ab", "f"), 2, 3

    def ends(tokens: Tokens) -> str | None:
        if tokens[-1] == EOS:
            return "eos"
        text = "".join(chr(ord("a") + token) for token in tokens)
        stopped = len(tokens) >= least and any(text.endswith(stop) for stop in stops)
        return "stop" if tokens[-1] == stop_id or stopped else None

    def excluded(tokens: Tokens) -> bool:
        return len(tokens) <= least and tokens[-1] in (EOS, stop_id)

    for seed in range(4):
        model = RandomModel(6, seed)
        asked = parameters(width, stop=stops, stop_token_ids=(stop_id,), min_new_tokens=least)

        (search,) = run([Asked(model, asked)], eos=frozenset({EOS}))

        assert_equal(reference.beam_search(model, width=width, most=7, ends=ends, excluded=excluded), search)


def test_an_ignored_eos_is_an_ordinary_token() -> None:
    model = RandomModel(VOCABULARY, 1)

    (search,) = run([Asked(model, parameters(4, ignore_eos=True))], eos=frozenset({EOS}))

    assert_equal(reference.beam_search(model, width=4, most=7), search)


def test_a_ranking_that_was_too_short_is_asked_for_again() -> None:
    """Where nearly everything ends, the beams that live on are far down the ranking."""
    ending = tuple(range(2, 40))
    model = RandomModel(40, 2)

    (search,) = run([Asked(model, parameters(4, most=5, stop_token_ids=ending, length_penalty=2.0))])

    def ends(tokens: Tokens) -> str | None:
        return "stop" if tokens[-1] in ending else None

    assert_equal(reference.beam_search(model, width=4, most=5, alpha=2.0, ends=ends), search)


def test_a_search_of_width_one_is_greedy_bit_for_bit() -> None:
    sampler = Sampler(TorchChooser(), frozenset({EOS}))
    for seed in range(30):
        model = RandomModel(VOCABULARY, seed, ties=seed % 2 == 1)
        (search,) = run([Asked(model, parameters(1, most=12))], eos=frozenset({EOS}))

        tokens: Tokens = ()
        greedy = DecodingParameters(max_new_tokens=12, seed=0, temperature=0.0)
        while len(tokens) < 12 and tokens[-1:] != (EOS,):
            ask = Ask((Asking((0,), len(tokens)),), (0,), (0,), greedy)
            (choice,) = sampler.choose(torch.from_numpy(model(tokens)[None]), [ask])
            tokens = (*tokens, *ids_of(choice.tokens[0]))

        assert [tokens] == [each.tokens for each in found(search)]


def test_a_row_with_a_nan_fails_its_search_and_no_other() -> None:
    rows = np.stack([RandomModel(VOCABULARY, seed)(()) for seed in range(2)])
    rows[0, 5] = math.nan
    asks = [Ask((Asking((row,), 0),), (), (), parameters(3), search=begin(parameters(3), None)) for row in range(2)]

    failed, sound = Sampler(TorchChooser(), frozenset()).choose(torch.from_numpy(rows), asks)

    assert ((Drawn(None),),) == failed.tokens
    assert sound.search is not None
    assert 3 == len(sound.search.live)


def test_tokens_carry_the_models_own_log_probabilities() -> None:
    """Raw logits, whatever bias the beams are ranked with."""
    model = RandomModel(VOCABULARY, 3)
    asked = parameters(2, most=1, logprobs=LogprobOptions(top=2), logit_bias=((4, 50.0),))

    (search,) = run([Asked(model, asked)])

    truth = reference.log_softmax(model(()))
    (token,) = search.pool[0].hypothesis.tokens()
    assert 4 == token.token_id
    assert token.logprob == pytest.approx(truth[4], abs=1e-9)
    assert sorted(truth, reverse=True)[:2] == pytest.approx([each.logprob for each in token.top], abs=1e-9)
    assert search.pool[0].hypothesis.logprob > -1e-9


class CountingRanker(TorchChooser):
    """Remembers how much was ranked."""

    def __init__(self) -> None:
        self.calls: list[list[Ranking]] = []

    def rank(self, logits: torch.Tensor, rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]:
        self.calls.append(list(rankings))
        return super().rank(logits, rankings)


def test_all_searches_share_one_ranking_a_step() -> None:
    ranker = CountingRanker()
    rows = torch.from_numpy(np.stack([RandomModel(VOCABULARY, seed)(()) for seed in range(3)]))
    asks = [
        Ask((Asking((row,), 0),), (), (), parameters(2 + row), search=begin(parameters(2 + row), None))
        for row in range(3)
    ]

    Sampler(ranker, frozenset({EOS})).choose(rows, asks)

    assert [[(0, 3), (1, 4), (2, 5)]] == [[(each.row, each.count) for each in call] for call in ranker.calls]


def hypothesis(parent: Hypothesis, token_id: int, logprob: float = -1.0) -> Hypothesis:
    return Hypothesis(parent, Drawn(token_id), parent.length + 1, parent.logprob + logprob)


def test_the_pool_keeps_the_best_and_the_earlier_of_equals() -> None:
    root = Hypothesis()
    live = hypothesis(root, 9, -0.5)
    first, second, third = (hypothesis(root, token, logprob) for token, logprob in ((1, -2.0), (2, -1.0), (3, -2.0)))

    search = Search(2, 10, 0.0).advance([live], [(first, "eos"), (second, "eos"), (third, "stop")])

    assert [second, first] == [entry.hypothesis for entry in search.pool]
    assert search.stopped is None


@pytest.mark.parametrize(("alpha", "live", "stopped"), [(0.0, -3.0, "bound"), (1.0, -3.0, None), (1.0, -11.0, "bound")])
def test_a_search_stops_when_no_live_beam_can_beat_the_worst_kept_one(
    alpha: float, live: float, stopped: str | None
) -> None:
    """With α = 1 and 10 tokens at most, a sum of −3 may still become a score of −0.3."""
    root = Hypothesis()
    ended = [(hypothesis(root, token, -1.0), "eos") for token in range(2)]

    search = Search(2, 10, alpha).advance([hypothesis(root, 9, live)], ended)  # type: ignore[arg-type]

    assert stopped == search.stopped


def test_below_zero_the_bound_is_that_of_one_more_token() -> None:
    """Longer is worse then: a beam of sum −1 and length 1 comes to −1·2 at best."""
    root = Hypothesis()
    ended = [(hypothesis(root, token, -2.0), "eos") for token in range(2)]

    assert "bound" == Search(2, 10, -1.0).advance([hypothesis(root, 9, -1.0)], ended).stopped  # type: ignore[arg-type]
    assert Search(2, 10, -1.0).advance([hypothesis(root, 9, -0.9)], ended).stopped is None  # type: ignore[arg-type]


def test_the_bound_waits_for_a_full_pool() -> None:
    root = Hypothesis()

    assert Search(2, 10).advance([hypothesis(root, 9, -50.0)], [(hypothesis(root, 1), "eos")]).stopped is None


def test_live_beams_enter_the_pool_when_the_tokens_or_the_time_are_used_up() -> None:
    root = Hypothesis()
    live = hypothesis(root, 9, -0.5)

    at_length = Search(2, 1).advance([live], [(hypothesis(root, 1, -2.0), "eos")])
    in_time = Search(2, 10).advance([live]).cut("deadline")

    assert ["length", "eos"] == [entry.finish_reason for entry in at_length.pool]
    assert ["deadline"] == [entry.finish_reason for entry in in_time.pool]
    assert ("length", "deadline") == (at_length.stopped, in_time.stopped)


def test_a_search_without_live_beams_is_over() -> None:
    assert "bound" == Search(4, 10).advance([], [(hypothesis(Hypothesis(), 1), "eos")]).stopped


def test_powers_are_those_of_arithmetic() -> None:
    for exponent in (-2.0, -0.3, 0.0, 0.5, 1.0, 2.0, 5.0, 0.1):
        for length in (1, 2, 3, 100, 8192):
            assert power(length, exponent) == pytest.approx(length**exponent, rel=1e-15)
    assert (1.0, 7.0, 49.0) == (power(7, 0.0), power(7, 1.0), power(7, 2.0))


def test_the_cost_of_a_step_does_not_depend_on_how_long_the_texts_are() -> None:
    """As many candidates are judged, and no token of what came before is looked at."""
    node = Hypothesis()
    for _ in range(20_000):
        node = Hypothesis(node, Drawn(1), node.length + 1, -1.0)
    search = Search(3, 100_000, live=(node,))
    judged: list[int] = []

    def judge(parent: int, token_id: int) -> Any:
        judged.append(token_id)
        return "live"

    select(search, [Row([Ranked(token, -float(token), -float(token)) for token in range(50)], complete=False)], judge)

    assert [0, 1, 2] == judged


def test_long_hypotheses_are_freed_without_recursion() -> None:
    node = Hypothesis()
    for _ in range(200_000):
        node = Hypothesis(node, Drawn(1), node.length + 1, -1.0)

    del node

    assert 0 <= gc.collect()
