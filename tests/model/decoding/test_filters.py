"""Filters, draw and log-probabilities against the version that sorts everything, and the rules at their edges."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.decoding.filters import Floats, distribution, leading
from model.decoding.params import Draw, Drawn, LogprobOptions, TokenLogprob
from model.decoding.torch_choice import choose
from tests.reference import sampling as reference

INFINITY = math.inf
NAN = math.nan
LAST_UNIFORM = 1.0 - 2.0**-53
LARGEST = float(np.finfo(np.float32).max)
SMALLEST = 1e-45
VOCABULARY_SIZE = 49_152


def draw(row: int = 0, **changes: Any) -> Draw:
    """Plain sampling from the model's distribution, changed as given."""
    plain = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "uniform": 0.5}
    return Draw(row=row, **(plain | changes))


def as_float32(logits: Sequence[float]) -> list[float]:
    """The numbers as the filters see them, exact as Python floats."""
    return [float(logit) for logit in np.asarray(logits, dtype=np.float32)]


def tensor(*rows: Sequence[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float32)


def pick(logits: Sequence[float], **changes: Any) -> Drawn:
    """What one draw gives on one row."""
    return choose(tensor(logits), [draw(**changes)])[0]


def exp(value: float) -> float:
    """The exponential that the filters use, so that weights agree to the last bit."""
    return torch.tensor([value], dtype=torch.float64).exp().item()


def close(expected: float, actual: float) -> bool:
    return math.isclose(expected, actual, rel_tol=1e-12, abs_tol=1e-12)


tied = st.sampled_from([0.0, -0.0, 1.0, 1.0, -1.5, 2.25, SMALLEST, -SMALLEST, LARGEST, -LARGEST, -INFINITY])
any_float32 = st.floats(width=32, allow_nan=False).filter(lambda value: value != INFINITY)
logit_rows = st.lists(st.one_of(tied, st.floats(-20, 20, width=32), any_float32), min_size=1, max_size=40).filter(
    lambda row: max(row) > -INFINITY
)
temperatures = st.one_of(st.sampled_from([5e-324, 1e-45, 1e-9, 0.2, 0.5, 0.8, 1.0, 2.0, 1e30]), st.floats(0.05, 2.0))
masses = st.one_of(
    st.sampled_from([0.25, 0.5, 0.75, 0.9, 0.95, 1.0 - 2.0**-53, 1.0]), st.floats(1e-6, 1.0, exclude_min=True)
)
ratios = st.one_of(st.sampled_from([0.0, 0.0, 0.1, math.exp(-1.0), 1.0]), st.floats(0.0, 1.0))
uniforms = st.one_of(st.sampled_from([0.0, 0.25, 0.5, LAST_UNIFORM]), st.floats(0.0, 1.0, exclude_max=True))
filter_settings = st.fixed_dictionaries(
    {
        "temperature": temperatures,
        "top_k": st.one_of(st.just(0), st.integers(0, 45)),
        "top_p": masses,
        "min_p": ratios,
    }
)


@given(logits=logit_rows, settings=filter_settings)
def test_the_kept_set_equals_that_of_the_full_sort(logits: list[float], settings: dict[str, Any]) -> None:
    """Same ids, same scaled logits and same weights, to the last bit, for every setting and every tie."""
    expected = reference.filtered(as_float32(logits), **settings, exp=exp)

    kept = distribution(np.asarray(logits, dtype=np.float32), **settings)

    assert expected.token_ids == tuple(kept.token_ids.tolist())
    assert expected.scaled == tuple(kept.scaled.tolist())
    assert expected.weights == tuple(kept.weights.tolist())


@given(logits=logit_rows, settings=filter_settings, uniform=uniforms, data=st.data())
def test_the_token_equals_that_of_the_full_sort(
    logits: list[float], settings: dict[str, Any], uniform: float, data: st.DataObject
) -> None:
    """With bans taken out before everything else."""
    banned = data.draw(st.sets(st.integers(0, len(logits) - 1)))
    allowed = [-INFINITY if token in banned else z for token, z in enumerate(as_float32(logits))]
    expected = (
        reference.drawn(reference.filtered(allowed, **settings, exp=exp), uniform) if max(allowed) > -INFINITY else None
    )

    actual = pick(logits, **settings, uniform=uniform, banned=tuple(sorted(banned)))

    assert Drawn(expected) == actual


@given(logits=logit_rows, settings=filter_settings, uniform=uniforms, top=st.integers(0, 20))
def test_sampled_logprobs_are_of_the_distribution_drawn_from(
    logits: list[float], settings: dict[str, Any], uniform: float, top: int
) -> None:
    """The list holds only kept tokens, likeliest first, equal ones by id."""
    kept = reference.filtered(as_float32(logits), **settings, exp=exp)
    expected = dict(zip(kept.token_ids, reference.log_softmax(kept.scaled), strict=True))

    actual = pick(logits, **settings, uniform=uniform, logprobs=LogprobOptions(top=top, of="sampled"))

    assert actual.token_id is not None
    assert actual.logprob is not None
    assert close(expected[actual.token_id], actual.logprob)
    assert min(top, len(expected)) == len(actual.top)
    assert all(close(expected[entry.token_id], entry.logprob) for entry in actual.top)
    assert sorted(actual.top, key=lambda entry: (-entry.logprob, entry.token_id)) == list(actual.top)
    assert set(by_rank(as_float32(logits), list(expected))[:top]) == {entry.token_id for entry in actual.top}


@given(logits=logit_rows, settings=filter_settings, uniform=uniforms, top=st.integers(0, 20), data=st.data())
def test_model_logprobs_are_of_the_raw_logits(
    logits: list[float], settings: dict[str, Any], uniform: float, top: int, data: st.DataObject
) -> None:
    """No temperature, filter or ban shows in them, and none is infinite."""
    banned = data.draw(st.sets(st.integers(0, len(logits) - 1), max_size=3))
    logprobs = enumerate(reference.log_softmax(as_float32(logits)))
    expected = {token: logprob for token, logprob in logprobs if logprob > -INFINITY}

    actual = pick(
        logits,
        **settings,
        uniform=uniform,
        banned=tuple(banned),
        logprobs=LogprobOptions(top=top, of="model"),
    )

    if actual.token_id is not None:
        assert actual.logprob is not None
        assert close(expected[actual.token_id], actual.logprob)
        assert min(top, len(expected)) == len(actual.top)
        assert all(close(expected[entry.token_id], entry.logprob) for entry in actual.top)
        assert sorted(actual.top, key=lambda entry: (-entry.logprob, entry.token_id)) == list(actual.top)


def by_rank(logits: list[float], token_ids: list[int]) -> list[int]:
    return [token for token in reference.ranking(logits) if token in token_ids]


@given(logits=logit_rows, settings=filter_settings, uniform=uniforms)
def test_top_k_of_one_is_greedy(logits: list[float], settings: dict[str, Any], uniform: float) -> None:
    """At every temperature and on every tie: the lowest id among the maxima."""
    expected = pick(logits, temperature=0.0)

    assert expected == pick(logits, **(settings | {"top_k": 1}), uniform=uniform)
    assert expected == Drawn(reference.greedy(as_float32(logits)))


@given(logits=logit_rows, count=st.integers(0, 45))
def test_the_leading_tokens_are_a_prefix_of_the_ranking(logits: list[float], count: int) -> None:
    """Definition 5.1's order, found without sorting the rest."""
    row = np.asarray(logits, dtype=np.float32)

    assert reference.ranking(as_float32(logits))[:count] == leading(row, count).tolist()


def large_row(shape: str) -> Floats:
    rng = np.random.default_rng(7)
    spread = rng.normal(0.0, 2.5, VOCABULARY_SIZE)
    row = {"flat": spread, "peaked": (spread / 2.5) ** 3, "coarse": np.round(spread), "equal": 0.0 * spread}
    return row[shape].astype(np.float32)


SHAPES = ["flat", "peaked", "coarse", "equal"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "settings", [{"top_p": 0.9}, {"top_p": 0.9999}, {"top_k": 50, "top_p": 0.9}, {"top_k": 9000}], ids=str
)
def test_a_whole_vocabulary_keeps_what_the_full_sort_keeps(shape: str, settings: dict[str, Any]) -> None:
    """Looking only at candidates finds the same set, whatever the shape of the distribution."""
    row = large_row(shape)
    exponentials = torch.from_numpy(row).double().sub_(float(row.max())).div_(0.8).exp_().tolist()
    scaled = ((row.astype(np.float64) - float(row.max())) / 0.8).tolist()
    expected = reference.filtered(
        row.tolist(), temperature=0.8, **settings, exp=dict(zip(scaled, exponentials, strict=True)).__getitem__
    )

    assert expected.token_ids == tuple(distribution(row, temperature=0.8, **settings).token_ids.tolist())


neighbours = st.lists(
    st.lists(st.one_of(tied, st.just(NAN), st.just(INFINITY), any_float32), min_size=6, max_size=6),
    min_size=1,
    max_size=6,
)


@given(rows=neighbours, settings=filter_settings, uniform=uniforms, top=st.integers(0, 6))
def test_a_row_is_answered_alone_as_among_others(
    rows: list[list[float]], settings: dict[str, Any], uniform: float, top: int
) -> None:
    """Bits included, whatever the neighbours hold; a broken row fails alone."""
    asked = settings | {"uniform": uniform, "logprobs": LogprobOptions(top=top)}
    expected = [pick(row, **asked) for row in rows]

    assert expected == choose(tensor(*rows), [draw(row, **asked) for row in range(len(rows))])


@pytest.mark.parametrize("of", ["model", "sampled"])
def test_threads_change_no_bit(of: Any) -> None:
    """Sums run in one order, whatever the number of threads."""
    logits = torch.from_numpy(np.stack([large_row(shape) for shape in SHAPES]))
    draws = [
        draw(row, temperature=0.8, top_p=0.9, uniform=0.7, logprobs=LogprobOptions(top=3, of=of)) for row in range(4)
    ]
    threads, answers = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            answers.append(choose(logits, draws))
    finally:
        torch.set_num_threads(threads)

    assert [answers[0]] * 3 == answers


def test_draws_may_share_a_row_and_stand_in_any_order() -> None:
    """Samples of one prompt draw from one row, each with its own uniform and settings."""
    logits = tensor([0.0, 0.0, 0.0, 0.0], [9.0, 0.0, 0.0, 9.0])
    draws = [draw(1, uniform=0.9), draw(0, uniform=0.0), draw(0, uniform=0.6), draw(0, top_k=2, uniform=0.6)]

    assert [3, 0, 2, 1] == [answer.token_id for answer in choose(logits, draws)]


@pytest.mark.parametrize(
    "change", [{"banned": (0,)}, {"temperature": 0.3}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.9}], ids=str
)
def test_draws_that_share_a_row_keep_their_own_settings(change: dict[str, Any]) -> None:
    """What one draw filtered is never taken for what another asked."""
    logits = [2.0, 1.5, 1.0, 0.5]
    options = LogprobOptions(top=4, of="sampled")
    plain, changed = draw(logprobs=options), draw(logprobs=options, **change)
    alone = [choose(tensor(logits), [one])[0] for one in (plain, changed)]

    assert alone[0].top != alone[1].top
    assert [*alone, *alone] == choose(tensor(logits), [plain, changed, plain, changed])


