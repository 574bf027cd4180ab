"""The study of sampling draws as the sampler does, and judges frequencies as statistics does."""

import math
from collections import Counter

import pytest

from model.decoding.filters import distribution, drawn_position
from model.native._native import philox_uniform
from model.studies.distributions import row_of
from model.studies.sampling import EXAMPLE, SamplingStudy, chi_square_tail, study


def run(draws: int = 2500, seed: int = 7, temperature: float = 0.8, top_p: float = 0.95) -> SamplingStudy:
    return study(EXAMPLE, draws=draws, seed=seed, temperature=temperature, top_p=top_p)


def test_the_distribution_is_that_of_section_6() -> None:
    found = run(10)

    assert [0.6038, 0.3232, 0.0496, 0.0182, 0.0041, 0.0012] == [round(f.probability, 4) for f in found.frequencies]
    assert [0.6183, 0.331, 0.0508, 0.0, 0.0, 0.0] == [round(f.restricted, 4) for f in found.frequencies]
    assert ((0, 1, 2), 0.9765, 0.0235) == (found.kept, round(found.mass, 4), round(found.moved, 4))


def test_draw_i_takes_the_uniform_of_token_i() -> None:
    kept = distribution(row_of(EXAMPLE), temperature=0.8, top_p=0.95)
    expected = Counter(int(kept.token_ids[drawn_position(kept, philox_uniform(7, 0, place))]) for place in range(2500))

    assert [expected[token] / 2500 for token in range(6)] == [each.frequency for each in run().frequencies]


def test_another_seed_draws_otherwise() -> None:
    assert run(seed=7).frequencies != run(seed=8).frequencies


def test_the_last_agreement_is_of_all_draws() -> None:
    found = run()
    last = found.agreements[-1]
    gaps = [(each.frequency, each.restricted) for each in found.frequencies]

    assert [100, 1000, 2500] == [each.draws for each in found.agreements]
    assert last.moved == pytest.approx(sum(abs(f - q) for f, q in gaps) / 2)
    assert last.chi_square == pytest.approx(sum(2500 * (f - q) ** 2 / q for f, q in gaps if q))
    assert last.tail == pytest.approx(math.exp(-last.chi_square / 2))


@pytest.mark.slow
def test_many_draws_agree_with_the_distribution() -> None:
    (*_, last) = run(200_000, seed=20261010).agreements

    assert last.tail > 0.001
    assert last.moved < 3 * last.expected


def test_the_expected_distance_falls_with_the_root_of_the_draws() -> None:
    small, large = run(100).agreements[-1], run(2500).agreements[-1]

    assert 5 == pytest.approx(small.expected / large.expected)


def test_one_kept_token_is_drawn_always() -> None:
    found = run(150, top_p=0.5)

    assert (1.0, 0.0, 1.0) == (
        found.frequencies[0].frequency,
        found.agreements[-1].chi_square,
        found.agreements[-1].tail,
    )


@pytest.mark.parametrize(
    ("statistic", "degrees", "tail"),
    [(3.841459, 1, 0.05), (5.991465, 2, 0.05), (7.814728, 3, 0.05), (54.0520, 26, 0.001), (0.0, 4, 1.0), (9.0, 0, 1.0)],
)
def test_the_tail_of_chi_square_is_that_of_its_tables(statistic: float, degrees: int, tail: float) -> None:
    assert tail == pytest.approx(chi_square_tail(statistic, degrees), rel=2e-5)


def test_progress_is_told_for_every_part() -> None:
    told: list[None] = []

    study(EXAMPLE, draws=20_001, seed=0, temperature=1.0, top_p=1.0, on_draws=lambda: told.append(None))

    assert 3 == len(told)
