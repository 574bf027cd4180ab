"""Perplexity is that of all predicted tokens, and what is compared with a reference is compared token by token."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from model.evaluation.agreement import Logits, agreement
from model.evaluation.perplexity import score_windows, token_ids_sha256

VOCABULARY = 3


class Scripted:
    """Gives the token that comes next a fixed share of what is likely, by its place in the window."""

    def __init__(self, *shares: float) -> None:
        self.shares = shares
        self.asked: list[tuple[int, ...]] = []

    def logits(self, ids: Sequence[int]) -> Logits:
        self.asked.append(tuple(ids))
        likely = np.zeros((len(ids), VOCABULARY), dtype=np.float32)
        for place, following in enumerate(ids[1:]):
            share = self.shares[place % len(self.shares)]
            likely[place] = (1 - share) / (VOCABULARY - 1)
            likely[place, following] = share
        likely[-1] = 1 / VOCABULARY
        return np.log(likely)


WINDOWS = [("a", (0, 1, 2, 1)), ("b", (2, 2, 0, 1))]


def test_perplexity_is_the_exponential_of_the_mean_over_all_predicted_tokens() -> None:
    (scored,) = score_windows([Scripted(0.5, 0.25, 0.25)], WINDOWS)

    assert (2 * 4 * 4) ** (1 / 3) == pytest.approx(scored.perplexity, rel=1e-6)
    assert 6 == scored.figures()["tokens"]


def test_the_second_half_is_what_sees_half_of_the_window_or_more() -> None:
    (scored,) = score_windows([Scripted(0.9, 0.9, 0.25)], WINDOWS)

    half = scored.second_half()
    assert (2, 2) == (half.nll.size, half.windows)
    assert 4 == pytest.approx(half.perplexity, rel=1e-6)


def test_the_reference_predicts_each_window_once_for_all_candidates() -> None:
    reference = Scripted(0.5)

    found = score_windows([Scripted(0.5), Scripted(0.25)], WINDOWS, reference)

    assert [ids for _, ids in WINDOWS] == reference.asked
    assert [0, 100] == pytest.approx([scored.figures()["relative_perplexity_percent"] for scored in found], abs=1e-4)


def test_alone_and_beside_a_reference_the_perplexity_is_the_same() -> None:
    (alone,), (beside,) = (
        score_windows([Scripted(0.5, 0.3)], WINDOWS, reference) for reference in (None, Scripted(0.4))
    )

    assert alone.perplexity == beside.figures()["perplexity"]


def test_errors_of_windows_come_from_their_mean_differences() -> None:
    class ByWindow(Scripted):
        def logits(self, ids: Sequence[int]) -> Logits:
            self.shares = (0.5,) if ids == WINDOWS[0][1] else (0.25,)
            return super().logits(ids)

    (scored,) = score_windows([ByWindow(0.5)], WINDOWS, Scripted(0.5))
    figures = scored.figures()

    differences = [0.0, math.log(2)]
    error = (differences[1] - differences[0]) / 2
    assert 100 * math.exp(sum(differences) / 2) * error == pytest.approx(
        figures["window_standard_error_percent"], rel=1e-5
    )


def test_a_single_window_has_no_error_of_windows() -> None:
    (scored,) = score_windows([Scripted(0.5, 0.4)], WINDOWS[:1], Scripted(0.5))

    assert scored.against is not None
    assert agreement(scored.against).window_standard_error_percent is None


def test_every_window_is_told_of() -> None:
    told: list[int] = []

    score_windows([Scripted(0.5)], WINDOWS, on_window=lambda: told.append(1))

    assert [1, 1] == told


def test_the_hash_is_of_the_ids() -> None:
    assert token_ids_sha256(WINDOWS) == token_ids_sha256([("other", ids) for _, ids in WINDOWS])
    assert token_ids_sha256(WINDOWS) != token_ids_sha256(WINDOWS[::-1])
