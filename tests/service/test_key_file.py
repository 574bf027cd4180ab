"""A file of keys that changes while it is used."""

import logging
import os
from pathlib import Path

import pytest

from service.key_file import KeyFile
from service.keys import KeysError
from service.logs import event_of, fields_of
from tests.service.test_keys import id_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text("alice\nbob\n")
    return path


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "service.key_file")
    return caplog


def write(path: Path, content: str) -> None:
    """Another content under this name, as `mv` would put it there."""
    new = path.with_name("new")
    new.write_text(content)
    new.replace(path)


def known(file: KeyFile, *keys: str) -> list[bool]:
    return [file.id_of(key.encode()) is not None for key in keys]


def look_twice(file: KeyFile) -> bool:
    """Whether the keys changed, once the file has stayed the same from one look to the next."""
    return any([file.look(), file.look()])


def test_a_file_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(KeysError):
        KeyFile(tmp_path / "nowhere")


def test_a_file_that_stays_is_not_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = KeyFile(path)
    monkeypatch.setattr("service.key_file.read_keys", lambda path: pytest.fail("read again"))

    assert [False] * 3 == [file.look() for _ in range(3)]


def test_keys_are_added_and_taken_away(path: Path) -> None:
    file = KeyFile(path)
    write(path, "bob\ncarol\n")

    assert look_twice(file)
    assert [False, True, True] == known(file, "alice", "bob", "carol")
    assert {id_of("alice")} == file.gone


def test_a_change_in_place_is_seen_too(path: Path) -> None:
    file = KeyFile(path)
    path.write_text("alice\nbill\n")

    assert look_twice(file)
    assert [True, False, True] == known(file, "alice", "bob", "bill")


def test_a_link_that_is_turned_elsewhere_is_followed(tmp_path: Path) -> None:
    """As Kubernetes replaces a secret: a link to a folder is renamed over another one."""
    for folder, key in (("first", "alice"), ("second", "bobby")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "keys").write_text(key)
    times = os.stat(tmp_path / "first" / "keys")
    os.utime(tmp_path / "second" / "keys", ns=(times.st_atime_ns, times.st_mtime_ns))
    (tmp_path / "..data").symlink_to("first")
    (tmp_path / "keys").symlink_to("..data/keys")
    file = KeyFile(tmp_path / "keys")
    (tmp_path / "..tmp").symlink_to("second")
    (tmp_path / "..tmp").replace(tmp_path / "..data")

    assert look_twice(file)
    assert [False, True] == known(file, "alice", "bobby")


def test_a_file_that_is_being_written_is_not_read_in_between(path: Path) -> None:
    file = KeyFile(path)
    changed = []
    for content in ("al", "alice\nca", "alice\ncarol\n"):
        write(path, content)
        changed.append(file.look())
    changed.append(file.look())

    assert [False, False, False, True] == changed
    assert [True, False, True] == known(file, "alice", "al", "carol")


@pytest.mark.parametrize("content", ["", "# none\n", "two words\n", "a\na\n"])
def test_a_broken_file_keeps_the_old_keys_and_is_told_of_once(
    path: Path, content: str, log: pytest.LogCaptureFixture
) -> None:
    file = KeyFile(path)
    write(path, content)

    assert [False] * 4 == [file.look() for _ in range(4)]
    assert [True, True] == known(file, "alice", "bob")
    assert [("keys_refused", "ERROR")] == [(event_of(record), record.levelname) for record in log.records]


def test_a_file_that_is_gone_keeps_the_old_keys_until_it_is_back(path: Path, log: pytest.LogCaptureFixture) -> None:
    file = KeyFile(path)
    path.unlink()
    assert not look_twice(file)
    assert [True] == known(file, "alice")

    path.write_text("carol")

    assert look_twice(file)
    assert [False, True] == known(file, "alice", "carol")
    assert ["keys_refused", "keys_changed"] == [event_of(record) for record in log.records]


def test_a_file_that_may_be_read_again_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions change neither size nor time of modification."""
    file = KeyFile(path)
    write(path, "carol")
    with monkeypatch.context() as closed:

        def refuse(path: Path) -> None:
            raise KeysError("cannot be read")

        closed.setattr("service.key_file.read_keys", refuse)
        look_twice(file)
    path.chmod(0o600)

    assert look_twice(file)
    assert [True] == known(file, "carol")


def test_a_key_that_comes_back_is_not_gone(path: Path) -> None:
    file = KeyFile(path)
    for content in ("bob", "alice\nbob"):
        write(path, content)
        look_twice(file)

    assert frozenset() == file.gone


def test_a_change_of_comments_changes_no_keys(path: Path, log: pytest.LogCaptureFixture) -> None:
    file = KeyFile(path)
    write(path, "# ours\nalice\nbob\n")

    assert not look_twice(file)
    assert [] == log.records


def test_what_changed_is_told_by_ids_alone(path: Path, log: pytest.LogCaptureFixture) -> None:
    file = KeyFile(path)
    write(path, "bob\ncarol\n")
    look_twice(file)

    (record,) = log.records
    assert {"keys": 2, "added": [id_of("carol")], "removed": [id_of("alice")]} == fields_of(record)


def test_only_digests_are_kept_of_a_new_file_too(path: Path) -> None:
    file = KeyFile(path)
    write(path, "canary-51c9e0")
    look_twice(file)

    assert "canary" not in f"{vars(file)} {vars(file._keys)}"
