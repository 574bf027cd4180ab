"""A compressed model's folder that was damaged or made up is refused with its reason, whatever was done to it."""

import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.compression.stored import Weights
from model.loading.checkpoint import ModelFileError
from model.loading.model import load_model
from tests.compressed import grids_for, random_grid, random_sparse, tiny_source, write_artefact
from tests.model.loading.test_gguf_mutations import check_believed, damaged
from tests.tiny_model import TinyShape, write_tiny_gguf

SHAPE = TinyShape(layers=1, width=32, heads=2, kv_heads=1, feed_forward=32)
FILES = ("tane.json", "model.safetensors", "vocabulary.gguf")
Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def valid() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        source = tiny_source(Path(name), shape=SHAPE)
        weights = grids_for(source, bits=3, zero=4, pruned=0.5)
        others: dict[str, Weights] = {
            "layers.0.up": random_sparse((32, 32)),
            "layers.0.down": random_grid((32, 32), bits=2),
        }
        yield write_artefact(Path(name) / "valid", source, {**weights, **others})


@pytest.fixture
def folder(valid: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(valid, tmp_path / "x"))


def change(folder: Path, edit: Callable[[Manifest], object]) -> None:
    manifest = json.loads((folder / "tane.json").read_text())
    edit(manifest)
    (folder / "tane.json").write_text(json.dumps(manifest))


def rehash(folder: Path) -> None:
    """Let `tane.json` name the files as they are."""

    def edit(manifest: Manifest) -> None:
        for name in FILES[1:]:
            manifest["files"][name]["sha256"] = hashlib.sha256((folder / name).read_bytes()).hexdigest()

    change(folder, edit)


def of(name: str, **changes: object) -> Callable[[Manifest], object]:
    return lambda manifest: manifest["tensors"][name].update(changes)