def test_no_draws_ask_nothing() -> None:
    """A step that only prefills chooses nothing."""
    assert [] == choose(torch.empty((0, 0)), [])


def test_the_logits_are_not_changed() -> None:
    """Bans and scaling work on copies."""
    logits = tensor([1.0, 2.0, 3.0])

    choose(logits, [draw(banned=(2,), temperature=0.5, top_p=0.9, logprobs=LogprobOptions(top=2))])

    assert torch.equal(tensor([1.0, 2.0, 3.0]), logits)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_logits_of_other_types_count_as_float32(dtype: torch.dtype) -> None:
    """An op set may compute in another precision."""
    assert 1 == choose(tensor([1.0, 2.5, -1.0]).to(dtype), [draw(temperature=0.0)])[0].token_id


@pytest.mark.parametrize("temperature", [0.0, 1e-45, 1.0])
@pytest.mark.parametrize(
    "broken",
    [[NAN, 1.0, 2.0], [1.0, 2.0, NAN], [INFINITY, 0.0, 0.0], [-INFINITY, NAN, -INFINITY], [-INFINITY] * 3],
    ids=str,
)
def test_a_broken_row_gives_no_token(broken: list[float], temperature: float) -> None:
    """NaN, +∞, or nothing finite: no token, no log-probability, no error."""
    options = LogprobOptions(top=2)

    assert Drawn(token_id=None) == pick(broken, temperature=temperature, logprobs=options)


