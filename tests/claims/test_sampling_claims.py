"""Generation and the draw: definition 3.1, propositions 6.1 and 6.3, and what rounding does to both."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from model.decoding.choice import Ask, Asking
from model.decoding.filters import (
    Floats,
    distribution,
    drawn_position,
)
from model.decoding.params import DecodingParameters
from model.decoding.sampler import Sampler
from model.studies.distributions import candidates, row_of, tempered
from model.studies.sampling import EXAMPLE
from tests.claims.tokens import (
    LAST_UNIFORM,
    UNIT,
    drawn,
    exact_distributions,
    frequencies,
    greedy,
    midpoints,
    plain_logits,
    plain_temperatures,
)
from tests.reference import sampling as reference
from tests.torch_chooser import TorchChooser


class ToyModel:
    """Logits for the next of three tokens, fixed at random for every prefix of up to two."""

    def __init__(self) -> None:
        rng = np.random.default_rng(31)
        self.prefixes = [(), *((a,) for a in range(3)), *((a, b) for a in range(3) for b in range(3))]
        self._logits = {prefix: rng.normal(size=3).astype(np.float32) for prefix in self.prefixes}

    def logits(self, prefix: tuple[int, ...]) -> Floats:
        return self._logits[prefix[-2:]]

    def probability(self, sequence: tuple[int, ...]) -> float:
        """The product of the conditional probabilities."""
        steps = (reference.softmax(self.logits(sequence[:t]).tolist())[token] for t, token in enumerate(sequence))
        return math.prod(steps)


def generate(
    model: ToyModel, parameters: DecodingParameters, samples: Sequence[int], eos: frozenset[int] = frozenset()
) -> list[tuple[int, ...]]:
    """Definition 3.1 over the real sampler: several samples of an empty prompt, one row for each prefix."""
    sampler = Sampler(TorchChooser(), eos)
    sequences: dict[int, tuple[int, ...]] = dict.fromkeys(samples, ())
    for generated in range(parameters.max_new_tokens):
        going = [sample for sample in samples if not eos.intersection(sequences[sample])]
        if not going:
            break
        prefixes = sorted({sequences[sample] for sample in going})
        logits = torch.from_numpy(np.stack([model.logits(prefix) for prefix in prefixes]))
        parents = tuple(prefixes.index(sequences[sample]) for sample in going)
        sequences_asking = tuple(Asking((row,), generated) for row in range(len(prefixes)))
        ask = Ask(sequences_asking, parents, tuple(going), parameters)
        tokens = sampler.choose(logits, [ask])[0].tokens
        for sample, (token,) in zip(going, tokens, strict=True):
            assert token.token_id is not None
            sequences[sample] += (token.token_id,)
    return list(sequences.values())


def test_d3_1_generation_stops_at_eos_or_at_the_maximum_length() -> None:
    """D3.1: it ends when the token is EOS or the length is reached, so it always ends."""
    parameters = DecodingParameters(max_new_tokens=5, seed=9)

    sequences = generate(ToyModel(), parameters, range(200), eos=frozenset({2}))

    assert {1, 2, 3, 4, 5} == {len(sequence) for sequence in sequences}
    assert all(2 not in sequence[:-1] for sequence in sequences)
    assert all(len(sequence) == 5 for sequence in sequences if sequence[-1] != 2)


def test_d3_1_ancestral_sampling_gives_the_product_distribution() -> None:
    """D3.1: sequences follow Π p(x_t | x_<t); χ² over all 27 sequences of length 3, at the 0.1 % level."""
    model, count = ToyModel(), 5_000
    parameters = DecodingParameters(max_new_tokens=3, seed=20261010)

    observed = Counter(generate(model, parameters, range(count)))

    everything = [(a, b, c) for a in range(3) for b in range(3) for c in range(3)]
    expected = {sequence: count * model.probability(sequence) for sequence in everything}
    statistic = sum((observed[s] - mean) ** 2 / mean for s, mean in expected.items())
    assert min(expected.values()) > 5.0
    assert statistic < 54.05


@given(probabilities=exact_distributions())
def test_p6_1_the_draw_has_the_distribution(probabilities: list[float]) -> None:
    """P6.1: P(X = j) = q_j: of 64 evenly spaced uniforms exactly 64·q_j give token j."""
    kept = candidates(probabilities)

    counts = frequencies(kept, midpoints(UNIT))

    assert {i: int(UNIT * p) for i, p in enumerate(probabilities) if p > 0.0} == counts
    assert Counter(reference.inverse_cdf(probabilities, u) for u in midpoints(UNIT)) == counts


class Watched(list[float]):
    """A list that counts how many of its entries are read."""

    reads = 0

    def __iter__(self) -> Iterator[float]:
        for value in super().__iter__():
            self.reads += 1
            yield value


def test_p6_1_a_draw_reads_each_probability_once() -> None:
    """P6.1: N additions and comparisons at most."""
    probabilities = Watched([1 / 1024] * 1024)

    assert 1023 == reference.inverse_cdf(probabilities, LAST_UNIFORM)
    assert 1024 == probabilities.reads


@given(probabilities=exact_distributions())
def test_r6_2_the_alias_method_gives_the_same_distribution(probabilities: list[float]) -> None:
    """R6.2: Walker's columns add up to what the cumulative draw gives."""
    size, reached = len(probabilities), [0.0] * len(probabilities)
    for column, (share, other) in enumerate(reference.alias_table(probabilities)):
        reached[column] += share / size
        reached[other] += (1.0 - share) / size

    counts = frequencies(candidates(probabilities), midpoints(UNIT))

    assert pytest.approx([counts.get(token, 0) / UNIT for token in range(size)], abs=1e-12) == reached


