"""The study of beams: the proposition's examples, the count of what is evaluated, and the likeliest sequence of all."""

from collections.abc import Sequence

import numpy as np
import pytest

from model.ops.native_choice import Rows
from model.studies.beam import BEAM_FAILS, GREEDY_FAILS, BeamStudy, TableModel, Tokens, likeliest, random_model, study
from tests.reference import beams as reference


def sequences(found: BeamStudy) -> dict[int, Tokens]:
    return {each.width: each.tokens for each in found.found}


def test_greedy_decoding_misses_what_two_beams_find() -> None:
    found = study("", GREEDY_FAILS, 2, (1, 2))

    assert {0: (0, 0), 1: (0, 0), 2: (1, 0)} == sequences(found)
    assert [0.33, 0.33, 0.36] == pytest.approx([each.probability for each in found.found])
    assert (1, 0) == found.best
    assert found.best_probability == pytest.approx(0.36)


def test_two_beams_miss_what_three_find() -> None:
    found = study("", BEAM_FAILS, 2, (1, 2, 3))

    assert {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (2, 0)} == sequences(found)
    assert [0.16, 0.16, 0.16, 0.225] == pytest.approx([each.probability for each in found.found])
    assert (2, 0) == found.best
    assert found.best_probability == pytest.approx(0.225)


@pytest.mark.parametrize("seed", range(8))
def test_a_study_finds_what_the_plain_search_finds(seed: int) -> None:
    model, widths = random_model(5, seed), (1, 2, 3, 7)

    found = sequences(study("", model, 5, widths))

    assert [reference.beam_search(model, width=width, most=5)[0][0].tokens for width in widths] == [
        found[width] for width in widths
    ]


@pytest.mark.parametrize("seed", range(4))
def test_the_likeliest_is_that_of_all(seed: int) -> None:
    model = random_model(4, seed)

    best, logprob = reference.exhaustive(model, 4, 4)

    found = study("", model, 4, ())
    assert best == found.best
    assert logprob == pytest.approx(found.best_logprob, abs=1e-6)


def test_nothing_is_tried_where_there_are_too_many() -> None:
    assert None is likeliest(random_model(10, 0), 7)


def test_evaluated_probabilities_are_counted_and_bounded() -> None:
    found = study("", random_model(6, 1), 4, (1, 2, 5, 16))

    assert {0: 24, 1: 24, 2: 42, 5: 96, 16: 6 * (1 + 6 + 16 + 16)} == {
        each.width: each.candidates for each in found.found
    }
    assert {0: 24, 1: 24, 2: 48, 5: 120, 16: 384} == {each.width: each.most_candidates for each in found.found}


def test_rows_of_a_table_are_its_rows_one_by_one() -> None:
    model = random_model(5, 2)

    rows = model.rows([(3,), (0,), (3,)])

    assert np.array_equal(np.stack([model((3,)), model((0,)), model((3,))]), rows)
    assert np.array_equal(model(())[None], model.rows([()]))


class Ended(TableModel):
    """A model whose last rows are broken."""

    def rows(self, sequences: Sequence[Tokens]) -> Rows:
        return np.full((len(sequences), 2), np.nan, np.float32)


def test_a_broken_row_is_a_fault_of_the_model() -> None:
    with pytest.raises(AssertionError, match="without a finite maximum"):
        study("", Ended((0.5, 0.5), ((0.5, 0.5), (0.5, 0.5))), 2, (2,))


def test_progress_is_told_for_greedy_and_each_width() -> None:
    told: list[None] = []

    study("", GREEDY_FAILS, 2, (1, 2), on_found=lambda: told.append(None))

    assert 3 == len(told)
