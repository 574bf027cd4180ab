"""How far all beams of a search agree, step by step."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from model.decoding.beam import Hypothesis, Search, SharedPrefix, begin, common
from model.decoding.choice import Ask, Asking
from model.decoding.params import DecodingParameters, Drawn
from model.decoding.sampler import Sampler
from tests.beam_driver import RandomModel, ids_of
from tests.reference.beams import Tokens
from tests.torch_chooser import TorchChooser


def hypothesis(parent: Hypothesis, token_id: int, logprob: float = -1.0) -> Hypothesis:
    return Hypothesis(parent, Drawn(token_id), parent.length + 1, parent.logprob + logprob)


def test_the_shared_prefix_grows_as_branches_are_dropped() -> None:
    root = Hypothesis()
    a, b = hypothesis(root, 1), hypothesis(root, 2)
    shared = SharedPrefix(root)
    search = Search(2, 10, live=(a, b))
    assert [] == shared.follow(search)

    aa, ab = hypothesis(a, 3), hypothesis(a, 4)
    assert (1,) == ids_of(shared.follow(replace(search, live=(aa, ab))))
    assert [] == shared.follow(replace(search, live=(hypothesis(aa, 5), hypothesis(ab, 5))))
    assert shared.end is a


def test_kept_entries_hold_the_shared_prefix_back() -> None:
    root = Hypothesis()
    ended, a = hypothesis(root, 1), hypothesis(root, 2)
    search = Search(2, 10).advance([a], [(ended, "eos")])
    shared = SharedPrefix(root)

    assert [] == shared.follow(search)
    assert [] == shared.follow(search.advance([hypothesis(a, 3)]))


def test_a_random_life_shares_what_comparing_all_tokens_says() -> None:
    for seed in range(8):
        model = RandomModel(5, seed, spread=3.0)
        sent: tuple[int, ...] = ()
        asked = DecodingParameters(12, 0, beam_width=3)
        search = begin(asked, None)
        shared = SharedPrefix(search.live[0])
        sampler = Sampler(TorchChooser(), frozenset({3}))
        while search.stopped is None:
            rows = torch.from_numpy(np.stack([model(ids_of(each.tokens())) for each in search.live]))
            asking = tuple(Asking((row,), each.length) for row, each in enumerate(search.live))
            (choice,) = sampler.choose(rows, [Ask(asking, (), (), asked, search=search)])
            assert choice.search is not None
            search = choice.search
            sent += ids_of(shared.follow(search))
            every = [ids_of(h.tokens()) for h in (*search.live, *(e.hypothesis for e in search.pool))]
            assert sent == longest_common(every)


def longest_common(every: Sequence[Tokens]) -> Tokens:
    length = 0
    while all(len(each) > length for each in every) and len({each[length] for each in every}) == 1:
        length += 1
    return every[0][:length]


def test_two_hypotheses_have_their_last_common_one() -> None:
    root = Hypothesis()
    a = hypothesis(root, 1)
    left, right = hypothesis(hypothesis(a, 2), 3), hypothesis(a, 4)

    assert common(left, right) is a
    assert common(left, a) is a
    assert common(root, right) is root
