"""What `tane models` lists: pulled, absent, partial and damaged models, told apart without loading any."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from model.loading.at_hand import ModelAtHand, models_at_hand
from model.loading.hf_pull import pull_from_hub
from model.loading.hf_reference import HubAccess, HubReference
from model.loading.hub import partial_path, published_path
from model.loading.safetensors import Block, write_safetensors
from tests.compressed import grids_for, tiny_source, write_artefact
from tests.fake_hub import COMMIT, FakeHub, running
from tests.tiny_model import write_tiny_gguf

REPO = HubReference("ORG", "REPO")
GGUF = HubReference("ORG", "REPO", "tiny.gguf")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("files")
    blocks = {
        "a": Block("F32", (2, 3), lambda: np.zeros(24, np.uint8)),
        "b": Block("BF16", (100,), lambda: np.zeros(200, np.uint8)),
    }
    write_safetensors(folder / "model.safetensors", blocks)
    write_tiny_gguf(folder / "tiny.gguf", format="Q4_1")
    return {
        "config.json": b'{"model_type": "qwen3"}',
        **{name: (folder / name).read_bytes() for name in ("model.safetensors", "tiny.gguf")},
    }


@pytest.fixture
def hub(files: dict[str, bytes]) -> Iterator[FakeHub]:
    with running(FakeHub(dict(files))) as hub:
        yield hub


class Scene:
    """A cache folder and a folder of compressed models."""

    def __init__(self, root: Path) -> None:
        self.cache, self.here = root / "cache", root / "here"
        self.cache.mkdir()
        self.here.mkdir()

    def pull(self, hub: FakeHub, reference: HubReference) -> Path:
        return pull_from_hub(reference, HubAccess(hub.endpoint), lambda done, total: None, folder=self.cache)

    def listed(self, *, verify: bool = False) -> dict[str, ModelAtHand]:
        return {model.name: model for model in models_at_hand(self.cache, self.here, verify=verify)}

    def compress(self) -> Path:
        source = tiny_source(self.here)
        return write_artefact(self.here / "small", source, grids_for(source, bits=4, group=32))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def put_default(scene: Scene, size: int) -> Path:
    """A file of that size in the default model's place, which takes no room on the disk."""
    path = published_path(scene.cache)
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_models_of_the_catalogue_are_listed_before_they_are_pulled(scene: Scene) -> None:
    listed = scene.listed()

    assert ["smollm2-135m-instruct", "gemma-3-270m"] == list(listed)
    assert {("absent", "GGUF Q4_1"), ("absent", "GGUF Q4_K_M")} == {
        (each.state, each.format) for each in listed.values()
    }


def test_a_file_of_the_full_size_is_ready(scene: Scene) -> None:
    put_default(scene, 98_362_432)

    assert "ready" == scene.listed()["smollm2-135m-instruct"].state


def test_a_file_of_another_size_is_damaged(scene: Scene) -> None:
    put_default(scene, 7)

    found = scene.listed()["smollm2-135m-instruct"]
    assert ("damaged", 7) == (found.state, found.bytes)
    assert found.problem is not None
    assert "pull it again" in found.problem


def test_a_file_with_another_hash_is_damaged_when_hashes_are_compared(scene: Scene) -> None:
    put_default(scene, 98_362_432)

    assert "damaged" == scene.listed(verify=True)["smollm2-135m-instruct"].state


def test_parts_that_wait_for_others_are_partial(scene: Scene) -> None:
    partial_path(published_path(scene.cache)).write_bytes(b"begun")

    found = scene.listed()["smollm2-135m-instruct"]
    assert ("partial", 5) == (found.state, found.bytes)


def test_a_folder_of_the_hub_tells_its_architecture_size_and_commit(scene: Scene, hub: FakeHub) -> None:
    path = scene.pull(hub, REPO)

    assert (
        ModelAtHand(
            name="hf:ORG/REPO",
            kind="hub",
            state="ready",
            path=path,
            bytes=len(hub.files["config.json"]) + len(hub.files["model.safetensors"]),
            architecture="qwen3",
            parameters=106,
            format="safetensors BF16",
            license="apache-2.0",
            commit=COMMIT,
        )
        == scene.listed()["hf:ORG/REPO"]
    )


def test_a_gguf_file_of_the_hub_tells_what_its_header_says(scene: Scene, hub: FakeHub) -> None:
    path = scene.pull(hub, GGUF)

    found = scene.listed()["hf:ORG/REPO/tiny.gguf"]
    assert ("ready", path, "llama", "GGUF Q4_1") == (found.state, found.path, found.architecture, found.format)


@pytest.mark.parametrize("reference", [REPO, GGUF], ids=["folder", "file"])
def test_a_pull_that_was_interrupted_is_partial(scene: Scene, reference: HubReference) -> None:
    place = reference.place(scene.cache)
    partial = place.with_name(place.name + "+partial")
    partial.mkdir(parents=True)
    (partial / "0.part").write_bytes(b"begun")

    found = scene.listed()[reference.name]
    assert ("partial", 5) == (found.state, found.bytes)


