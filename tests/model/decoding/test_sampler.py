"""The sampler: one call of the op set a step, uniforms by name, and endings banned until they are allowed."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.decoding.choice import Ask, Asking, Choice
from model.decoding.params import DecodingParameters, Draw, Drawn, LogprobOptions, Ranked, Ranking, Score, TokenLogprob
from model.decoding.sampler import Sampler
from tests.reference.sampling import uniform
from tests.torch_chooser import TorchChooser

EOS = frozenset({2, 7})


class RecordingOpSet:
    """Remembers what it was asked, and answers the n-th draw or score of a call with token n."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, list[Draw]]] = []
        self.scored: list[list[Score]] = []

    def choose(self, logits: Any, draws: Sequence[Draw]) -> list[Drawn]:
        self.calls.append((logits, list(draws)))
        return [Drawn(token_id) for token_id in range(len(draws))]

    def read_logits(self, logits: Any, rows: Sequence[int]) -> NDArray[np.float32]:
        return np.array([logits[row] for row in rows], dtype=np.float32)

    def score(self, logits: Any, scores: Sequence[Score]) -> list[Drawn]:
        self.scored.append(list(scores))
        return [Drawn(each.token_id, float(-each.row)) for each in scores]

    def rank(self, logits: Any, rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]:
        raise NotImplementedError


def ask(
    *,
    rows: tuple[int, ...] = (0,),
    parents: tuple[int, ...] = (0,),
    samples: tuple[int, ...] = (0,),
    generated: int = 0,
    seed: int = 0,
    **parameters: Any,
) -> Ask:
    wanted = DecodingParameters(max_new_tokens=16, seed=seed, **parameters)
    return Ask(tuple(Asking((row,), generated) for row in rows), parents, samples, wanted)


def draws_of(*asks: Ask) -> list[Draw]:
    """What the sampler asks of the op set."""
    ops = RecordingOpSet()
    Sampler(ops, EOS).choose("logits", asks)
    return ops.calls[0][1]


def test_all_requests_share_one_call() -> None:
    """The op set sees the logits once a step, and every choice gets its own tokens back in order."""
    ops = RecordingOpSet()
    asks = [ask(rows=(4,), parents=(0, 0, 0), samples=(0, 1, 2)), ask(rows=(1, 3), parents=(1,), samples=(5,))]

    choices = Sampler(ops, EOS).choose("logits", asks)

    assert 1 == len(ops.calls)
    assert "logits" == ops.calls[0][0]
    assert [4, 4, 4, 3] == [draw.row for draw in ops.calls[0][1]]
    assert [
        Choice(parents=(0, 0, 0), tokens=((Drawn(0),), (Drawn(1),), (Drawn(2),))),
        Choice(parents=(1,), tokens=((Drawn(3),),)),
    ] == choices


def test_no_asks_give_no_choices() -> None:
    """A step of prompt chunks alone."""
    assert [] == Sampler(TorchChooser(), EOS).choose(torch.empty((0, 8)), [])


def test_the_uniform_is_named_by_seed_sample_and_token_number() -> None:
    """Whatever row the sequence stands in and however long its prompt was."""
    expected = [uniform(2**63 - 1, sample, 12) for sample in (3, 0, 15)]

    asked = draws_of(ask(rows=(9, 4, 2), parents=(0, 1, 2), samples=(3, 0, 15), generated=12, seed=2**63 - 1))

    assert expected == [draw.uniform for draw in asked]


def test_parameters_reach_the_draw() -> None:
    """Every one that the op set has a part in."""
    options = LogprobOptions(top=3, of="sampled")
    expected = Draw(row=0, temperature=0.7, top_k=40, top_p=0.9, min_p=0.1, uniform=uniform(0, 0, 0), logprobs=options)

    asked = draws_of(ask(temperature=0.7, top_k=40, top_p=0.9, min_p=0.1, logprobs=options))

    assert [expected] == asked


