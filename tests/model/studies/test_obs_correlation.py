"""The study of pruning under correlation: medians over seeds, and one draw to the digit."""

import numpy as np
import pytest

from model.studies.obs_correlation import CorrelationRow, differing, study, trial


def test_one_seed_is_one_draw_to_the_digit() -> None:
    found = study(counts=(32,), seeds=[4])

    assert [
        (0.0, 0.344, 0.120, 0.114),
        (0.3, 0.338, 0.189, 0.110),
        (0.7, 0.280, 0.545, 0.083),
        (0.9, 0.221, 0.241, 0.034),
    ] == [
        (row.shared, round(row.magnitude, 3), round(row.saliency_only, 3), round(row.surgery, 3)) for row in found.rows
    ]


@pytest.mark.slow
def test_gains_are_medians_over_sixty_seeds() -> None:
    found = study(counts=(32,), seeds=range(60))

    assert [2.66, 2.63, 3.70, 7.26] == [round(row.gain, 2) for row in found.rows]
    assert [0.98, 1, 1, 1] == [round(row.surgery_wins, 2) for row in found.rows]
    assert [0, 0.02, 0.37, 0.53] == [round(row.backfires, 2) for row in found.rows]


def row_of_three() -> CorrelationRow:
    (row,) = study(shared=[0.7], counts=(6,), seeds=[0, 1, 2], width=12, samples=40).rows
    return row


def test_a_row_sums_up_its_seeds() -> None:
    cases = [trial(seed, 0.7, 12, 40) for seed in range(3)]
    deviations = np.array([case.deviations(6) for case in cases])
    row = row_of_three()

    assert np.median(deviations, axis=0).tolist() == [row.magnitude, row.saliency_only, row.surgery]
    assert float(np.median(deviations[:, 0] / deviations[:, 2])) == row.gain
    assert float((deviations[:, 1] > deviations[:, 0]).mean()) == row.backfires
    assert float((deviations[:, 2] <= deviations[:, 1]).mean()) == row.surgery_wins


def test_differences_are_from_magnitude() -> None:
    pruned = [trial(seed, 0.7, 12, 40).pruned(6) for seed in range(3)]
    expected = [float(np.median([differing(each[0], each[way]) for each in pruned])) for way in (1, 2)]

    assert expected == [row_of_three().differs_saliency, row_of_three().differs_surgery]


def test_differing_counts_zeros_of_only_one() -> None:
    assert 2 == differing(np.array([0.0, 0.0, 1.0, 2.0]), np.array([0.0, 5.0, 0.0, 3.0]))


def test_rows_come_by_c_and_within_it_by_k() -> None:
    found = study(shared=(0.9, 0.0), counts=(4, 2), seeds=[0], width=8, samples=20)

    assert [(0.9, 4), (0.9, 2), (0.0, 4), (0.0, 2)] == [(row.shared, row.count) for row in found.rows]


def test_progress_is_told_for_every_c_and_seed() -> None:
    told: list[None] = []

    study(shared=(0.9, 0.0), counts=(2,), seeds=range(3), width=4, samples=9, on_trial=lambda: told.append(None))

    assert 6 == len(told)