WRONG: dict[str, tuple[Callable[[Manifest], object], str]] = {
    "another format": (lambda m: m.update(format="x"), "not the description of a compressed model"),
    "a later version": (lambda m: m.update(version=2), "version '2' is not supported"),
    "a version of true": (lambda m: m.update(version=True), "version 'True' is not supported"),
    "a field more": (lambda m: m.update(more=1), "does not have exactly the fields"),
    "a field less": (lambda m: m.pop("recipe"), "does not have exactly the fields"),
    "a recipe that is text": (lambda m: m.update(recipe="x"), "recipe is not an object"),
    "no name": (lambda m: m.update(name=""), "name is not text of 1 to 256 bytes"),
    "no hash": (lambda m: m["files"].pop("model.safetensors"), r"names no hash of model\.safetensors"),
    "another hash": (lambda m: m["files"]["vocabulary.gguf"].update(sha256="0"), "its hash is not the one"),
    "a window more": (lambda m: m["config"].update(window={"width": 8}), "config.'window' is none that"),
    "another width": (lambda m: m["config"].update(width=64), "config.width is '64', and vocabulary.gguf says 32"),
    "a tensor less": (lambda m: m["tensors"].pop("embedding"), "tensor embedding is missing"),
    "a tensor more": (lambda m: m["tensors"].update(x={}), "tensor 'x' is not implemented"),
    "a tensor of text": (lambda m: m["tensors"].update(embedding=""), "is not described by an object"),
    "another shape": (of("layers.0.gate", shape=[1, 32]), r"layers\.0\.gate has shape"),
    "an unknown kind": (of("layers.0.gate", kind="x"), r"layers\.0\.gate is of kind 'x'"),
    "a kind that is a list": (of("layers.0.gate", kind=[]), r"layers\.0\.gate is of kind"),
    "a gain on a grid": (of("output_norm", kind="grid"), "output_norm is a gain vector of kind grid"),
    "no bits": (of("layers.0.gate", bits=0), "has bits '0'; allowed are 1 to 8"),
    "other bits": (of("layers.0.gate", bits=5), r"has layers\.0\.gate\.zeros of shape \(12,\)"),
    "other bits that offsets fit": (of("layers.0.down", bits=5), "is not what it says: 256 bytes for"),
    "other offsets": (of("layers.0.down", offsets="F32"), r"has layers\.0\.down\.offsets of type F16"),
    "offsets of text": (of("layers.0.gate", offsets="U8"), "has offsets of type 'U8'; allowed are F16 and F32"),
    "offsets of nothing": (of("layers.0.gate", offsets=None), "has offsets of type 'None'"),
    "bits of true": (of("layers.0.gate", bits=True), "has bits 'True'"),
    "another group": (of("layers.0.gate", group=16), r"has layers\.0\.gate\.scales of shape \(32, 1\)"),
    "a ragged group": (of("layers.0.gate", group=24), "has groups of 24, which do not divide 32 columns"),
    "another format of blocks": (of("embedding", format="Q4_0"), r"has embedding\.blocks of shape"),
    "an unknown format of blocks": (of("embedding", format="Q9"), "has blocks of 'Q9', which are not known"),
    "floats that are blocks": (of("embedding", kind="floats"), "has no entry embedding"),
    "sparse that is a grid": (of("layers.0.gate", kind="sparse"), r"has no entry layers\.0\.gate\.values"),
    "a grid that is sparse": (of("layers.0.up", kind="grid", bits=4, group=32), r"has no entry layers\.0\.up\.codes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_description_that_is_wrong_is_refused(folder: Path, name: str) -> None:
    edit, reason = WRONG[name]
    change(folder, edit)

    with pytest.raises(ModelFileError, match=reason):
        load_model(folder)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"format":1,"format":2}', b'{"name":"\\ud800"}', b'{"a":1e999}'],
)
def test_a_description_that_is_no_object_is_refused(folder: Path, text: bytes) -> None:
    (folder / "tane.json").write_bytes(text)

    with pytest.raises(ModelFileError, match=r"tane\.json: not "):
        load_model(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_missing_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()

    with pytest.raises(ModelFileError, match=rf"{name}: cannot be opened|neither {name} nor config\.json"):
        load_model(folder)


@pytest.mark.parametrize("name", FILES[1:])
def test_one_bit_that_changed_is_found(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)

    with pytest.raises(ModelFileError, match=f"{name}: "):
        load_model(folder)


def test_a_vocabulary_file_with_weights_is_refused(folder: Path) -> None:
    write_tiny_gguf(folder / "vocabulary.gguf", shape=SHAPE)

    with pytest.raises(ModelFileError, match="does not belong into a file without weights"):
        load_model(folder)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_scale_that_no_grid_has_is_refused(folder: Path, number: float) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    header_end = 8 + int.from_bytes(data[:8], "little")
    start = json.loads(data[8:header_end])["layers.0.gate.scales"]["data_offsets"][0] + header_end
    path.write_bytes(data[:start] + np.float16(number).tobytes() + data[start + 2 :])
    rehash(folder)

    with pytest.raises(ModelFileError, match=r"layers\.0\.gate is not what it says: scales must be"):
        load_model(folder)


edits = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), st.integers(0, 1 << 14), st.integers(0, 7)),
        st.tuples(st.just("cut"), st.integers(0, 1 << 14), st.integers(1, 64)),
        st.tuples(st.just("insert"), st.integers(0, 1 << 14), st.binary(min_size=1, max_size=64)),
        st.tuples(st.just("truncate"), st.integers(0, 1 << 14)),
    ),
    min_size=1,
    max_size=3,
)


def check_survives(valid: Path, name: str, changes: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as other:
        folder = Path(shutil.copytree(valid, Path(other) / "x"))
        data = (folder / name).read_bytes()
        for edit in changes:
            data = damaged(data, edit)
        (folder / name).write_bytes(data)
        with contextlib.suppress(ModelFileError):
            if name != "tane.json":
                rehash(folder)
            check_believed(load_model(folder))


@settings(max_examples=60)
@given(name=st.sampled_from(FILES), changes=edits)
def test_a_damaged_folder_is_refused_or_is_still_a_model(
    valid: Path, name: str, changes: list[tuple[object, ...]]
) -> None:
    check_survives(valid, name, changes)


@pytest.mark.slow
@settings(max_examples=2000)
@given(name=st.sampled_from(FILES), changes=edits)
def test_many_damaged_folders_are_refused_or_are_still_models(
    valid: Path, name: str, changes: list[tuple[object, ...]]
) -> None:
    check_survives(valid, name, changes)