@pytest.mark.parametrize(
    ("generated", "parameters", "expected"),
    [
        (0, {}, ()),
        (0, {"min_new_tokens": 3}, (2, 7)),
        (2, {"min_new_tokens": 3}, (2, 7)),
        (3, {"min_new_tokens": 3}, ()),
        (0, {"min_new_tokens": 3, "stop_token_ids": (7, 1)}, (1, 2, 7)),
        (0, {"min_new_tokens": 3, "ignore_eos": True}, ()),
        (0, {"min_new_tokens": 3, "ignore_eos": True, "stop_token_ids": (9, 2)}, (2, 9)),
        (0, {"stop_token_ids": (9,)}, ()),
    ],
)
def test_endings_are_banned_until_enough_tokens_came(
    generated: int, parameters: dict[str, Any], expected: tuple[int, ...]
) -> None:
    """EOS ids unless they are ignored, and stop ids always, while generated < min_new_tokens."""
    assert [expected] == [draw.banned for draw in draws_of(ask(generated=generated, **parameters))]


def test_samples_of_one_prompt_equal_the_samples_asked_alone() -> None:
    """Sample i of n is reproducible by itself."""
    logits = torch.randn((1, 64), generator=torch.Generator().manual_seed(3))
    sampler = Sampler(TorchChooser(), EOS)
    together = sampler.choose(logits, [ask(parents=(0,) * 8, samples=tuple(range(8)), seed=5)])[0]

    alone = [sampler.choose(logits, [ask(samples=(sample,), seed=5)])[0] for sample in range(8)]

    assert list(together.tokens) == [choice.tokens[0] for choice in alone]
    assert 1 < len({tokens[0].token_id for tokens in together.tokens})


def test_a_request_is_answered_alone_as_among_others() -> None:
    """A noisy neighbour changes nothing."""
    logits = torch.randn((3, 64), generator=torch.Generator().manual_seed(4))
    logits[1, 0] = float("nan")
    sampler = Sampler(TorchChooser(), EOS)
    quiet = ask(rows=(2,), seed=11, temperature=0.8, top_p=0.9, logprobs=LogprobOptions(top=2))
    expected = sampler.choose(logits[2:], [ask(seed=11, **as_keywords(quiet.parameters))])

    noisy = [ask(rows=(0,), seed=1), ask(rows=(1,), seed=2), quiet]

    assert expected == sampler.choose(logits, noisy)[2:]


def as_keywords(parameters: DecodingParameters) -> dict[str, Any]:
    names = ("temperature", "top_p", "logprobs")
    return {name: getattr(parameters, name) for name in names}


def drafting(drafts: tuple[int, ...], *, generated: int = 4, **parameters: Any) -> Ask:
    wanted = DecodingParameters(max_new_tokens=16, seed=3, **parameters)
    return Ask((Asking(tuple(range(len(drafts) + 1)), generated, drafts),), (0,), (1,), wanted)


@pytest.mark.parametrize(
    ("drafts", "expected"),
    [((), [0]), ((0,), [0, 1]), ((9,), [0]), ((0, 1, 2), [0, 1, 2, 3]), ((0, 9, 2), [0, 1]), ((9, 1, 2), [0])],
)
def test_drafts_hold_up_to_the_first_that_is_not_drawn(drafts: tuple[int, ...], expected: list[int]) -> None:
    """The n-th row draws token n here; the token that was drawn stands in place of the one that was drafted."""
    (choice,) = Sampler(RecordingOpSet(), EOS).choose("logits", [drafting(drafts)])

    assert [expected] == [[drawn.token_id for drawn in tokens] for tokens in choice.tokens]


def test_a_drafted_row_draws_with_the_uniform_of_its_place() -> None:
    expected = [uniform(3, 1, number) for number in (4, 5, 6)]

    assert expected == [draw.uniform for draw in draws_of(drafting((8, 9)))]


def test_a_drafted_row_may_end_once_enough_tokens_are_assumed() -> None:
    asked = draws_of(drafting((8, 9), min_new_tokens=5))

    assert [(2, 7), (), ()] == [draw.banned for draw in asked]


def test_banned_tokens_are_banned_beside_the_endings() -> None:
    asked = draws_of(ask(min_new_tokens=1, banned_token_ids=(1, 9)), ask(generated=1, banned_token_ids=(1, 9)))

    assert [(1, 2, 7, 9), (1, 9)] == [draw.banned for draw in asked]


