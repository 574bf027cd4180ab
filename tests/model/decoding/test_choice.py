"""Edits, masks, rankings, scores and explanations: both op sets against plain definitions, the native one's bits."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from model.decoding.params import (
    Draw,
    Drawn,
    Explanation,
    LogitEdits,
    LogprobOptions,
    LogprobsOf,
    Ranked,
    Ranking,
    Score,
)
from model.ops.native_choice import Rows
from tests.choosers import CHOOSERS, NATIVE, Chooser
from tests.reference import choosing as reference
from tests.reference.choosing import Changes
from tests.reference.sampling import filtered, log_softmax

INFINITY, NAN = math.inf, math.nan
LARGEST = float(np.finfo(np.float32).max)
SMALLEST = 1e-45
PLAIN: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
CLEAR_OF_CUTS = 1e-9
DISTRIBUTIONS: tuple[LogprobsOf, ...] = ("model", "sampled")

tied = st.sampled_from([0.0, -0.0, 1.0, 1.0, -1.5, 2.25, SMALLEST, -SMALLEST, LARGEST, -LARGEST, -INFINITY])
any_float32 = st.floats(width=32, allow_nan=False).filter(lambda value: value != INFINITY)
logit_rows = (
    st.lists(st.one_of(tied, st.floats(-20, 20, width=32), any_float32), min_size=1, max_size=40)
    .filter(lambda row: max(row) > -INFINITY)
    .map(lambda row: [float(logit) for logit in np.array(row, dtype=np.float32)])
)
settings_of_filters = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 5e-324, 1e-9, 0.2, 0.8, 1.0, 1.0, 2.0, 1e30]),
        "top_k": st.one_of(st.just(0), st.integers(0, 45)),
        "top_p": st.one_of(st.just(1.0), st.floats(1e-6, 1.0)),
        "min_p": st.one_of(st.just(0.0), st.floats(0.0, 1.0)),
    }
)
biases = st.one_of(st.sampled_from([0.0, 100.0, -100.0, 1.5, LARGEST]), st.floats(-100, 100, width=32))
counts = st.one_of(st.sampled_from([0, 1, 2**24 + 1, 2**31 - 1]), st.integers(0, 50))
penalties = st.one_of(st.sampled_from([0.0, 2.0, -2.0]), st.floats(-2.0, 2.0, width=32))


@st.composite
def changes_of(draw: st.DrawFn, size: int) -> Changes:
    """Changes of a row of this size, often at its ends."""
    ids = st.one_of(st.sampled_from([0, size - 1]), st.integers(0, size - 1))
    allowed = st.one_of(st.none(), st.sets(ids, max_size=3), st.sets(ids))
    return Changes(
        bias=draw(st.dictionaries(ids, biases, max_size=4)),
        seen=draw(st.dictionaries(ids, counts, max_size=6)),
        repetition=draw(st.one_of(st.sampled_from([1.0, 1.3, 0.5, 2.0, 1e-30]), st.floats(0.015625, 2.0, width=32))),
        presence=draw(penalties),
        frequency=draw(penalties),
        banned=draw(st.sets(ids, max_size=3)),
        allowed=draw(allowed),
    )


@st.composite
def changed_rows(draw: st.DrawFn) -> tuple[list[float], Changes]:
    row = draw(logit_rows)
    return row, draw(changes_of(len(row)))


def as_rows(*rows: Sequence[float]) -> Rows:
    return np.array(rows, dtype=np.float32)


def asked(changes: Changes, size: int) -> dict[str, Any]:
    """The same changes as the op sets take them."""
    edits = LogitEdits(
        bias_ids=np.array(list(changes.bias), dtype=np.int32),
        bias_values=np.array(list(changes.bias.values()), dtype=np.float32),
        seen_ids=np.array(list(changes.seen), dtype=np.int32),
        seen_counts=np.array(list(changes.seen.values()), dtype=np.int32),
        repetition=changes.repetition,
        presence=changes.presence,
        frequency=changes.frequency,
    )
    allowed = None if changes.allowed is None else bitmask(changes.allowed, size)
    return {"banned": tuple(changes.banned), "edits": edits, "allowed": allowed}


def bitmask(allowed: Any, size: int) -> Any:
    """⌈size / 32⌉ words; the bits beyond the vocabulary are set, and mean nothing."""
    words = [0] * ((size + 31) // 32)
    for token in [*allowed, *range(size, 32 * len(words))]:
        words[token // 32] |= 1 << token % 32
    return np.array(words, dtype=np.uint32)


def draw_of(changes: Changes, size: int, **given: Any) -> Draw:
    return Draw(row=0, uniform=given.pop("uniform", 0.5), **PLAIN | asked(changes, size) | given)


def close(expected: float, actual: float) -> bool:
    return math.isclose(expected, actual, rel_tol=1e-9, abs_tol=1e-9)


@pytest.fixture(params=CHOOSERS)
def chooser(request: pytest.FixtureRequest) -> Chooser:
    return CHOOSERS[request.param]()


@pytest.mark.parametrize("name", CHOOSERS)
@given(changed_row=changed_rows(), count=st.integers(1, 45))
def test_a_ranking_is_that_of_the_full_sort(name: str, changed_row: tuple[list[float], Changes], count: int) -> None:
    """Ids and logits after the edits to the last bit; log-probabilities over the whole vocabulary."""
    row, changes = changed_row
    expected = reference.ranked(row, changes, count)

    (answer,) = CHOOSERS[name]().rank(as_rows(row), [Ranking(0, count, **asked(changes, len(row)))])

    assert [(token, logit) for token, _, logit in expected] == [(each.token_id, each.logit) for each in answer]
    assert all(close(each[1], ours.logprob) for each, ours in zip(expected, answer, strict=True))


@pytest.mark.parametrize("name", CHOOSERS)
@given(changed_row=changed_rows(), settings=settings_of_filters)
def test_candidates_are_those_of_the_full_sort_of_the_changed_row(
    name: str, changed_row: tuple[list[float], Changes], settings: dict[str, Any]
) -> None:
    row, changes = changed_row
    options = LogprobOptions(top=len(row), of="sampled")
    draw = draw_of(changes, len(row), **settings, logprobs=options)
    left = reference.changed(row, changes)

    (answer,) = CHOOSERS[name]().choose(as_rows(row), [draw])

    if left is None:
        assert answer == Drawn(None)
    elif settings["temperature"] == 0.0:
        assert answer.token_id == left.index(max(left))
    else:
        assume(reference.distance_to_a_cut(left, **settings) > CLEAR_OF_CUTS)
        assert set(filtered(left, **settings).token_ids) == {entry.token_id for entry in answer.top}


@pytest.mark.parametrize("name", CHOOSERS)
@given(changed_row=changed_rows(), settings=settings_of_filters)
def test_an_explanation_tells_what_each_stage_left(
    name: str, changed_row: tuple[list[float], Changes], settings: dict[str, Any]
) -> None:
    row, changes = changed_row
    left = reference.changed(row, changes)
    assume(left is not None)
    assert left is not None
    if settings["temperature"] > 0.0:
        assume(reference.distance_to_a_cut(left, **settings) > CLEAR_OF_CUTS)
    entropy, stages = reference.explained(row, changes, **settings)

    (answer,) = CHOOSERS[name]().choose(as_rows(row), [draw_of(changes, len(row), **settings, explain=True)])

    explanation = explanation_of(answer)
    assert close(entropy, explanation.entropy)
    assert [stage.name for stage in stages] == [stage.name for stage in explanation.stages]
    for expected, stage in zip(stages, explanation.stages, strict=True):
        # A weight that rounds to 0 for one exponential may be the least number above 0 for another.
        faint = sum(probability < 1e-300 for probability in expected.probabilities.values())
        assert abs(len(expected.probabilities) - stage.candidates) <= faint
        assert close(expected.mass, stage.mass)
        assert min(10, stage.candidates) == len(stage.top)
        assert all(close(expected.probabilities.get(token, 0.0), p) for token, p in stage.top)


@pytest.mark.parametrize("name", CHOOSERS)
@given(changed_row=changed_rows(), settings=settings_of_filters, uniform=st.floats(0.0, 1.0, exclude_max=True))
def test_an_explanation_agrees_with_the_choice(
    name: str, changed_row: tuple[list[float], Changes], settings: dict[str, Any], uniform: float
) -> None:
    """The last stage leaves exactly what was drawn from, and explaining changes nothing of the answer."""
    row, changes = changed_row
    options = LogprobOptions(top=len(row), of="sampled")
    draw = draw_of(changes, len(row), **settings, uniform=uniform, logprobs=options)

    plain, told = CHOOSERS[name]().choose(as_rows(row), [draw, replace(draw, explain=True)])

    assert plain == replace(told, explanation=None)
    if told.token_id is None:
        assert told.explanation is None
    elif settings["temperature"] == 0.0:
        assert told.token_id in {token for token, _ in explanation_of(told).stages[-1].top}
        assert explanation_of(told).uniform is None
    else:
        last = explanation_of(told).stages[-1]
        assert last.candidates == len(told.top)
        assert [token for token, _ in last.top if token not in {entry.token_id for entry in told.top}] == []
        assert explanation_of(told).uniform == uniform


def explanation_of(drawn: Drawn) -> Explanation:
    assert drawn.explanation is not None
    return drawn.explanation


@given(changed_row=changed_rows(), settings=settings_of_filters, top=st.integers(0, 12))
def test_every_instruction_set_and_thread_count_gives_the_same_bits(
    changed_row: tuple[list[float], Changes], settings: dict[str, Any], top: int
) -> None:
    row, changes = changed_row
    top = min(top, len(row))
    draws = [
        draw_of(changes, len(row), **settings, uniform=u / 7, explain=u % 2 == 0, logprobs=LogprobOptions(top, of))
        for u, of in enumerate([*DISTRIBUTIONS, *DISTRIBUTIONS, "sampled"])
    ]
    rankings = [Ranking(0, count, **asked(changes, len(row))) for count in (1, 5, 80)]
    scores = [Score(0, token, top) for token in (0, len(row) - 1)]

    rows = as_rows(row)
    answers = [
        repr((each.choose(rows, draws), each.rank(rows, rankings), each.score(rows, scores)))
        for each in (make() for make in NATIVE.values())
    ]

    assert answers == [answers[0]] * len(answers)


@pytest.mark.parametrize("name", CHOOSERS)
@given(row=logit_rows, top=st.integers(0, 12))
def test_a_score_is_the_models_own_log_probability(name: str, row: list[float], top: int) -> None:
    """Of the raw logits, as a draw would report it."""
    expected = log_softmax(row)
    options = LogprobOptions(top=min(top, len(row)))
    (drawn,) = CHOOSERS[name]().choose(as_rows(row), [draw_of(Changes(), len(row), logprobs=options)])

    answers = CHOOSERS[name]().score(as_rows(row), [Score(0, token, options.top) for token in range(len(row))])

    finite = [token for token, logprob in enumerate(expected) if logprob > -INFINITY]
    assert list(range(len(row))) == [answer.token_id for answer in answers]
    assert all(close(expected[token], answers[token].logprob or 0.0) for token in finite)
    assert drawn == answers[drawn.token_id or 0]


@pytest.mark.parametrize(
    "broken", [[NAN, 1.0, 2.0], [1.0, 2.0, NAN], [INFINITY, 0.0, 0.0], [-INFINITY, NAN, -INFINITY], [-INFINITY] * 3]
)
def test_a_broken_row_gives_nothing(chooser: Chooser, broken: list[float]) -> None:
    """NaN, +∞ or nothing finite, also under a ban or a mask, and beside a sound row."""
    rows = as_rows(broken, [1.0, 2.0, 3.0])
    hidden = asked(Changes(banned={0}, allowed={1}), 3)

    drawn = chooser.choose(rows, [Draw(row, uniform=0.5, **PLAIN | hidden, explain=True) for row in (0, 1)])

    assert drawn[0] == Drawn(None)
    assert drawn[1].token_id == 1
    assert [0, 3] == [len(each) for each in chooser.rank(rows, [Ranking(0, 3), Ranking(1, 3)])]
    assert [0, 1] == [len(each) for each in chooser.rank(rows, [Ranking(0, 3, **hidden), Ranking(1, 3, **hidden)])]
    assert [None, 1] == [each.token_id for each in chooser.score(rows, [Score(0, 1, 2), Score(1, 1, 2)])]


@pytest.mark.parametrize(
    "changes",
    [
        Changes(bias={1: LARGEST}),
        Changes(seen={1: 1}, repetition=0.5),
        Changes(seen={1: 0}, repetition=1e-60),
        Changes(seen={1: 2**31 - 1}, frequency=-1e38),
        Changes(bias={1: LARGEST}, banned={1}),
        Changes(bias={1: LARGEST}, allowed={0}),
    ],
    ids=str,
)
def test_a_row_whose_edits_leave_the_range_gives_nothing(chooser: Chooser, changes: Changes) -> None:
    rows = as_rows([1.0, LARGEST, 3.0])

    assert [Drawn(None)] == chooser.choose(rows, [draw_of(changes, 3)])
    assert [()] == chooser.rank(rows, [Ranking(0, 3, **asked(changes, 3))])


@pytest.mark.parametrize("changes", [Changes(banned={0, 1, 2}), Changes(allowed=()), Changes(banned={1}, allowed={1})])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_with_nothing_allowed_gives_nothing(chooser: Chooser, changes: Changes, temperature: float) -> None:
    rows = as_rows([1.0, 2.0, 3.0])

    assert [Drawn(None)] == chooser.choose(rows, [draw_of(changes, 3, temperature=temperature, explain=True)])
    assert [()] == chooser.rank(rows, [Ranking(0, 3, **asked(changes, 3))])


def test_logprobs_of_the_model_show_no_change(chooser: Chooser) -> None:
    """Those of the distribution drawn from do."""
    rows = as_rows([0.0, 0.0, 0.0, 0.0])
    changes = Changes(bias={3: 2.0}, banned={0})
    draws = [draw_of(changes, 4, uniform=0.99, logprobs=LogprobOptions(top=4, of=of)) for of in DISTRIBUTIONS]

    model, sampled = chooser.choose(rows, draws)

    assert (model.token_id, sampled.token_id) == (3, 3)
    assert close(-math.log(4), model.logprob or 0.0)
    assert 4 == len(model.top)
    assert close(2.0 - math.log(math.exp(2.0) + 2.0), sampled.logprob or 0.0)
    assert [3, 1, 2] == [entry.token_id for entry in sampled.top]


def test_edits_come_in_their_order(chooser: Chooser) -> None:
    """Bias first, so that the penalty sees its sign; then repetition; then frequency and presence."""
    changes = Changes(bias={0: -3.0}, seen={0: 2, 1: 0}, repetition=2.0, presence=0.25, frequency=0.5)

    (answer,) = chooser.rank(as_rows([1.0, 8.0]), [Ranking(0, 2, **asked(changes, 2))])

    assert [(1, 4.0), (0, (1.0 - 3.0) * 2.0 - 1.25)] == [(each.token_id, each.logit) for each in answer]


def test_a_masked_token_keeps_its_probability_in_a_ranking(chooser: Chooser) -> None:
    (answer,) = chooser.rank(as_rows([0.0, 0.0]), [Ranking(0, 2, banned=(0,))])

    assert (Ranked(1, -math.log(2.0), 0.0),) == answer


def test_a_mask_of_a_whole_vocabulary_leaves_its_bits(chooser: Chooser) -> None:
    """Words and bytes in their order, at both ends."""
    size = 49_152
    row = np.random.default_rng(3).normal(0.0, 3.0, size).astype(np.float32)
    allowed = {0, 7, 8, 31, 32, 40_000, size - 1}

    (answer,) = chooser.rank(row[None], [Ranking(0, 100, allowed=bitmask(allowed, size))])

    assert sorted(allowed, key=lambda token: -row[token]) == [each.token_id for each in answer]


def test_draws_of_one_row_keep_their_own_edits(chooser: Chooser) -> None:
    """What one draw changed is never what another sees."""
    rows = as_rows([3.0, 2.0, 1.0])
    changes = [Changes(), Changes(bias={0: -2000.0}), Changes(allowed={2}), Changes(banned={0}), Changes()]

    answers = chooser.choose(rows, [draw_of(each, 3, temperature=0.5, uniform=0.0) for each in changes])

    assert [0, 1, 2, 1, 0] == [answer.token_id for answer in answers]
    assert rows.tolist() == [[3.0, 2.0, 1.0]]


def test_no_questions_have_no_answers(chooser: Chooser) -> None:
    rows = np.empty((0, 0), dtype=np.float32)

    assert ([], [], []) == (chooser.choose(rows, []), chooser.rank(rows, []), chooser.score(rows, []))
