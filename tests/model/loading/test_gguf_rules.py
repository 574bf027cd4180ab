"""What would change the model, or its text, and is not implemented is refused by name."""

import math
import struct
from pathlib import Path

import pytest

from model.config import RopeScaling
from model.loading.checkpoint import ModelFileError
from model.loading.gguf import load_gguf
from tests.model.loading.gguf_bytes import ARRAY, U32, Draft, Tensor, f32, flag, i32s, text, texts, u32, valid_draft
from tests.tiny_model import TinyShape, llama_3_factors, write_tiny_gguf

U32_ARRAY = struct.pack("<IIQII", ARRAY, U32, 2, 1, 1)


def refused(draft: Draft, folder: Path) -> str:
    with pytest.raises(ModelFileError) as refusal:
        load_gguf(draft.write(folder / "m.gguf"))
    return refusal.value.reason


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.attention.scale", f32(0.0)),
        ("llama.attention.sliding_window_pattern", u32(6)),
        ("llama.attention.layer_norm_epsilon", f32(1e-5)),
        ("llama.attention.causal", flag(0)),
        ("llama.attention.clamp_kqv", f32(8.0)),
        ("llama.attention.max_alibi_bias", f32(8.0)),
        ("llama.attention.temperature_scale", f32(0.1)),
        ("llama.attention.value_length", u32(4)),
        ("llama.attn_logit_softcapping", f32(50.0)),
        ("llama.embedding_scale", f32(12.0)),
        ("llama.expert_count", u32(8)),
        ("llama.expert_used_count", u32(2)),
        ("llama.final_logit_softcapping", f32(30.0)),
        ("llama.logit_scale", f32(0.0625)),
        ("llama.logit_scale", flag(1)),
        ("llama.residual_scale", f32(0.22)),
        ("llama.rope.dimension_count", u32(1)),
        ("llama.rope.scale_linear", f32(4.0)),
        ("llama.rope.scaling.factor", f32(4.0)),
        ("llama.rope.scaling.type", text("yarn")),
        ("llama.rope.scaling.type", text("linear")),
        ("llama.something_new", f32(1.0)),
        ("llama.tensor_data_layout", text("reversed")),
        ("llama.use_parallel_residual", flag(1)),
        ("general.architecture", text("mamba")),
        ("general.quantization_version", u32(1)),
        ("general.sampling.mirostat", u32(2)),
        ("general.sampling.penalty_repeat", f32(1.1)),
        ("general.sampling.temp", f32(2.5)),
        ("general.sampling.top_p", f32(0.0)),
        ("general.type", text("adapter")),
        ("split.count", u32(2)),
        ("tokenizer.ggml.add_eos_token", flag(1)),
        ("tokenizer.ggml.add_space_prefix", flag(1)),
        ("tokenizer.ggml.model", text("bert")),
        ("tokenizer.ggml.precompiled_charsmap", texts(("x",))),
        ("tokenizer.ggml.something_new", u32(1)),
    ],
)
def test_a_key_that_changes_the_model_is_refused_by_name(key: str, value: bytes, tmp_path: Path) -> None:
    assert key in refused(valid_draft().set(key, value), tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.attention.sliding_window", u32(0)),
        ("llama.attention.sliding_window", u32(16)),
        ("llama.attention.scale", f32(1 / math.sqrt(2))),
        ("llama.attention.causal", flag(1)),
        ("llama.attention.key_length", u32(2)),
        ("llama.attention.value_length", u32(2)),
        ("llama.expert_count", u32(0)),
        ("llama.logit_scale", f32(1.0)),
        ("llama.rope.dimension_count", u32(2)),
        ("llama.rope.scaling.type", text("none")),
        ("llama.rope.scaling.original_context_length", u32(8)),
        ("llama.tensor_data_layout", text("Meta AI original pth")),
        ("general.quantization_version", u32(2)),
        ("general.license", text("apache-2.0")),
        ("general.sampling.penalty_repeat", f32(1.0)),
        ("quantize.imatrix.entries_count", u32(7)),
        ("tokenizer.ggml.add_space_prefix", flag(0)),
        ("tokenizer.ggml.padding_token_id", u32(0)),
        ("tokenizer.chat_template.tool_use", text("{{ messages }}")),
    ],
)
def test_a_key_that_changes_nothing_is_accepted(key: str, value: bytes, tmp_path: Path) -> None:
    load_gguf(valid_draft().set(key, value).write(tmp_path / "m.gguf"))


