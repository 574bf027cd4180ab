"""However a valid file is damaged, the reader refuses it or believes only what still holds."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.loading.checkpoint import Checkpoint, ModelFileError
from model.loading.gguf import load_gguf
from tests.model.loading.gguf_bytes import valid_draft

VALID = valid_draft().build()
TELLING_NUMBERS = (0, 1, 2, 31, 32, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1)

positions = st.integers(0, len(VALID))
flips = st.tuples(st.just("flip"), positions, st.integers(0, 7))
cuts = st.tuples(st.just("cut"), positions, st.integers(1, 64))
insertions = st.tuples(st.just("insert"), positions, st.binary(min_size=1, max_size=64))
numbers = st.tuples(st.just("number"), positions, st.sampled_from(TELLING_NUMBERS), st.sampled_from((1, 4, 8)))
truncations = st.tuples(st.just("truncate"), positions)


def damaged(data: bytes, edit: tuple[object, ...]) -> bytes:
    match edit:
        case "flip", int(place), int(bit) if place < len(data):
            return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
        case "cut", int(place), int(count):
            return data[:place] + data[place + count :]
        case "insert", int(place), bytes(more):
            return data[:place] + more + data[place:]
        case "number", int(place), int(number), int(size):
            written = (number & (1 << 8 * size) - 1).to_bytes(size, "little")
            return data[:place] + written + data[place + size :]
        case "truncate", int(place):
            return data[:place]
    return data


@pytest.fixture(scope="module")
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "model.gguf"


def check_believed(checkpoint: Checkpoint) -> None:
    """What an accepted file must still keep, whatever was changed in it."""
    config = checkpoint.config
    assert config.vocabulary_size == len(checkpoint.vocabulary.tokens)
    assert 0 == config.head_count % config.kv_head_count
    assert (config.vocabulary_size, config.width) == checkpoint.tensors["embedding"].shape
    for tensor in checkpoint.tensors.values():
        weights = tensor.dequantised()
        assert tensor.shape == weights.shape
        assert np.isfinite(weights).all()


def check_survives(path: Path, edits: list[tuple[object, ...]]) -> None:
    data = VALID
    for edit in edits:
        data = damaged(data, edit)
    path.write_bytes(data)
    with contextlib.suppress(ModelFileError):
        check_believed(load_gguf(path))


edits = st.lists(st.one_of(flips, cuts, insertions, numbers, truncations), min_size=1, max_size=4)


@settings(max_examples=100, deadline=1000)
@given(edits)
def test_a_damaged_file_is_refused_by_its_error_or_is_still_a_model(
    path: Path, edits: list[tuple[object, ...]]
) -> None:
    check_survives(path, edits)


@pytest.mark.slow
@settings(max_examples=2000, deadline=1000)
@given(edits)
def test_many_damaged_files_are_refused_or_are_still_models(path: Path, edits: list[tuple[object, ...]]) -> None:
    check_survives(path, edits)
