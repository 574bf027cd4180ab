"""Figures in a model's folder are believed for that model only."""

from pathlib import Path

import pytest

from model.evaluation.saved import EVALUATION, read_evaluation, write_evaluation
from model.loading.checkpoint import ModelFileError

SHA256 = "ab" * 32
FIGURES = {"model_sha256": SHA256, "perplexity": 21.5}


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    write_evaluation(tmp_path, FIGURES)

    assert FIGURES == read_evaluation(tmp_path, SHA256)
    assert [EVALUATION] == [path.name for path in tmp_path.iterdir()]


def test_later_figures_take_the_place_of_earlier_ones(tmp_path: Path) -> None:
    write_evaluation(tmp_path, {**FIGURES, "perplexity": 30})
    write_evaluation(tmp_path, FIGURES)

    assert FIGURES == read_evaluation(tmp_path, SHA256)


def test_a_folder_without_figures_has_none(tmp_path: Path) -> None:
    assert read_evaluation(tmp_path, SHA256) is None


def test_figures_of_another_model_are_not_believed(tmp_path: Path) -> None:
    write_evaluation(tmp_path, FIGURES)

    assert read_evaluation(tmp_path, "cd" * 32) is None


@pytest.mark.parametrize("content", ["", "[]", '{"model_sha256": 1', '{"a": 1, "a": 2}'])
def test_a_file_that_is_no_object_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / EVALUATION).write_text(content)

    with pytest.raises(ModelFileError, match=EVALUATION):
        read_evaluation(tmp_path, SHA256)


def test_a_number_that_is_none_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_evaluation(tmp_path, {**FIGURES, "perplexity": float("nan")})

    assert [] == list(tmp_path.iterdir())
