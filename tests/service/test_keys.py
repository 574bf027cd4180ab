"""Which keys a file holds, and that it gives none of them away."""

import hmac
from hashlib import sha256
from pathlib import Path

import pytest

from service.keys import Keys, KeysError, read_keys

SECRET = "canary-51c9e0"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def id_of(key: str) -> str:
    return sha256(key.encode()).hexdigest()[:12]


def test_a_key_is_named_by_the_beginning_of_its_digest() -> None:
    keys = Keys([b"one", b"two"])

    assert [id_of("one"), id_of("two"), None] == [keys.id_of(b"one"), keys.id_of(b"two"), keys.id_of(b"three")]


def test_no_key_is_known_by_a_part_of_it() -> None:
    keys = Keys([b"secret"])

    assert [None] * 4 == [keys.id_of(each) for each in (b"", b"secre", b"secret ", b"Secret")]


def test_blank_lines_comments_and_spaces_around_are_skipped(file: Path) -> None:
    file.write_bytes(b"# ours\n\n  one\t\r\n   # theirs\ntwo")

    keys = read_keys(file)

    assert (2, id_of("one"), id_of("two")) == (len(keys), keys.id_of(b"one"), keys.id_of(b"two"))


def test_only_digests_are_kept(file: Path) -> None:
    file.write_text(SECRET)

    keys = read_keys(file)

    assert {"_digests": (sha256(SECRET.encode()).digest(),)} == vars(keys)


def test_every_digest_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first key of three takes as many comparisons as the last, and as one that is not known."""
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def counted(known: bytes, given: bytes) -> bool:
        compared.append(known)
        return compare(known, given)

    keys = Keys([b"one", b"two", b"three"])
    monkeypatch.setattr(hmac, "compare_digest", counted)
    for key in (b"one", b"three", b"four"):
        keys.id_of(key)

    assert 9 == len(compared)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "holds none"),
        (b"# nothing\n\n", "holds none"),
        (f"fine\n{SECRET} two\n".encode(), ":2: a key is 1 to 512 printable ASCII characters without spaces"),
        (f"{SECRET}\u00e9".encode(), ":1: a key is 1 to 512"),
        (b"\xef\xbb\xbffine", ":1: a key is 1 to 512"),
        (SECRET.encode() * 40, ":1: a key is 1 to 512"),
        (f"{SECRET}\nother\n{SECRET}".encode(), ":3: the key of line 1 again"),
        (b"a\n" * (1 << 20), "is larger than 1048576 bytes"),
    ],
    ids=range(8),
)
def test_a_file_that_cannot_be_meant_is_refused_without_showing_a_key(file: Path, content: bytes, problem: str) -> None:
    file.write_bytes(content)

    with pytest.raises(KeysError) as refused:
        read_keys(file)

    assert problem in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_file_that_cannot_be_read_is_named(file: Path) -> None:
    with pytest.raises(KeysError, match=f"the file of keys {file} cannot be read: No such file"):
        read_keys(file)