def test_a_file_that_was_cut_is_damaged(scene: Scene, hub: FakeHub) -> None:
    (scene.pull(hub, REPO) / "model.safetensors").write_bytes(b"cut")

    found = scene.listed()["hf:ORG/REPO"]
    assert ("damaged", "model.safetensors is missing or not as it was pulled; pull it again") == (
        found.state,
        found.problem,
    )


def test_a_file_that_was_changed_is_damaged_when_hashes_are_compared(scene: Scene, hub: FakeHub) -> None:
    (scene.pull(hub, REPO) / "config.json").write_bytes(hub.files["config.json"].replace(b"3", b"2"))

    assert "ready" == scene.listed()["hf:ORG/REPO"].state
    assert "damaged" == scene.listed(verify=True)["hf:ORG/REPO"].state


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"format": "tane-pulled", "version": 2}', "[" * 100_000])
def test_a_record_that_cannot_be_read_is_damaged(scene: Scene, hub: FakeHub, record: str) -> None:
    (scene.pull(hub, REPO) / "pulled.json").write_text(record)

    assert "damaged" == scene.listed()["hf:ORG/REPO"].state


@pytest.mark.parametrize(
    "changed",
    [
        {"files": []},
        {"files": [{"name": 3, "bytes": 3, "hash": "", "algorithm": "sha256"}]},
        {"files": [{"name": "config.json", "bytes": "3", "hash": "", "algorithm": "sha256"}]},
        {"files": [{"name": "a" * 300, "bytes": 3, "hash": "", "algorithm": "sha256"}]},
        {"license": {}},
        {"commit": 3},
    ],
)
def test_a_record_that_says_nonsense_is_damaged(scene: Scene, hub: FakeHub, changed: dict[str, object]) -> None:
    path = scene.pull(hub, REPO) / "pulled.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    (path.parent / "config.json").unlink()

    assert "damaged" == scene.listed()["hf:ORG/REPO"].state


def test_weights_that_are_none_are_damaged(scene: Scene, hub: FakeHub) -> None:
    hub.files["model.safetensors"] = b"no weights at all"
    scene.pull(hub, REPO)

    found = scene.listed()["hf:ORG/REPO"]
    assert "damaged" == found.state
    assert "model.safetensors" in (found.problem or "")


def test_a_folder_that_nothing_was_pulled_into_is_not_listed(scene: Scene) -> None:
    (scene.cache / "hf" / "main" / "..hidden" / "x").mkdir(parents=True)

    assert 2 == len(scene.listed())


def test_a_compressed_model_tells_its_recipe(scene: Scene) -> None:
    folder = scene.compress()

    recipe = json.loads((folder / "tane.json").read_text())["recipe"].get("name")
    found = scene.listed()[str(folder)]
    assert ("ready", "compressed", "llama", recipe) == (found.state, found.kind, found.architecture, found.format)
    assert sum((folder / name).stat().st_size for name in ("model.safetensors", "vocabulary.gguf")) == found.bytes


def test_a_compressed_model_without_its_weights_is_damaged(scene: Scene) -> None:
    folder = scene.compress()
    (folder / "model.safetensors").unlink()

    assert ("damaged", "model.safetensors is missing or was changed") == (
        scene.listed()[str(folder)].state,
        scene.listed()[str(folder)].problem,
    )


def test_a_changed_weight_is_found_when_hashes_are_compared(scene: Scene) -> None:
    weights = scene.compress() / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)

    assert "ready" == scene.listed()[str(weights.parent)].state
    assert "damaged" == scene.listed(verify=True)[str(weights.parent)].state


@pytest.mark.parametrize("field", ["recipe", "config", "files", "tensors"])
def test_a_description_that_says_nonsense_is_damaged(scene: Scene, field: str) -> None:
    path = scene.compress() / "tane.json"
    described = json.loads(path.read_text())
    described[field] = {"x": 3} if field != "recipe" else 3
    path.write_text(json.dumps(described))

    assert "damaged" == scene.listed()[str(path.parent)].state


def test_a_description_with_a_name_that_no_file_can_have_is_damaged(scene: Scene) -> None:
    path = scene.compress() / "tane.json"
    described = json.loads(path.read_text())
    described["files"] = {"a" * 300: {"bytes": 3, "sha256": ""}}
    path.write_text(json.dumps(described))

    assert "damaged" == scene.listed()[str(path.parent)].state


def test_a_compression_that_was_interrupted_is_partial(scene: Scene) -> None:
    partial = scene.here / "small.partial"
    partial.mkdir()
    (partial / "plan.json").write_text("{}")

    found = scene.listed()[str(scene.here / "small")]
    assert ("partial", partial, 2) == (found.state, found.path, found.bytes)