def test_r6_2_the_alias_method_saves_nothing_for_one_draw() -> None:
    """R6.2: its preparation alone reads all N probabilities, more than one cumulative draw on average."""
    prepared, scanned = Watched([1 / 256] * 256), Watched([1 / 256] * 256)

    reference.alias_table(prepared)
    draws = [reference.inverse_cdf(scanned, uniform) for uniform in midpoints(100)]

    assert 256 <= prepared.reads
    assert prepared.reads > scanned.reads / len(draws)


@pytest.mark.slow
def test_c6_the_empirical_distribution() -> None:
    """C6: 200,000 draws with seed 20261010 fall (.6173, .3322, .0505)."""
    kept = distribution(row_of(EXAMPLE), temperature=0.8, top_p=0.95)
    uniforms = np.random.default_rng(20261010).random(200_000)

    counts = frequencies(kept, uniforms.tolist())

    assert [0.6173, 0.3322, 0.0505] == [round(counts[token] / 200_000, 4) for token in range(3)]


def test_p6_3_1_fixed_uniforms_fix_the_output() -> None:
    """P6.3.1: same weights, prompt, settings and seed give the same tokens; another seed gives others."""
    first, second, other = (
        generate(ToyModel(), DecodingParameters(max_new_tokens=40, seed=seed, temperature=0.9), range(4))
        for seed in (1, 1, 2)
    )

    assert first == second
    assert all(one != another for one, another in zip(first, other, strict=True))


def test_p6_3_2_addition_is_not_associative() -> None:
    """P6.3.2: (0.1 + 0.2) + 0.3 and 0.1 + (0.2 + 0.3) round differently."""
    assert "0.6000000000000001" == repr((0.1 + 0.2) + 0.3)
    assert "0.6" == repr(0.1 + (0.2 + 0.3))


def gamma(count: int, unit_roundoff: float) -> float:
    return count * unit_roundoff / (1.0 - count * unit_roundoff)


def sequential_sum(numbers: Sequence[np.float32]) -> np.float32:
    total = np.float32(0.0)
    for number in numbers:
        total = np.float32(total + number)
    return total


terms = st.floats(-4.0, 4.0, width=32).filter(lambda x: x == 0.0 or abs(x) > 1e-20).map(np.float32)


@given(
    numbers=st.lists(terms, min_size=2, max_size=4),
    times=st.floats(1.001, 4.0),
    side=st.sampled_from((-1.0, 1.0)),
)
def test_p6_3_3_a_safe_margin_survives_every_order(numbers: list[np.float32], times: float, side: float) -> None:
    """P6.3.3: |ŝ − z′| > 2γ_{n−1} Σ|x_i| means that no order of summation changes the greedy token."""
    computed = sequential_sum(numbers)
    magnitude = math.fsum(abs(float(x)) for x in numbers)
    margin = 2.0 * gamma(len(numbers) - 1, 2.0**-24) * magnitude
    rival = float(computed) + side * times * margin
    assume(abs(float(computed) - rival) > margin)

    tokens = greedy(*([rival, float(sequential_sum(order))] for order in permutations(numbers)))

    assert {int(float(computed) > rival)} == set(tokens)


def test_e6_4_the_order_of_a_sum_flips_the_argmax() -> None:
    """E6.4: A sums .1, .2, .3 and B, of the lower index, is .6: one order gives A, the other ties and gives B."""
    left, right = (0.1 + 0.2) + 0.3, 0.1 + (0.2 + 0.3)

    assert 1 == reference.greedy([0.6, left])
    assert 0 == reference.greedy([0.6, right])
    assert pytest.approx(1.1e-16, rel=0.02) == left - right
    assert pytest.approx(2.7e-16, rel=0.02) == 2.0 * gamma(2, 2.0**-53) * 0.6
    assert left - right < 2.0 * gamma(2, 2.0**-53) * 0.6


def test_e6_4_the_same_happens_to_float32_logits() -> None:
    """E6.4 in the precision of logits: .2 + .2 + .3 against .7, a gap inside 2γ₂·.7."""
    a, b, c, rival = (np.float32(x) for x in (0.2, 0.2, 0.3, 0.7))
    left, right = (a + b) + c, a + (b + c)

    assert [1, 0] == greedy([float(rival), float(left)], [float(rival), float(right)])
    assert 0.0 < left - right < 2.0 * gamma(2, 2.0**-24) * 0.7


def test_trap_t2_the_largest_uniform_stays_inside_the_vocabulary() -> None:
    """Trap T2: with C_N = .9999999999999999 the short code answers N for U above it; scaled by C_N it answers N − 1."""
    probabilities = [0.5, 0.2, 0.2, 0.1]

    assert 4 == reference.right_bisection(probabilities, LAST_UNIFORM)
    assert 3 == drawn_position(candidates(probabilities), LAST_UNIFORM)


@given(logits=plain_logits, settings=st.fixed_dictionaries({"temperature": plain_temperatures}))
def test_trap_t2_the_ends_of_the_uniform_are_always_answered(logits: list[float], settings: dict[str, float]) -> None:
    """Traps T2, T3: both ends of [0, 1) give the first and the last token of positive probability."""
    positive = np.flatnonzero(tempered(logits, **settings)).tolist()

    assert positive[0] == drawn(logits, 0.0, **settings)
    assert drawn(logits, LAST_UNIFORM, **settings) in positive


def test_trap_t3_a_uniform_of_zero_takes_no_token_of_probability_zero() -> None:
    """Trap T3: C_1 = 0 ≥ 0 would choose the first token though it has probability 0; the strict form does not."""
    assert 0 == reference.inverse_cdf([0.0, 0.5, 0.5], 0.0)
    assert 1 == drawn([-math.inf, 0.0, 0.0], 0.0)
