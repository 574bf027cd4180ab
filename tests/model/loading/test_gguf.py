"""A well-formed GGUF file becomes a checkpoint that says what the file says."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.config import ModelConfig
from model.loading.checkpoint import Checkpoint, GenerationDefaults, ModelFileError
from model.loading.gguf import load_gguf, unpermute_rows
from model.loading.names import gguf_name
from tests.model.loading import gguf_bytes
from tests.model.loading.gguf_bytes import f32, i32, u32, valid_draft
from tests.tiny_model import (
    CHAT_TEMPLATE,
    CONTROL_TOKENS,
    EVERY_FORMAT,
    FOR_EVERY_FORMAT,
    FORMAT_NAMES,
    IM_END_ID,
    IM_START_ID,
    FormatName,
    TinyShape,
    hf_name,
    permute_for_gguf,
    rounded_weights,
    tiny_hf_model,
    tiny_vocabulary,
    write_tiny_gguf,
)

UNTIED = TinyShape(layers=3, heads=8, kv_heads=2, head_width=12, tied=False)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return load_gguf(write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf"))


@pytest.mark.parametrize("format", EVERY_FORMAT)
def test_every_weight_is_the_one_that_was_written(format: FormatName, tmp_path: Path) -> None:
    shape = UNTIED if format in FORMAT_NAMES else replace(FOR_EVERY_FORMAT, tied=False)
    expected = rounded_weights(shape, format=format, seed=3)

    checkpoint = load_gguf(write_tiny_gguf(tmp_path / "m.gguf", shape=shape, format=format, seed=3))

    assert set(expected) == {gguf_name(name) for name in checkpoint.tensors}
    for name, tensor in checkpoint.tensors.items():
        assert expected[gguf_name(name)].tobytes() == tensor.dequantised().tobytes(), name


@pytest.mark.slow
def test_every_weight_is_the_one_that_transformers_reads(tmp_path: Path) -> None:
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    path = write_tiny_gguf(tmp_path / "m.gguf", shape=UNTIED, format="Q4_1")
    load: Any = load_gguf_checkpoint  # it has no annotations
    read = load(str(path), return_tensors=True, model_to_load=tiny_hf_model(UNTIED))["tensors"]

    checkpoint = load_gguf(path)

    assert set(read) == {hf_name(gguf_name(name)) for name in checkpoint.tensors}
    for name, tensor in checkpoint.tensors.items():
        assert np.array_equal(read[hf_name(gguf_name(name))].numpy(), tensor.dequantised()), name


def test_query_and_key_rows_go_back_to_where_rotary_positions_pair_them_by_halves() -> None:
    rows = np.arange(12, dtype=np.uint8).reshape(12, 1)

    permuted = permute_for_gguf(rows, head_count=2)

    assert [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11] == permuted.ravel().tolist()
    assert rows.tolist() == unpermute_rows(permuted, head_count=2).tolist()


def test_rows_have_the_shape_that_the_format_gives_them(tmp_path: Path) -> None:
    checkpoint = load_gguf(write_tiny_gguf(tmp_path / "m.gguf", format="Q4_1"))

    assert (64, 2 * 20) == checkpoint.tensors["layers.0.query"].rows().shape
    assert (320, 2 * 20) == checkpoint.tensors["embedding"].rows().shape
    assert (1, 64 * 4) == checkpoint.tensors["output_norm"].rows().shape


def test_the_configuration_is_read(tmp_path: Path) -> None:
    expected = ModelConfig(
        architecture="llama",
        layer_count=3,
        width=64,
        head_count=8,
        kv_head_count=2,
        head_width=12,
        feed_forward_width=96,
        vocabulary_size=320,
        context_length=256,
        rope_base=10000.0,
        norm_epsilon=float(np.float32(1e-5)),
    )

    assert expected == load_gguf(write_tiny_gguf(tmp_path / "m.gguf", shape=UNTIED)).config


def test_a_tied_model_has_no_head(tiny: Checkpoint, tmp_path: Path) -> None:
    assert "head" not in tiny.tensors
    assert "head" in load_gguf(write_tiny_gguf(tmp_path / "m.gguf", shape=UNTIED)).tensors


def test_the_vocabulary_is_read(tiny: Checkpoint) -> None:
    expected = tiny_vocabulary(320)

    assert expected.tokens == tiny.vocabulary.tokens
    assert expected.merges == tiny.vocabulary.merges
    assert "smollm" == tiny.vocabulary.pre_tokenizer
    assert frozenset(range(len(CONTROL_TOKENS))) == tiny.vocabulary.control_token_ids
    assert frozenset() == tiny.vocabulary.user_defined_token_ids
    assert frozenset({IM_END_ID}) == tiny.vocabulary.eos_token_ids
    assert IM_START_ID == tiny.vocabulary.bos_token_id
    assert not tiny.vocabulary.adds_bos


def test_the_chat_template_is_read(tiny: Checkpoint) -> None:
    assert CHAT_TEMPLATE == tiny.chat_template


def test_a_model_without_a_chat_template_has_none(tmp_path: Path) -> None:
    assert load_gguf(valid_draft().write(tmp_path / "m.gguf")).chat_template is None


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    path = valid_draft().write(tmp_path / "m.gguf")

    assert hashlib.sha256(path.read_bytes()).hexdigest() == load_gguf(path).sha256


def test_a_model_is_named_by_its_file_or_else_after_it(tiny: Checkpoint, tmp_path: Path) -> None:
    assert "tiny" == tiny.name
    assert "some-model" == load_gguf(valid_draft().write(tmp_path / "some-model.gguf")).name


def test_both_ends_of_text_and_of_turn_are_ends(tmp_path: Path) -> None:
    draft = valid_draft().set("tokenizer.ggml.eot_token_id", u32(2))

    assert frozenset({0, 2}) == load_gguf(draft.write(tmp_path / "m.gguf")).vocabulary.eos_token_ids


def test_unknown_and_user_defined_tokens_are_told_apart(tmp_path: Path) -> None:
    draft = valid_draft().set("tokenizer.ggml.token_type", gguf_bytes.i32s((3, 2, 4, 5)))

    vocabulary = load_gguf(draft.write(tmp_path / "m.gguf")).vocabulary

    assert frozenset({0, 1}) == vocabulary.control_token_ids
    assert frozenset({2}) == vocabulary.user_defined_token_ids


def test_llama_3_vocabularies_begin_texts_with_bos_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    draft = valid_draft().set("tokenizer.ggml.pre", gguf_bytes.text("llama-bpe"))
    draft.set("tokenizer.ggml.bos_token_id", u32(0))
    path = tmp_path / "m.gguf"

    assert load_gguf(draft.write(path)).vocabulary.adds_bos
    assert not load_gguf(draft.set("tokenizer.ggml.add_bos_token", gguf_bytes.flag(0)).write(path)).vocabulary.adds_bos


def test_sampling_defaults_are_read_as_they_were_meant(tmp_path: Path) -> None:
    draft = valid_draft().set("general.sampling.temp", f32(0.7)).set("general.sampling.top_p", f32(0.9))
    draft.set("general.sampling.top_k", i32(20)).set("general.sampling.min_p", f32(0.05))

    expected = GenerationDefaults(temperature=0.7, top_k=20, top_p=0.9, min_p=0.05)

    assert expected == load_gguf(draft.write(tmp_path / "m.gguf")).defaults


def test_a_file_without_sampling_defaults_names_none(tiny: Checkpoint) -> None:
    assert GenerationDefaults() == tiny.defaults


def test_head_width_and_heads_default_to_the_plain_ones(tmp_path: Path) -> None:
    draft = valid_draft().remove("llama.attention.head_count_kv").remove("llama.vocab_size")
    draft.tensor("blk.0.attn_k.weight").dimensions = (4, 4)
    draft.tensor("blk.0.attn_k.weight").data *= 2
    draft.tensor("blk.0.attn_v.weight").dimensions = (4, 4)
    draft.tensor("blk.0.attn_v.weight").data *= 2

    config = load_gguf(draft.write(tmp_path / "m.gguf")).config

    assert (2, 2, 4, 10000.0) == (config.kv_head_count, config.head_width, config.vocabulary_size, config.rope_base)


def test_weights_are_read_when_asked_for_and_not_held(tmp_path: Path) -> None:
    tensor = load_gguf(write_tiny_gguf(tmp_path / "m.gguf")).tensors["embedding"]

    assert tensor.rows() is not tensor.rows()


def test_a_file_cut_short_after_it_was_opened_raises_instead_of_crashing(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf")
    tensor = load_gguf(path).tensors["layers.1.down"]
    os.truncate(path, 4096)

    with pytest.raises(ModelFileError, match="cut short after it was opened"):
        tensor.rows()


def test_a_file_written_to_after_it_was_opened_is_not_believed(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf")
    tensor = load_gguf(path).tensors["layers.1.down"]
    with path.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"\0" * 8)
    os.utime(path, ns=(0, 0))

    with pytest.raises(ModelFileError, match="changed after it was opened"):
        tensor.rows()


def test_a_file_replaced_after_it_was_opened_changes_nothing(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", seed=1)
    tensor = load_gguf(path).tensors["layers.1.down"]
    expected = tensor.rows()
    write_tiny_gguf(tmp_path / "other.gguf", seed=2).replace(path)

    assert np.array_equal(expected, tensor.rows())


def test_a_checkpoint_that_is_dropped_closes_its_file(tmp_path: Path) -> None:
    path = valid_draft().write(tmp_path / "m.gguf")

    def is_open() -> bool:
        targets = []
        for descriptor in os.listdir("/proc/self/fd"):
            try:
                targets.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            except FileNotFoundError:
                continue
        return str(path) in targets

    checkpoint: Checkpoint | None = load_gguf(path)
    assert checkpoint is not None
    assert is_open()

    checkpoint = None

    assert not is_open()


@pytest.mark.slow
def test_the_default_model_is_what_it_is_said_to_be(default_model_path: Path) -> None:
    checkpoint = load_gguf(default_model_path)

    assert (
        ModelConfig(
            architecture="llama",
            layer_count=30,
            width=576,
            head_count=9,
            kv_head_count=3,
            head_width=64,
            feed_forward_width=1536,
            vocabulary_size=49152,
            context_length=8192,
            rope_base=100000.0,
            norm_epsilon=float(np.float32(1e-5)),
        )
        == checkpoint.config
    )
    assert 11520 == checkpoint.config.cached_numbers_per_position
    assert "SmolLM2-135M-Instruct" == checkpoint.name
    assert GenerationDefaults(temperature=0.2, top_p=0.9) == checkpoint.defaults
    assert frozenset({2}) == checkpoint.vocabulary.eos_token_ids
    assert frozenset(range(17)) == checkpoint.vocabulary.control_token_ids
    assert 48900 == len(checkpoint.vocabulary.merges)
    assert "head" not in checkpoint.tensors
    assert "Q8_0" == checkpoint.tensors["embedding"].format.name


@pytest.mark.slow
def test_a_layer_of_the_default_model_holds_3538944_weights_in_its_matrices(default_model_path: Path) -> None:
    tensors = load_gguf(default_model_path).tensors

    for layer in range(30):
        matrices = [t for name, t in tensors.items() if name.startswith(f"layers.{layer}.") and len(t.shape) == 2]
        assert 7 == len(matrices)
        assert 3_538_944 == sum(t.shape[0] * t.shape[1] for t in matrices)