def test_a_nan_under_a_ban_still_breaks_the_row() -> None:
    """A row that holds a NaN cannot be trusted elsewhere either."""
    assert Drawn(token_id=None) == pick([NAN, 1.0, 2.0], banned=(0,))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_banning_everything_finite_gives_no_token(temperature: float) -> None:
    """Nothing is left to choose from."""
    assert Drawn(token_id=None) == pick([1.0, -INFINITY, 2.0], banned=(0, 2), temperature=temperature)


def test_banned_ids_leave_before_the_filters() -> None:
    """Top-k counts among the ids that may be drawn."""
    kept = {pick([3.0, 2.0, 1.0, 0.0], banned=(0,), top_k=2, uniform=u).token_id for u in (0.0, LAST_UNIFORM)}

    assert {1, 2} == kept


def test_minus_infinity_is_probability_zero() -> None:
    """Such tokens are never drawn, at either end of the uniform."""
    logits = [-INFINITY, 0.0, -INFINITY, 0.0, -INFINITY]

    assert [1, 3] == [pick(logits, uniform=uniform).token_id for uniform in (0.0, LAST_UNIFORM)]


@pytest.mark.parametrize("logits", [[0.0, LARGEST, -LARGEST], [0.0, 1e-30, -1e-30]], ids=str)
@pytest.mark.parametrize("temperature", [5e-324, 1e-45])
def test_the_smallest_temperatures_are_greedy(logits: list[float], temperature: float) -> None:
    """Logits a hair apart, or as far as float32 goes, divide to 0 and −∞, never to a NaN."""
    assert {1} == {pick(logits, temperature=temperature, uniform=u).token_id for u in (0.0, 0.5, LAST_UNIFORM)}


