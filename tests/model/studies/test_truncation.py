"""The study of truncation measures what proposition 5.2 says it must find."""

import pytest

from model.studies.truncation import Truncation, examples, study, truncations

FOUND = study(examples())


def of(case: str, rule: str, threshold: float) -> Truncation:
    (found,) = [each for each in FOUND if (each.case, each.rule, each.threshold) == (case, rule, threshold)]
    return found


@pytest.mark.parametrize(
    ("case", "rule", "threshold", "kept"),
    [
        ("remark 5.5", "top_p", 0.6, (0, 1)),
        ("example 5.6", "top_k", 2, (0, 1)),
        ("example 5.6", "top_p", 0.3, (0,)),
        ("example 5.6", "top_p", 0.6, (0, 1)),
        ("example 5.6", "top_p", 0.9, (0, 1, 2)),
        ("example 5.6", "top_p", 1.0, (0, 1, 2, 3)),
        ("example 5.6, a peak", "top_p", 0.9, (0,)),
        ("example 5.6, uniform", "top_p", 0.9, (0, 1, 2, 3)),
        ("section 6", "top_p", 0.95, (0, 1, 2)),
        ("exercise 10.2", "top_p", 0.5, (0, 1)),
        ("exercise 10.2", "top_p", 0.8, (0, 1, 2)),
        ("exercise 10.2", "top_p", 0.95, (0, 1, 2, 3)),
    ],
)
def test_the_sets_are_those_of_the_examples(case: str, rule: str, threshold: float, kept: tuple[int, ...]) -> None:
    assert kept == of(case, rule, threshold).token_ids


@pytest.mark.parametrize("found", FOUND, ids=lambda each: f"{each.case}, {each.rule} {each.threshold}")
def test_a_distribution_moves_by_the_mass_that_is_cut_off(found: Truncation) -> None:
    assert found.moved == pytest.approx(1 - found.mass, abs=1e-15)


@pytest.mark.parametrize("found", [each for each in FOUND if each.bound is not None])
def test_top_p_moves_it_by_no_more_than_its_bound(found: Truncation) -> None:
    assert found.bound is not None
    assert found.moved <= found.bound + 1e-15


def test_top_k_exceeds_what_the_same_mass_would_bound() -> None:
    """A uniform distribution loses half of itself to k = 2, however small ρ's bound would be."""
    assert (None, 0.5) == (
        of("example 5.6, uniform", "top_k", 2).bound,
        of("example 5.6, uniform", "top_k", 2).moved,
    )


def test_a_case_without_thresholds_gives_nothing() -> None:
    (case, *_) = examples()

    assert len(case.top_k) + len(case.top_p) == len(list(truncations(case))) == 1