@pytest.mark.parametrize(
    "key",
    [
        "general.architecture",
        "llama.block_count",
        "llama.context_length",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
        "tokenizer.ggml.model",
        "tokenizer.ggml.pre",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.merges",
    ],
)
def test_a_key_that_is_needed_and_missing_is_named(key: str, tmp_path: Path) -> None:
    assert f"{key} is missing" == refused(valid_draft().remove(key), tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("llama.block_count", u32(0), "is 0; allowed are 1 to 512"),
        ("llama.block_count", u32(513), "is 513; allowed are 1 to 512"),
        ("llama.block_count", f32(1.0), "is not an integer"),
        ("llama.block_count", flag(1), "is not an integer"),
        ("llama.block_count", text("1"), "is not an integer"),
        ("llama.block_count", U32_ARRAY, "is an array, not a single value"),
        ("llama.attention.head_count", u32(0), "is 0; allowed are"),
        ("llama.attention.head_count", u32(3), "is 3, which does not divide a width of 4"),
        ("llama.attention.head_count_kv", u32(0), "is 0; allowed are 1 to 2"),
        ("llama.attention.head_count_kv", u32(4), "is 4; allowed are 1 to 2"),
        ("llama.attention.key_length", u32(3), "is 3; rotary positions need an even width"),
        ("llama.attention.layer_norm_rms_epsilon", f32(0.0), "is 0.0; allowed are"),
        ("llama.attention.layer_norm_rms_epsilon", f32(-1e-5), "allowed are"),
        ("llama.attention.layer_norm_rms_epsilon", f32(math.nan), "is nan; allowed are"),
        ("llama.attention.layer_norm_rms_epsilon", u32(1), "is not a floating-point number"),
        ("llama.rope.freq_base", f32(0.0), "is 0.0; allowed are"),
        ("general.name", text("n" * 257), "is 257 bytes long; allowed are 256"),
        ("tokenizer.chat_template", text("t" * (64 * 1024 + 1)), "is 65537 bytes long; allowed are 65536"),
        ("tokenizer.ggml.add_bos_token", u32(1), "is not a truth value"),
        ("tokenizer.ggml.bos_token_id", u32(4), "is 4; allowed are 0 to 3"),
        ("tokenizer.ggml.eos_token_id", u32(0xFFFFFFFF), "is 4294967295; allowed are 0 to 3"),
        ("tokenizer.ggml.eot_token_id", u32(4), "is 4; allowed are 0 to 3"),
        ("tokenizer.ggml.merges", texts(("a c",)), "holds 'a c' as entry 0, which does not join two tokens"),
        ("tokenizer.ggml.merges", texts(("ab",)), "holds 'ab' as entry 0"),
        ("tokenizer.ggml.merges", texts(("a b", "a b")), "holds a merge twice"),
        ("tokenizer.ggml.pre", u32(1), "is not a string"),
        ("tokenizer.ggml.token_type", i32s((3, 1, 1)), "has 3 entries for 4 tokens"),
        ("tokenizer.ggml.token_type", i32s((3, 1, 1, 6)), "holds the type 6; allowed are 1 to 5"),
        ("tokenizer.ggml.token_type", texts(("3", "1", "1", "1")), "is not an array of integers"),
        ("tokenizer.ggml.tokens", texts(("<end>", "a", "b", "a")), "holds 'a' twice, as ids 1 and 3"),
        ("tokenizer.ggml.tokens", texts(("<end>", "a", "b", "")), "holds an empty token, id 3"),
        ("tokenizer.ggml.tokens", texts(()), "is empty"),
        ("tokenizer.ggml.tokens", i32s((1, 2, 3, 4)), "is not an array of strings"),
    ],
)
def test_a_value_of_the_wrong_kind_or_out_of_range_is_refused(
    key: str, value: bytes, says: str, tmp_path: Path
) -> None:
    reason = refused(valid_draft().set(key, value), tmp_path)

    assert key in reason
    assert says in reason


def test_heads_that_do_not_share_keys_evenly_are_refused(tmp_path: Path) -> None:
    draft = valid_draft().set("llama.attention.head_count", u32(3)).set("llama.attention.head_count_kv", u32(2))

    assert "llama.attention.head_count_kv is 2, which does not divide 3 heads" == refused(draft, tmp_path)


def test_texts_that_begin_with_bos_need_one(tmp_path: Path) -> None:
    draft = valid_draft().set("tokenizer.ggml.add_bos_token", flag(1))

    assert "tokenizer.ggml.bos_token_id is missing, though texts begin with it" == refused(draft, tmp_path)


def scaled_draft(factors: list[float]) -> Draft:
    """A model of head width 64 (one head) with these rotary frequency factors."""
    draft = valid_draft().set("llama.attention.head_count", u32(1)).set("llama.attention.key_length", u32(64))
    draft.set("llama.rope.freq_base", f32(500000.0))
    for name in ("attn_q", "attn_k", "attn_v"):
        draft.tensor(f"blk.0.{name}.weight").dimensions = (4, 64)
        draft.tensor(f"blk.0.{name}.weight").data = b"\0" * 4 * 4 * 64
    draft.tensor("blk.0.attn_output.weight").dimensions = (64, 4)
    draft.tensor("blk.0.attn_output.weight").data = b"\0" * 4 * 4 * 64
    draft.tensors.append(Tensor("rope_freqs.weight", (len(factors),), struct.pack(f"<{len(factors)}f", *factors)))
    return draft


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_the_rotary_scaling_of_llama_3_is_recognised(factor: float, tmp_path: Path) -> None:
    draft = scaled_draft(llama_3_factors(64, 500000.0, factor))

    checkpoint = load_gguf(draft.write(tmp_path / "m.gguf"))

    expected = RopeScaling(
        factor=factor, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context_length=8192
    )
    assert expected == checkpoint.config.rope_scaling
    assert "rope_freqs" not in checkpoint.tensors


@pytest.mark.parametrize(
    "factors",
    [[1.0] * 31 + [0.0], [2.0] * 32, [1.0] * 16 + [8.0] * 16, [1.0] * 31, [0.5] * 32],
    ids=["zero", "linear", "step", "short", "shrinking"],
)
def test_another_rotary_scaling_is_refused_by_name(factors: list[float], tmp_path: Path) -> None:
    assert "tensor rope_freqs.weight is not implemented" in refused(scaled_draft(factors), tmp_path)


def test_heads_wider_than_their_share_of_the_width_are_read(tmp_path: Path) -> None:
    shape = TinyShape(heads=2, kv_heads=1, head_width=48)

    assert 48 == load_gguf(write_tiny_gguf(tmp_path / "m.gguf", shape=shape)).config.head_width
