"""Safetensors files: what other programs write and read, and everything that is wrong is refused with its reason."""

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from model.loading.checkpoint import ModelFileError
from model.loading.safetensors import Block, read_safetensors, write_safetensors
from tests.model.loading.test_gguf_mutations import damaged

TENSORS: dict[str, NDArray[Any]] = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.arange(5, dtype=np.uint8),
    "c": np.array([[1.5], [-2.0]], dtype=np.float16),
    "empty": np.empty((0, 4), dtype=np.float32),
}
DTYPES = {"float32": "F32", "uint8": "U8", "float16": "F16"}


def blocks() -> dict[str, Block]:
    def block(numbers: NDArray[Any]) -> Block:
        return Block(DTYPES[str(numbers.dtype)], numbers.shape, lambda: numbers.reshape(-1).view(np.uint8))

    return {name: block(numbers) for name, numbers in TENSORS.items()}


def raw(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: Any = "U8", shape: Any = (4,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_another_program_reads_what_is_written(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x", blocks())

    found = load_file(tmp_path / "x")

    assert {name: numbers.tolist() for name, numbers in TENSORS.items()} == {
        name: found[name].tolist() for name in TENSORS
    }


def test_what_another_program_writes_is_read(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "x", metadata={"k": "v"})

    found = read_safetensors(tmp_path / "x")

    assert {"k": "v"} == found.metadata
    assert {name: numbers.tobytes() for name, numbers in TENSORS.items()} == {
        name: found.read(name).tobytes() for name in TENSORS
    }
    assert {name: numbers.shape for name, numbers in TENSORS.items()} == {
        name: found.entries[name].shape for name in TENSORS
    }


def test_metadata_comes_back(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x", blocks(), {"recipe": "none"})

    assert {"recipe": "none"} == read_safetensors(tmp_path / "x").metadata


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"mine")

    with pytest.raises(FileExistsError):
        write_safetensors(tmp_path / "x", blocks())


def test_a_tensor_of_another_size_than_stated_is_not_written(tmp_path: Path) -> None:
    wrong = Block("F32", (3,), lambda: np.zeros(8, dtype=np.uint8))

    with pytest.raises(ValueError, match="x has 8 bytes, not 12"):
        write_safetensors(tmp_path / "x", {"x": wrong})


DATA = b"\0" * 4
HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "needs 8 bytes"),
    "a length past the end": ((1 << 62).to_bytes(8, "little") + b"{}", "claims 4611686018427387904 bytes"),
    "no JSON": (raw(b"{]"), "not valid JSON"),
    "an array": (raw(b"[]"), "does not begin with"),
    "no UTF-8": (raw(b'{"\xff": 1}'), "not valid JSON"),
    "deep nesting": (raw(b'{"a":' + b"[" * 200_000), "not valid JSON"),
    "a number of too many digits": (raw(b'{"a":' + b"1" * 5000 + b"}"), "not valid JSON"),
    "an infinite number": (raw(b'{"a":1e999}'), "not valid JSON"),
    "half a character": (raw(rb'{"a":"\ud800"}'), "not valid JSON"),
    "not a number": (raw(b'{"a":NaN}'), "not valid JSON"),
    "a name twice": (raw(b'{"a":1,"a":2}'), "occurs twice"),
    "metadata of numbers": (raw({"__metadata__": {"a": 1}}), "not an object of strings"),
    "an empty name": (raw({"": entry()}, DATA), "has a name of other than 1 to 256 bytes"),
    "a long name": (raw({"n" * 257: entry()}, DATA), "has a name of other than 1 to 256 bytes"),
    "no object": (raw({"a": 3}, DATA), "does not have exactly the fields"),
    "a field more": (raw({"a": {**entry(), "x": 1}}, DATA), "does not have exactly the fields"),
    "an unknown type": (raw({"a": entry(dtype="F8")}, DATA), "has type 'F8'"),
    "a type that is a list": (raw({"a": entry(dtype=[])}, DATA), r"has type '\[\]'"),
    "a negative dimension": (raw({"a": entry(shape=[-4])}, DATA), "the shape of tensor 'a' are not whole"),
    "a dimension of true": (raw({"a": entry(shape=[True])}, DATA), "the shape of tensor 'a' are not whole"),
    "a fractional dimension": (raw({"a": entry(shape=[4.0])}, DATA), "the shape of tensor 'a' are not whole"),
    "many dimensions": (raw({"a": entry(shape=[1] * 9)}, DATA), "has 9 dimensions"),
    "a product that wraps": (raw({"a": entry(shape=[1 << 32, 1 << 32])}, DATA), "needs 18446744073709551616 bytes"),
    "one offset": (raw({"a": entry(offsets=[0])}, DATA), "has 1 offsets, not two"),
    "offsets past the end": (raw({"a": entry(offsets=[0, 1 << 40])}, DATA), "the offsets of tensor 'a' are not whole"),
    "offsets that go back": (raw({"a": entry(offsets=[4, 0])}, DATA), "offsets enclose -4"),
    "a gap": (raw({"a": entry(shape=[3], offsets=[1, 4])}, DATA), "leaves a gap"),
    "an overlap": (raw({"a": entry(), "b": entry(shape=[2], offsets=[2, 4])}, DATA), "overlaps"),
    "bytes of no tensor": (raw({"a": entry()}, DATA + b"!"), "the tensors end at byte"),
    "too few bytes": (raw({"a": entry()}, DATA[:3]), "the tensors end at byte"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_wrong_is_refused_with_its_reason(tmp_path: Path, name: str) -> None:
    data, reason = HOSTILE[name]
    (tmp_path / "x").write_bytes(data)

    with pytest.raises(ModelFileError, match=reason) as error:
        read_safetensors(tmp_path / "x")

    assert str(error.value).startswith(str(tmp_path / "x"))


@pytest.fixture(scope="module")
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "x"


@pytest.fixture(scope="module")
def valid(path: Path) -> bytes:
    path.unlink(missing_ok=True)
    write_safetensors(path, blocks(), {"k": "v"})
    return path.read_bytes()


places = st.integers(0, 600)
edits = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), places, st.integers(0, 7)),
        st.tuples(st.just("cut"), places, st.integers(1, 64)),
        st.tuples(st.just("insert"), places, st.binary(min_size=1, max_size=16)),
        st.tuples(st.just("number"), places, st.sampled_from((0, 1, 0x39, (1 << 64) - 1)), st.sampled_from((1, 8))),
        st.tuples(st.just("truncate"), places),
    ),
    min_size=1,
    max_size=4,
)


def check_survives(path: Path, data: bytes, changes: list[tuple[object, ...]]) -> None:
    for change in changes:
        data = damaged(data, change)
    path.write_bytes(data)
    with contextlib.suppress(ModelFileError):
        found = read_safetensors(path)
        sizes = [(found.read(name).size, each.byte_count) for name, each in found.entries.items()]
        assert [] == [pair for pair in sizes if pair[0] != pair[1]]


@settings(max_examples=150)
@given(changes=edits)
def test_a_damaged_file_is_refused_or_holds_what_it_says(
    path: Path, valid: bytes, changes: list[tuple[object, ...]]
) -> None:
    check_survives(path, valid, changes)


@pytest.mark.slow
@settings(max_examples=5000)
@given(changes=edits)
def test_many_damaged_files_are_refused_or_hold_what_they_say(
    path: Path, valid: bytes, changes: list[tuple[object, ...]]
) -> None:
    check_survives(path, valid, changes)
