"""The sampler: one call of the op set a step, uniforms by name, and endings banned until they are allowed."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from model.decoding import torch_choice
from model.decoding.choice import Ask, Choice
from model.decoding.params import DecodingParameters, Draw, Drawn, LogprobOptions
from model.decoding.sampler import Sampler
from tests.reference.sampling import uniform

EOS = frozenset({2, 7})


class RecordingOpSet:
    """Remembers what it was asked, and answers the n-th draw of a call with token n."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, list[Draw]]] = []

    def choose(self, logits: Any, draws: Sequence[Draw]) -> list[Drawn]:
        self.calls.append((logits, list(draws)))
        return [Drawn(token_id) for token_id in range(len(draws))]


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
    return Ask(rows=rows, parents=parents, sample_indices=samples, generated=generated, parameters=wanted)


def draws_of(*asks: Ask) -> list[Draw]:
    """What the sampler asks of the op set."""
    ops = RecordingOpSet()
    Sampler(ops.choose, EOS).choose("logits", asks)
    return ops.calls[0][1]


def test_all_requests_share_one_call() -> None:
    """The op set sees the logits once a step, and every choice gets its own tokens back in order."""
    ops = RecordingOpSet()
    asks = [ask(rows=(4,), parents=(0, 0, 0), samples=(0, 1, 2)), ask(rows=(1, 3), parents=(1,), samples=(5,))]

    choices = Sampler(ops.choose, EOS).choose("logits", asks)

    assert 1 == len(ops.calls)
    assert "logits" == ops.calls[0][0]
    assert [4, 4, 4, 3] == [draw.row for draw in ops.calls[0][1]]
    assert [
        Choice(parents=(0, 0, 0), tokens=((Drawn(0),), (Drawn(1),), (Drawn(2),))),
        Choice(parents=(1,), tokens=((Drawn(3),),)),
    ] == choices


def test_no_asks_give_no_choices() -> None:
    """A step of prompt chunks alone."""
    assert [] == Sampler(torch_choice.choose, EOS).choose(torch.empty((0, 8)), [])


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
    sampler = Sampler(torch_choice.choose, EOS)
    together = sampler.choose(logits, [ask(parents=(0,) * 8, samples=tuple(range(8)), seed=5)])[0]

    alone = [sampler.choose(logits, [ask(samples=(sample,), seed=5)])[0] for sample in range(8)]

    assert list(together.tokens) == [choice.tokens[0] for choice in alone]
    assert 1 < len({tokens[0].token_id for tokens in together.tokens})


def test_a_request_is_answered_alone_as_among_others() -> None:
    """A noisy neighbour changes nothing."""
    logits = torch.randn((3, 64), generator=torch.Generator().manual_seed(4))
    logits[1, 0] = float("nan")
    sampler = Sampler(torch_choice.choose, EOS)
    quiet = ask(rows=(2,), seed=11, temperature=0.8, top_p=0.9, logprobs=LogprobOptions(top=2))
    expected = sampler.choose(logits[2:], [ask(seed=11, **as_keywords(quiet.parameters))])

    noisy = [ask(rows=(0,), seed=1), ask(rows=(1,), seed=2), quiet]

    assert expected == sampler.choose(logits, noisy)[2:]


def as_keywords(parameters: DecodingParameters) -> dict[str, Any]:
    names = ("temperature", "top_p", "logprobs")
    return {name: getattr(parameters, name) for name in names}


def test_the_sampler_does_not_need_torch() -> None:
    """So that another op set can serve without it."""
    check = "import sys, model.decoding.sampler; print(sorted({'torch'} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()
