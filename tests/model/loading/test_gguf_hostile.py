"""Files made to mislead are refused: at once, in little memory, with one line that names the reason."""

import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from model.loading.checkpoint import ModelFileError
from model.loading.gguf import load_gguf
from tests.model.loading import gguf_bytes
from tests.model.loading.gguf_bytes import Draft, f32, text, u32, valid_draft

Damage = Callable[[Draft], object]
NAN, INFINITY = struct.pack("<f", float("nan")), struct.pack("<f", float("inf"))
CASES: dict[str, tuple[str, Damage]] = {}
"""By name: what the refusal says, and what is done to a valid file."""


def case(says: str) -> Callable[[Damage], Damage]:
    def register(damage: Damage) -> Damage:
        CASES[damage.__name__] = (says, damage)
        return damage

    return register


@case("not a GGUF file")
def header_bad_magic(draft: Draft) -> None:
    draft.magic = b"FUGG"


@case("version 0 is not supported")
def header_version_zero(draft: Draft) -> None:
    draft.version = 0


@case("version 1 is not supported")
def header_version_one(draft: Draft) -> None:
    draft.version = 1


@case("version 4 is not supported")
def header_version_of_the_future(draft: Draft) -> None:
    draft.version = 4


@case("big-endian")
def header_of_the_other_byte_order(draft: Draft) -> None:
    draft.version = 3 << 24


@case("claims 18446744073709551615 tensors")
def header_bad_tensor_count(draft: Draft) -> None:
    draft.tensor_count = (1 << 64) - 1


@case("claims 18446744073709551615 keys")
def header_bad_key_count(draft: Draft) -> None:
    draft.key_count = (1 << 64) - 1


@case("a key is 9223372036854775808 bytes long")
def key_of_bad_size(draft: Draft) -> None:
    draft.raw_key = struct.pack("<Q", 1 << 63)


@case("a key is empty")
def key_that_is_empty(draft: Draft) -> None:
    draft.keys.append(("", u32(1)))


@case("has the unknown type 250")
def key_of_bad_type(draft: Draft) -> None:
    draft.set("general.file_type", struct.pack("<II", 250, 1))


@case("key 'llama.block_count' occurs twice")
def key_that_occurs_twice(draft: Draft) -> None:
    draft.keys.append(("llama.block_count", u32(1)))


@case("general.alignment is 13")
def key_with_bad_alignment(draft: Draft) -> None:
    draft.set("general.alignment", u32(13))


@case("general.alignment is not a 32-bit unsigned integer")
def key_with_alignment_of_the_wrong_type(draft: Draft) -> None:
    draft.set("general.alignment", struct.pack("<IQ", gguf_bytes.U64, 32))


@case("'huge' is 9223372036854775808 bytes long")
def value_of_huge_size(draft: Draft) -> None:
    draft.set("huge", struct.pack("<IQ", gguf_bytes.STRING, 1 << 63))


@case("a tensor name is 64 bytes long")
def tensor_name_too_long(draft: Draft) -> None:
    draft.tensors[1].name = "n" * 64


@case("has 4294967295 dimensions")
def tensor_of_bad_dimension_count(draft: Draft) -> None:
    draft.tensors[1].dimension_count = (1 << 32) - 1


@case("has 1000000 dimensions")
def tensor_of_a_million_dimensions(draft: Draft) -> None:
    draft.tensors[1].dimension_count = 1_000_000


@case("ends past the end of the file")
def tensor_whose_size_wraps_to_what_the_file_holds(draft: Draft) -> None:
    draft.tensors[1].dimensions = (20, 48448661, 49477, 384773)  # 2⁶⁴ + 4 weights


@case("has a dimension of 0")
def tensor_with_a_dimension_of_nothing_behind_others(draft: Draft) -> None:
    draft.tensors[1].dimensions = (4, 6, 0)


@case("has a dimension of 0")
def tensor_of_bad_shape(draft: Draft) -> None:
    draft.tensors[1].dimensions = (0,)


@case("has a dimension of 9223372036854775808")
def tensor_dimension_too_big(draft: Draft) -> None:
    draft.tensors[1].dimensions = (1 << 63,)


@case("ends past the end of the file")
def tensor_of_too_many_bytes(draft: Draft) -> None:
    draft.tensors[1].dimensions = (1 << 31, 1 << 31, 1 << 31, 1 << 31)


@case("is stored as type 250, which is unknown")
def tensor_of_bad_type(draft: Draft) -> None:
    draft.tensors[1].type = 250


@case("has offset 18446744073709551615, not a multiple of 32")
def tensor_of_bad_offset(draft: Draft) -> None:
    draft.tensors[1].offset = (1 << 64) - 1


@case("two tensors are named 'token_embd.weight'")
def tensor_name_that_occurs_twice(draft: Draft) -> None:
    draft.tensors[1].name = "token_embd.weight"


@case("general.alignment is 0")
def tensors_under_a_bad_alignment(draft: Draft) -> None:
    draft.set("general.alignment", u32(0))


@case("not a multiple of 128")
def tensors_laid_out_by_another_alignment(draft: Draft) -> None:
    draft.set("general.alignment", u32(128))


@case("ends past the end of the file")
def data_that_is_cut_short(draft: Draft) -> None:
    draft.missing_bytes = 1


@case("has offset 3, not a multiple of 32")
def data_that_is_misaligned(draft: Draft) -> None:
    draft.tensors[0].offset = 3


@case("ends past the end of the file")
def data_that_begins_by_another_alignment(draft: Draft) -> None:
    draft.set("general.alignment", u32(64))
    draft.layout_alignment, draft.start_alignment = 64, 1