def test_the_prompts_tokens_are_scored_in_one_call() -> None:
    ops = RecordingOpSet()
    first = Ask((), (), (), DecodingParameters(max_new_tokens=1, seed=0), (Score(0, 7, 2), Score(1, 8, 2)))
    second = Ask((Asking((3,), 0),), (0,), (0,), DecodingParameters(max_new_tokens=1, seed=0), (Score(2, 9, 0),))

    choices = Sampler(ops, EOS).choose("logits", [first, second])

    assert [[Score(0, 7, 2), Score(1, 8, 2), Score(2, 9, 0)]] == ops.scored
    assert [(Drawn(7, 0.0), Drawn(8, -1.0)), (Drawn(9, -2.0),)] == [choice.prompt for choice in choices]
    assert [(), ((Drawn(0),),)] == [choice.tokens for choice in choices]


class OnlyEven:
    """A constraint that lets even tokens pass and puts the next lower one in place of an odd one."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.asked: list[tuple[int, int, tuple[int, ...]]] = []
        self.failed = False

    def mask(self) -> NDArray[np.uint32]:
        return np.array([len(self.taken)], dtype=np.uint32)

    def settle(self, token_id: int, left: int) -> int:
        self.asked.append((token_id, left, tuple(self.taken)))
        return token_id - token_id % 2

    def advance(self, token_id: int) -> None:
        self.taken.append(token_id)

    def rollback(self, count: int) -> None:
        del self.taken[len(self.taken) - count :]

    def fork(self) -> "OnlyEven":
        raise NotImplementedError

    def accepts(self, drafts: Sequence[int]) -> int:
        return len(drafts)


def constrained(constraint: OnlyEven, drafts: tuple[int, ...] = (), **parameters: Any) -> Ask:
    wanted = DecodingParameters(max_new_tokens=16, seed=3, **parameters)
    rows = tuple(range(5, 6 + len(drafts)))
    return Ask((Asking(rows, 4, drafts, constraint=constraint),), (0,), (1,), wanted)


def test_each_drafted_row_has_the_mask_of_its_place() -> None:
    constraint = OnlyEven()

    asked = draws_of(constrained(constraint, (0, 0)))

    assert [0, 1, 2] == [draw.allowed[0] for draw in asked if draw.allowed is not None]
    assert [] == constraint.taken


def test_no_row_after_a_draft_that_would_be_replaced_has_a_mask() -> None:
    asked = draws_of(constrained(OnlyEven(), (0, 3, 0)))

    assert [True, True, False, False] == [draw.allowed is not None for draw in asked]


def test_a_draft_that_the_constraint_would_not_let_stand_is_not_taken() -> None:
    """The second row draws 1, for which 0 stands, and so the third row is not looked at."""
    constraint = OnlyEven()

    (choice,) = Sampler(RecordingOpSet(), EOS).choose("logits", [constrained(constraint, (0, 1))])

    assert [[0, 0]] == [[drawn.token_id for drawn in tokens] for tokens in choice.tokens]
    assert [] == constraint.taken


def test_a_constraint_settles_each_token_after_those_before_it() -> None:
    """The third row draws 2; the second drew 1, for which 0 stands, as it was drafted."""
    constraint = OnlyEven()

    (choice,) = Sampler(RecordingOpSet(), EOS).choose("logits", [constrained(constraint, (0, 0))])

    drafted, drawn = [(0, 12, ()), (0, 11, (0,))], [(0, 12, ()), (1, 11, (0,)), (2, 10, (0, 0))]
    assert [*drafted, *drawn] == constraint.asked
    assert [[0, 0, 2]] == [[drawn.token_id for drawn in tokens] for tokens in choice.tokens]
    assert [] == constraint.taken


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, Drawn(0)),
        (LogprobOptions(top=1), Drawn(0, -6.0)),
        (LogprobOptions(top=1, of="sampled"), Drawn(0, 0.0, (TokenLogprob(0, 0.0),))),
    ],
)
def test_a_token_that_was_put_in_place_has_its_own_log_probability(
    options: LogprobOptions | None, expected: Drawn
) -> None:
    (choice,) = Sampler(RecordingOpSet(), EOS).choose("logits", [constrained(OnlyEven(), (0,), logprobs=options)])

    assert expected == choice.tokens[0][1]


def test_a_constraint_that_failed_fails_its_sequence() -> None:
    constraint = OnlyEven()
    constraint.failed = True

    (choice,) = Sampler(RecordingOpSet(), EOS).choose("logits", [constrained(constraint)])

    assert ((Drawn(None),),) == choice.tokens


class FailingRows(RecordingOpSet):
    """The rows from this number on hold a NaN."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self._first = first

    def choose(self, logits: Any, draws: Sequence[Draw]) -> list[Drawn]:
        drawn = super().choose(logits, draws)
        return [each if number < self._first else Drawn(None) for number, each in enumerate(drawn)]


