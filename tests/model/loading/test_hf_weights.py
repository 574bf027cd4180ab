"""Published tensors that hold ours in another way: split, transposed, one less, prefixed, or with a row too few."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.loading.checkpoint import ModelFileError
from model.loading.model import load_model
from tests import hf_configs as published
from tests.hf_folders import tokenizer_json, write_arrays, write_json, write_llama_folder, write_tokenizer
from tests.tiny_model import TinyShape

SHAPE = TinyShape(layers=1, width=32, heads=2, kv_heads=1, feed_forward=32, vocabulary=300)
WIDTH, INNER, POSITIONS = 8, 12, 6
Arrays = dict[str, NDArray[Any]]


def gpt2_arrays(dtype: type = np.float32) -> Arrays:
    rng = np.random.default_rng(0)
    shapes = {
        "wte.weight": (SHAPE.vocabulary, WIDTH),
        "wpe.weight": (POSITIONS, WIDTH),
        "ln_f.weight": (WIDTH,),
        "ln_f.bias": (WIDTH,),
        **{f"h.0.{norm}.{kind}": (WIDTH,) for norm in ("ln_1", "ln_2") for kind in ("weight", "bias")},
        "h.0.attn.c_attn.weight": (WIDTH, 3 * WIDTH),
        "h.0.attn.c_attn.bias": (3 * WIDTH,),
        "h.0.attn.c_proj.weight": (WIDTH, WIDTH),
        "h.0.attn.c_proj.bias": (WIDTH,),
        "h.0.mlp.c_fc.weight": (WIDTH, INNER),
        "h.0.mlp.c_fc.bias": (INNER,),
        "h.0.mlp.c_proj.weight": (INNER, WIDTH),
        "h.0.mlp.c_proj.bias": (WIDTH,),
    }
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def write_gpt2(folder: Path, arrays: Arrays) -> Path:
    folder.mkdir()
    sizes = {"n_embd": WIDTH, "n_head": 2, "n_layer": 1, "n_inner": INNER, "n_positions": POSITIONS}
    ids = {"vocab_size": SHAPE.vocabulary, "bos_token_id": 0, "eos_token_id": 0}
    write_json(folder / "config.json", {**published.GPT_2, **sizes, **ids})
    write_tokenizer(folder, SHAPE.vocabulary)
    write_arrays(folder / "model.safetensors", arrays)
    return folder


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_fused_matrix_of_gpt2_holds_queries_keys_and_values_side_by_side(dtype: type, tmp_path: Path) -> None:
    arrays = gpt2_arrays(dtype)
    weights, biases = arrays["h.0.attn.c_attn.weight"], arrays["h.0.attn.c_attn.bias"]

    tensors = load_model(write_gpt2(tmp_path / "m", arrays)).tensors

    for i, part in enumerate(("query", "key", "value")):
        ours = slice(i * WIDTH, (i + 1) * WIDTH)
        np.testing.assert_array_equal(tensors[f"layers.0.{part}"].dequantised(), weights[:, ours].T)
        np.testing.assert_array_equal(tensors[f"layers.0.{part}_bias"].dequantised(), biases[ours])


def test_linear_layers_of_gpt2_lie_transposed(tmp_path: Path) -> None:
    arrays = gpt2_arrays()

    tensors = load_model(write_gpt2(tmp_path / "m", arrays)).tensors

    for part, name in {"up": "mlp.c_fc", "down": "mlp.c_proj", "attention_output": "attn.c_proj"}.items():
        np.testing.assert_array_equal(tensors[f"layers.0.{part}"].dequantised(), arrays[f"h.0.{name}.weight"].T)


def test_a_prefix_and_masks_of_gpt2_change_nothing(tmp_path: Path) -> None:
    arrays = gpt2_arrays()
    masks: Arrays = {"h.0.attn.bias": np.ones((1, 1, 6, 6), np.float32), "h.0.attn.masked_bias": np.ones(1, np.float32)}
    prefixed = {f"transformer.{name}": each for name, each in {**arrays, **masks}.items()}

    plain = load_model(write_gpt2(tmp_path / "a", arrays)).tensors
    other = load_model(write_gpt2(tmp_path / "b", prefixed)).tensors

    assert plain.keys() == other.keys()
    for name in plain:
        np.testing.assert_array_equal(plain[name].rows(), other[name].rows())


def test_a_transposed_matrix_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = gpt2_arrays()
    tensors = load_model(write_gpt2(tmp_path / "m", arrays)).tensors
    whole = tensors["layers.0.key"].rows()

    monkeypatch.setattr("model.loading.hf_weights.CHUNK_BYTES", 200)
    in_pieces = load_model(tmp_path / "m").tensors["layers.0.key"].rows()

    np.testing.assert_array_equal(whole, in_pieces)


def test_a_tensor_takes_the_bytes_that_it_has_in_its_file(tmp_path: Path) -> None:
    arrays = gpt2_arrays(np.float16)

    tensors = load_model(write_gpt2(tmp_path / "m", arrays)).tensors

    assert sum(2 * each.size for each in arrays.values()) == sum(each.stored_bytes for each in tensors.values())


def gemma_folder(folder: Path, norm: NDArray[Any]) -> Path:
    """One layer whose norms are all the same numbers, as stored."""
    folder.mkdir()
    sizes = {"hidden_size": 8, "intermediate_size": 8, "head_dim": 8, "num_attention_heads": 1}
    counts = {"num_hidden_layers": 1, "vocab_size": SHAPE.vocabulary, "layer_types": None, "max_position_embeddings": 9}
    write_json(folder / "config.json", {**published.GEMMA_3_270M, **sizes, **counts})
    write_tokenizer(folder, SHAPE.vocabulary)
    square = np.eye(8, dtype=np.float32)
    norms = [f"{place}_layernorm" for place in ("input", "post_attention", "pre_feedforward", "post_feedforward")]
    parts = [*norms, "self_attn.q_norm", "self_attn.k_norm"]
    matrices = [f"self_attn.{each}_proj" for each in "qkvo"] + [f"mlp.{each}_proj" for each in ("gate", "up", "down")]
    arrays: Arrays = {
        "model.embed_tokens.weight": np.zeros((SHAPE.vocabulary, 8), np.float32),
        "model.norm.weight": norm,
        **{f"model.layers.0.{part}.weight": norm for part in parts},
        **{f"model.layers.0.{part}.weight": square for part in matrices},
    }
    write_arrays(folder / "model.safetensors", arrays)
    return folder


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_gains_of_gemma_are_one_more_than_what_is_stored(dtype: type, tmp_path: Path) -> None:
    stored: NDArray[Any] = np.array([0, 1, -1, 0.1, 1e-3, -0.3, 2.5, 6e-8]).astype(dtype)

    tensors = load_model(gemma_folder(tmp_path / "m", stored)).tensors

    expected = (stored.astype(np.float64) + 1).astype(np.float32)
    gains = [name for name in tensors if name.endswith("norm")]
    assert 7 == len(gains)
    for name in gains:
        np.testing.assert_array_equal(tensors[name].dequantised(), expected)


def with_added_token(folder: Path, special: bool) -> Path:
    """A model with a token past its last row."""
    write_llama_folder(folder, shape=SHAPE)
    said = tokenizer_json(SHAPE.vocabulary)
    image = {**said["added_tokens"][0], "id": SHAPE.vocabulary, "content": "<image>", "special": special}
    write_json(folder / "tokenizer.json", {**said, "added_tokens": [*said["added_tokens"], image]})
    return folder


def test_a_control_token_that_has_no_row_is_left_out(tmp_path: Path) -> None:
    vocabulary = load_model(with_added_token(tmp_path / "m", special=True)).vocabulary

    assert SHAPE.vocabulary == len(vocabulary.tokens)
    assert "<image>" not in vocabulary.tokens


def test_a_token_of_text_that_has_no_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="has tokens up to id 300; the model has 300 rows"):
        load_model(with_added_token(tmp_path / "m", special=False))