def test_min_p_compares_with_the_likeliest_token() -> None:
    """Half as likely is enough at 0.5; less is not."""
    logits = [math.log(8.0), math.log(4.0) + 1e-6, math.log(2.0)]

    assert [0, 1] == distribution(np.asarray(logits, dtype=np.float32), temperature=1.0, min_p=0.5).token_ids.tolist()


def test_every_filter_sees_what_earlier_ones_kept() -> None:
    """Of (.4, .3, .2, .1) top-k 2 leaves (4/7, 3/7): then ρ = .55 is met by the first alone, not by .4 of all."""
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1])).astype(np.float32)

    assert [0, 1] == distribution(logits, temperature=1.0, top_p=0.55).token_ids.tolist()
    assert [0] == distribution(logits, temperature=1.0, top_k=2, top_p=0.55).token_ids.tolist()


def test_greedy_logprobs_of_the_sampled_distribution_are_zero() -> None:
    """At temperature 0 the chosen token has all the probability, and is alone in the list."""
    options = LogprobOptions(top=5, of="sampled")
    expected = Drawn(1, 0.0, (TokenLogprob(1, 0.0),))

    assert expected == pick([0.0, 1.0, 1.0], temperature=0.0, logprobs=options)


def test_logprobs_without_alternatives_list_none() -> None:
    """`top` of 0 gives the chosen token's number only."""
    assert () == pick([0.0, 1.0], logprobs=LogprobOptions(top=0, of="model")).top
    assert () == pick([0.0, 1.0], logprobs=LogprobOptions(top=0, of="sampled")).top
    assert () == pick([0.0, 1.0], temperature=0.0, logprobs=LogprobOptions(top=0, of="sampled")).top