def test_a_draw_that_fails_after_a_draft_is_left_to_the_next_step() -> None:
    """The accepted token may end the text, and then nothing has failed."""
    (choice,) = Sampler(FailingRows(1), EOS).choose("logits", [drafting((0, 1))])

    assert [[0]] == [[drawn.token_id for drawn in tokens] for tokens in choice.tokens]


def test_after_a_failed_draw_a_constraint_stands_where_it_stood() -> None:
    constraint = OnlyEven()

    Sampler(FailingRows(1), EOS).choose("logits", [constrained(constraint, (0, 0))])

    assert [] == constraint.taken


def test_the_sampler_does_not_need_torch() -> None:
    """So that another op set can serve without it."""
    check = "import sys, model.decoding.sampler; print(sorted({'torch'} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()


class HashingOpSet(RecordingOpSet):
    """Answers by what is asked alone: the same draw gets the same token, whatever stands beside it."""

    def choose(self, logits: Any, draws: Sequence[Draw]) -> list[Drawn]:
        return [token_for(draw.row, draw.uniform) for draw in draws]


def token_for(row: int, uniform: float) -> Drawn:
    token_id = (row + int(uniform * 1000)) % 4
    return Drawn(token_id or None)


def settled(asking: Asking, seed: int, sample: int) -> tuple[Drawn, ...]:
    """The definition: tokens up to the first that is not the drafted one; a failed draw counts alone."""
    taken: list[Drawn] = []
    for ahead, row in enumerate(asking.rows):
        token = token_for(row, uniform(seed, sample, asking.generated + ahead))
        if token.token_id is None and taken:
            break
        taken.append(token)
        if ahead == len(asking.drafts) or token.token_id != asking.drafts[ahead]:
            break
    return tuple(taken)


@st.composite
def many_asks(draw: st.DrawFn) -> list[Ask]:
    asks, row = [], 0
    for _ in range(draw(st.integers(0, 4))):
        sequences = []
        for _ in range(draw(st.integers(1, 2))):
            drafts = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
            sequences.append(Asking(tuple(range(row, row + len(drafts) + 1)), draw(st.integers(0, 5)), drafts))
            row += len(drafts) + 1
        parents = tuple(draw(st.lists(st.integers(0, len(sequences) - 1), max_size=3)))
        prompt = tuple(Score(each, 1) for each in range(draw(st.integers(0, 2))))
        parameters = DecodingParameters(max_new_tokens=16, seed=draw(st.integers(0, 3)))
        asks.append(Ask(tuple(sequences), parents, tuple(range(len(parents))), parameters, prompt))
    return asks


@given(asks=many_asks())
def test_every_choice_is_what_its_ask_alone_defines(asks: list[Ask]) -> None:
    expected = [
        Choice(
            each.parents,
            tuple(
                settled(each.sequences[parent], each.parameters.seed, sample)
                for parent, sample in zip(each.parents, each.sample_indices, strict=True)
            ),
            tuple(Drawn(score.token_id, float(-score.row)) for score in each.prompt),
        )
        for each in asks
    ]

    assert expected == Sampler(HashingOpSet(), EOS).choose("logits", asks)