@case("ends past the end of the file")
def data_of_a_size_that_wraps_to_nothing(draft: Draft) -> None:
    draft.tensors[1].dimensions = (1 << 31, 1 << 31, 1, 1)  # 2⁶⁴ bytes


@case("claims 100000 elements, more than the file can hold")
def array_longer_than_the_file(draft: Draft) -> None:
    draft.set("long", struct.pack("<IIQ", gguf_bytes.ARRAY, gguf_bytes.U32, 100_000))


@case("claims 9223372036854775808 elements, more than the file can hold")
def array_of_huge_length(draft: Draft) -> None:
    draft.set("long", struct.pack("<IIQ", gguf_bytes.ARRAY, gguf_bytes.STRING, 1 << 63))


@case("is an array of arrays")
def arrays_within_arrays(draft: Draft) -> None:
    level = struct.pack("<IQ", gguf_bytes.ARRAY, 1)
    draft.set("deep", struct.pack("<I", gguf_bytes.ARRAY) + level * 2000)


@case("overlap")
def tensors_on_the_same_bytes(draft: Draft) -> None:
    draft.tensors[2].offset = 0


@case("ends past the end of the file")
def tensor_offset_that_wraps_to_the_header(draft: Draft) -> None:
    draft.tensors[1].offset = (1 << 64) - 64


@case("llama.vocab_size is 5, but the file lists 4 tokens")
def vocabulary_of_another_size(draft: Draft) -> None:
    draft.set("llama.vocab_size", u32(5))


@case("tensor blk.0.attn_norm.weight holds a NaN or an infinity")
def gain_that_is_not_a_number(draft: Draft) -> None:
    draft.tensor("blk.0.attn_norm.weight").data = NAN * gguf_bytes.WIDTH


@case("tensor blk.0.ffn_down.weight holds a NaN or an infinity")
def weight_that_is_infinite(draft: Draft) -> None:
    tensor = draft.tensor("blk.0.ffn_down.weight")
    tensor.data = tensor.data[:-4] + INFINITY


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_is_refused_with_its_reason_in_little_time_and_memory(name: str, tmp_path: Path) -> None:
    says, damage = CASES[name]
    draft = valid_draft()
    damage(draft)
    path = draft.write(tmp_path / "model.gguf")
    tracemalloc.start()
    started = time.process_time()

    with pytest.raises(ModelFileError) as refusal:
        load_gguf(path)

    worked_s = time.process_time() - started
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert worked_s < 1
    assert peak < 50 << 20


def test_the_file_that_the_hostile_ones_are_made_from_is_accepted(tmp_path: Path) -> None:
    checkpoint = load_gguf(valid_draft().write(tmp_path / "model.gguf"))

    assert 11 == len(checkpoint.tensors)


def test_a_refusal_names_the_file_and_the_place(tmp_path: Path) -> None:
    draft = valid_draft()
    draft.version = 9
    path = draft.write(tmp_path / "model.gguf")

    with pytest.raises(ModelFileError) as refusal:
        load_gguf(path)

    assert f"{path}: GGUF version 9 is not supported; versions 2 and 3 are at byte 4" == str(refusal.value)


@pytest.mark.parametrize("length", [*range(64), 500, 1000, 1500])
def test_a_file_that_ends_early_is_refused_wherever_it_ends(length: int, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(valid_draft().build()[:length])

    with pytest.raises(ModelFileError):
        load_gguf(path)


def test_a_key_from_the_file_cannot_break_the_line_of_a_refusal(tmp_path: Path) -> None:
    path = valid_draft().set("llama.\nforged", u32(1)).write(tmp_path / "model.gguf")

    with pytest.raises(ModelFileError, match=r"'llama.\\nforged' is not implemented"):
        load_gguf(path)


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = valid_draft().set("general.name", text(b"\xff")).write(tmp_path / "model.gguf")

    with pytest.raises(ModelFileError, match=r"'general.name' is not UTF-8"):
        load_gguf(path)


def test_a_truth_value_is_nought_or_one(tmp_path: Path) -> None:
    path = valid_draft().set("tokenizer.ggml.add_bos_token", gguf_bytes.flag(2)).write(tmp_path / "model.gguf")

    with pytest.raises(ModelFileError, match="is a truth value of 2"):
        load_gguf(path)


def test_another_alignment_is_obeyed(tmp_path: Path) -> None:
    draft = valid_draft().set("general.alignment", u32(256))
    draft.layout_alignment = draft.start_alignment = 256

    checkpoint = load_gguf(draft.write(tmp_path / "model.gguf"))

    assert [1.0, 1.125, 1.25, 1.375] == checkpoint.tensors["output_norm"].dequantised().tolist()


def test_version_two_is_read_like_version_three(tmp_path: Path) -> None:
    draft = valid_draft()
    draft.version = 2

    assert "llama" == load_gguf(draft.write(tmp_path / "model.gguf")).config.architecture


def test_a_rope_base_that_is_infinite_is_refused(tmp_path: Path) -> None:
    path = valid_draft().set("llama.rope.freq_base", f32(float("inf"))).write(tmp_path / "model.gguf")

    with pytest.raises(ModelFileError, match=r"llama.rope.freq_base is inf"):
        load_gguf(path)


def test_a_key_may_have_256_bytes_and_no_more(tmp_path: Path) -> None:
    load_gguf(valid_draft().set("k" * 256, u32(1)).write(tmp_path / "model.gguf"))

    with pytest.raises(ModelFileError, match="a key is 257 bytes long"):
        load_gguf(valid_draft().set("k" * 257, u32(1)).write(tmp_path / "model.gguf"))
