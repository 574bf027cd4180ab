"""Held-out prose is what speakers said, in windows that lie within one address."""

from pathlib import Path

import pytest

from tests.bench.corpus import CorpusError, Document, cleaned, documents, windows

ADDRESS = """\
The President. Thank you, everybody. [Laughter] Please.

[There was a disruption in the audience.]

Audience members. Four more years!

The President. It is [we're; White House correction] time [to] begin. [applause]

Rep. Smith. No!"""


def characters(text: str) -> list[int]:
    return [ord(character) for character in text]


def test_stage_directions_speakers_and_calls_are_taken_out() -> None:
    assert "Thank you, everybody. Please.\n\nIt is we're time to begin." == cleaned(ADDRESS)


def test_documents_of_other_years_are_left_out_and_the_latest_comes_first(tmp_path: Path) -> None:
    for name in ("1999-A-1", "2010-B-1", "2026-C-1", "notes"):
        (tmp_path / f"{name}.txt").write_text("text")

    assert ["2026-C-1", "2010-B-1"] == [document.name for document in documents(tmp_path)]


def test_a_folder_without_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="2009 to 2026"):
        documents(tmp_path)


def test_windows_go_through_the_documents_in_turn() -> None:
    texts = [Document("a", "abcdefg"), Document("b", "ABCD")]

    found = list(windows(texts, characters, width=2, count=10))

    assert ["ab", "AB", "cd", "CD", "ef"] == ["".join(map(chr, ids)) for _, ids in found]


def test_no_more_windows_are_cut_than_asked_for() -> None:
    assert 3 == len(list(windows([Document("a", "abcdefgh")], characters, width=2, count=3)))
