"""Files of records: what is written where, and what is read back."""

import io
import json
import os
import re
from pathlib import Path

import click
import pytest

from service.cli.console import Failure, Unusable
from service.cli.records import RecordFile, read_records


def write(path: Path, *records: object, append: bool = False) -> None:
    for record in records:
        RecordFile(path, append=append).write({"request": record, "answer": {}})


def lines_of(path: Path) -> list[object]:
    return [json.loads(line)["request"] for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_record_is_one_line(tmp_path: Path) -> None:
    write(tmp_path / "r", {"prompt": "a\nb\u2028é"})

    assert '{"request":{"prompt":"a\\nb\u2028é"},"answer":{}}\n' == (tmp_path / "r").read_text(encoding="utf-8")


def test_a_file_that_is_there_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("precious")

    with pytest.raises(Unusable, match="exists; name another file, or add to it with --append"):
        RecordFile(tmp_path / "r", append=False)


def test_a_file_that_came_into_being_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "r", append=False)
    (tmp_path / "r").write_text("precious")

    with pytest.raises(Unusable, match="exists"):
        file.write({})

    assert "precious" == (tmp_path / "r").read_text()


def test_nothing_but_the_record_is_left_in_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "r", 1)

    assert ["r"] == os.listdir(tmp_path)


def test_nothing_is_left_of_a_record_that_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)

    with pytest.raises(Failure, match="No space left on device"):
        write(tmp_path / "r", 1)

    assert [] == os.listdir(tmp_path)


def test_records_are_appended_when_that_is_asked(tmp_path: Path) -> None:
    write(tmp_path / "r", 1, 2, 3, append=True)

    assert [1, 2, 3] == lines_of(tmp_path / "r")


def test_a_record_after_an_unfinished_line_begins_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "r").write_text('{"request":0}')

    write(tmp_path / "r", 1, append=True)

    assert [0, 1] == lines_of(tmp_path / "r")


def test_a_record_has_the_rights_of_any_new_file(tmp_path: Path) -> None:
    write(tmp_path / "r", 1)
    (tmp_path / "other").touch()

    assert (tmp_path / "other").stat().st_mode == (tmp_path / "r").stat().st_mode


def test_a_folder_is_no_place_for_a_record(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=r"is a folder$"):
        RecordFile(tmp_path, append=True)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        Unusable, match=f"cannot be written: there is no folder {re.escape(str(tmp_path / 'missing'))}$"
    ):
        RecordFile(tmp_path / "missing" / "r", append=True)


def test_each_line_is_a_record(tmp_path: Path) -> None:
    write(tmp_path / "r", 1, 2, append=True)

    assert [(1, 1), (2, 2)] == [(line.number, line.record["request"]) for line in read_records(str(tmp_path / "r"))]


def test_one_record_may_take_several_lines(tmp_path: Path) -> None:
    (tmp_path / "r").write_text(json.dumps({"request": 1}, indent=2))

    (line,) = read_records(str(tmp_path / "r"))

    assert {"request": 1} == line.record


def test_empty_lines_are_no_records_and_are_counted(tmp_path: Path) -> None:
    (tmp_path / "r").write_text('\n{"request":1}\n\n{"request":2}\n')

    assert [2, 4] == [line.number for line in read_records(str(tmp_path / "r"))]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", "invalid_json"),
        (b'{"a":NaN}', "invalid_json"),
        (b'{"a":1,"a":2}', "duplicate_key"),
        (b'"\xff"', "invalid_utf8"),
        (b"[" * 100 + b"]" * 100, "json_too_deep"),
    ],
)
def test_a_line_that_is_no_json_is_told_beside_those_that_are(tmp_path: Path, line: bytes, code: str) -> None:
    (tmp_path / "r").write_bytes(b'{"request":1}\n' + line)

    first, second = read_records(str(tmp_path / "r"))

    assert ({"request": 1}, None) == (first.record, first.error)
    assert second.error is not None
    assert code == second.error.code


@pytest.mark.parametrize("text", ["", " \n\n"])
def test_a_file_without_records_is_unusable(tmp_path: Path, text: str) -> None:
    (tmp_path / "r").write_text(text)

    with pytest.raises(Unusable, match="holds no record"):
        read_records(str(tmp_path / "r"))


def test_a_file_that_is_not_there_is_unusable(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="No such file or directory"):
        read_records(str(tmp_path / "r"))


def test_records_may_come_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"request":1}\n{"request":2}\n')))

    assert [1, 2] == [line.record["request"] for line in read_records("-")]
