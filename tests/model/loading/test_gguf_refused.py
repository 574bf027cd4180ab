"""What is no model file, or one whose tensors cannot be what they are said to be, is refused by name."""

import os
import struct
from pathlib import Path

import gguf
import pytest

from model.loading.checkpoint import ModelFileError
from model.loading.gguf import load_gguf
from tests.block_formats import SCALES
from tests.model.loading.gguf_bytes import Tensor, valid_draft
from tests.tiny_model import EVERY_FORMAT, FOR_EVERY_FORMAT, FormatName, TinyShape, write_tiny_gguf


@pytest.mark.parametrize("damage", ["missing", "folder", "pipe", "empty", "null byte"])
def test_what_is_no_model_file_is_refused(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    if damage == "folder":
        path.mkdir()
    elif damage == "pipe":
        os.mkfifo(path)
    elif damage == "empty":
        path.touch()
    elif damage == "null byte":
        path = Path("m\0.gguf")

    with pytest.raises(ModelFileError):
        load_gguf(path)


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (5, "Q4_3, ggml itself has dropped it: convert the model again"),
        (15, "Q8_K, ggml keeps activations in it, no weights: convert the model again"),
        (16, "IQ2_XXS, its table of codes would have to be built, and what unpacks them"),
        (23, "IQ4_XS, what unpacks its blocks would have to be built"),
        (26, "I32, it holds integers, which are no weights"),
        (28, "F64, what rounds its numbers to float32 would have to be built"),
    ],
)
def test_a_tensor_in_a_format_that_is_not_supported_is_refused_by_name(tmp_path: Path, number: int, says: str) -> None:
    draft = valid_draft()
    draft.tensors[0].type = number

    with pytest.raises(ModelFileError, match=rf"'token_embd.weight' is stored as {says}; supported are F32, F16, Q4_0"):
        load_gguf(draft.write(tmp_path / "m.gguf"))


def test_a_tensor_more_is_refused_by_name(tmp_path: Path) -> None:
    draft = valid_draft()
    draft.tensors.append(Tensor("blk.0.attn_q.bias", (4,), b"\0" * 16))

    with pytest.raises(ModelFileError, match=r"'blk.0.attn_q.bias' is not implemented"):
        load_gguf(draft.write(tmp_path / "m.gguf"))


def test_a_tensor_of_a_layer_past_the_last_is_refused_by_name(tmp_path: Path) -> None:
    draft = valid_draft()
    draft.tensors.append(Tensor("blk.1.attn_norm.weight", (4,), b"\0" * 16))

    with pytest.raises(ModelFileError, match=r"'blk.1.attn_norm.weight' is not implemented"):
        load_gguf(draft.write(tmp_path / "m.gguf"))


def test_a_tensor_less_is_refused_by_name(tmp_path: Path) -> None:
    draft = valid_draft()
    draft.tensors.remove(draft.tensor("blk.0.ffn_up.weight"))

    with pytest.raises(ModelFileError, match=r"tensor blk.0.ffn_up.weight is missing"):
        load_gguf(draft.write(tmp_path / "m.gguf"))


def test_a_tensor_of_another_shape_is_refused_by_name(tmp_path: Path) -> None:
    draft = valid_draft()
    draft.tensor("blk.0.ffn_up.weight").dimensions = (6, 4)

    with pytest.raises(ModelFileError, match=r"blk.0.ffn_up.weight has shape \(4, 6\); expected is \(6, 4\)"):
        load_gguf(draft.write(tmp_path / "m.gguf"))


def test_a_vector_in_blocks_is_refused(tmp_path: Path) -> None:
    shape = TinyShape(layers=1)
    path = write_tiny_gguf(tmp_path / "m.gguf", shape=shape)
    data = path.read_bytes()
    place = data.index(b"output_norm.weight") + len(b"output_norm.weight") + 4 + 8
    path.write_bytes(data[:place] + (8).to_bytes(4, "little") + data[place + 4 :])

    with pytest.raises(ModelFileError, match=r"output_norm.weight is a vector stored as Q8_0"):
        load_gguf(path)


@pytest.mark.parametrize("format", EVERY_FORMAT)
@pytest.mark.parametrize("kind", ["infinity", "NaN"])
def test_a_weight_that_is_not_finite_is_refused_in_every_format(format: FormatName, kind: str, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", shape=FOR_EVERY_FORMAT, format=format)
    tensor = load_gguf(path).tensors["layers.0.down"]
    block = tensor.rows()[-1][-tensor.format.block_bytes :].tobytes()
    value = float("inf") if kind == "infinity" else float("nan")
    wrong = {"F32": struct.pack("<f", value), "BF16": struct.pack("<f", value)[2:]}.get(
        format, struct.pack("<e", value)
    )
    data = path.read_bytes()
    place = data.rindex(block) + SCALES.get(format, (0,))[-1]
    path.write_bytes(data[:place] + wrong + data[place + len(wrong) :])

    with pytest.raises(ModelFileError, match=r"tensor blk\.0\.ffn_down\.weight holds a NaN or an infinity"):
        load_gguf(path)


@pytest.mark.parametrize("format", SCALES)
def test_a_file_that_ends_within_a_block_is_refused(format: FormatName, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", shape=FOR_EVERY_FORMAT, format=format)
    end = path.read_bytes().rindex(load_gguf(path).tensors["layers.0.down"].rows()[-1].tobytes())
    path.write_bytes(path.read_bytes()[: end + 1])

    with pytest.raises(ModelFileError, match=r"ends past the end of the file"):
        load_gguf(path)


@pytest.mark.parametrize("format", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_rows_that_are_no_whole_blocks_of_256_are_refused(format: str, tmp_path: Path) -> None:
    draft = valid_draft()
    draft.tensors[0].type = int(gguf.GGMLQuantizationType[format])

    with pytest.raises(ModelFileError, match=rf"'token_embd.weight' has rows of 4, which {format} does not divide"):
        load_gguf(draft.write(tmp_path / "m.gguf"))
