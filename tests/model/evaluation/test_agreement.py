"""How two models' predictions are compared."""

import math

import numpy as np
import pytest

from model.evaluation.agreement import agreement, joined, score


def logits_of(*rows: tuple[float, ...]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.log(np.array(rows, dtype=np.float32))


HALF = logits_of((0.5, 0.25, 0.25), (0.5, 0.25, 0.25))
OTHER = logits_of((0.25, 0.5, 0.25), (0.6, 0.2, 0.2))


def test_a_model_agrees_with_itself() -> None:
    found = agreement(score(HALF, HALF, [0, 1]))

    assert (0, 0, 0, 100) == (
        found.relative_perplexity_percent,
        found.standard_error_percent,
        found.mean_divergence,
        found.same_top_percent,
    )


def test_perplexity_is_the_exponential_of_the_mean_over_all_tokens() -> None:
    assert math.sqrt(2 * 4) == pytest.approx(agreement(score(HALF, HALF, [0, 1])).reference_perplexity)


def test_relative_perplexity_and_its_error_rest_on_paired_differences() -> None:
    found = agreement(score(HALF, OTHER, [0, 0]))

    differences = [math.log(0.5 / 0.25), math.log(0.5 / 0.6)]
    ratio = math.exp(sum(differences) / 2)
    assert 100 * (ratio - 1) == pytest.approx(found.relative_perplexity_percent, rel=1e-5)
    error = abs(differences[0] - differences[1]) / 2
    assert 100 * ratio * error == pytest.approx(found.standard_error_percent, rel=1e-5)


def test_divergence_is_from_the_reference() -> None:
    found = score(HALF, OTHER, [0, 0]).divergence

    expected = 0.5 * math.log(0.5 / 0.25) + 0.25 * math.log(0.25 / 0.5)
    assert expected == pytest.approx(found[0], rel=1e-5)


def test_first_choices_are_counted_token_by_token() -> None:
    assert [False, True] == score(HALF, OTHER, [0, 0]).same_top.tolist()


def test_large_logits_do_not_overflow() -> None:
    large = np.array([[1000.0, 0.0]], dtype=np.float32)

    assert 0 == score(large, large, [0]).nll[0]


def test_many_tokens_in_pieces_give_what_they_give_together() -> None:
    rng = np.random.default_rng(0)
    reference, logits = rng.standard_normal((2, 150, 7), dtype=np.float32)
    targets = rng.integers(0, 7, 150).tolist()

    together = score(reference, logits, targets)

    apart = joined([score(reference[i : i + 1], logits[i : i + 1], targets[i : i + 1]) for i in range(150)])
    assert agreement(apart) == agreement(together)
