"""Tiny Hugging Face folders: a Llama written by hand, and one of each architecture as `transformers` saves it.

`write_llama_folder(path, …)` needs no torch, and any of its parts can be changed; `save_tiny_model(path, name)` writes
the random model of that name, and returns it. Always: biases and gains are random, so that none can be left out.
"""

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.loading.safetensors import Block, write_safetensors
from tests.tiny_model import CHAT_TEMPLATE, CONTROL_TOKENS, IM_END_ID, TinyShape, hf_name, tiny_vocabulary, tiny_weights

SHAPE = TinyShape()
FORMATS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I32": np.int32}
Arrays = dict[str, NDArray[Any]]
CONTEXT = 64
WINDOW = 9
SEED = 7


def llama_config(shape: TinyShape = SHAPE) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "eos_token_id": IM_END_ID,
        "head_dim": shape.head_width,
        "hidden_act": "silu",
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "max_position_embeddings": shape.context,
        "model_type": "llama",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": shape.epsilon,
        "rope_scaling": None,
        "rope_theta": shape.rope_base,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "float32",
        "vocab_size": shape.vocabulary,
    }


def llama_weights(shape: TinyShape = SHAPE) -> Arrays:
    """By published names."""
    return {hf_name(name): weight for name, weight in tiny_weights(shape).items()}


def tokenizer_json(size: int = SHAPE.vocabulary) -> dict[str, Any]:
    """A byte-level BPE as the `tokenizers` library writes it."""
    vocabulary = tiny_vocabulary(size)
    used = [token for token in vocabulary.tokens if not token.startswith("[unused")]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": token, **flags} for i, token in enumerate(CONTROL_TOKENS)],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(used)},
            "merges": list(vocabulary.merges),
        },
    }


def write_tokenizer(folder: Path, size: int = SHAPE.vocabulary) -> None:
    write_json(folder / "tokenizer.json", tokenizer_json(size))
    write_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT_TEMPLATE, "eos_token": "<|im_end|>"},
    )


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    write_safetensors(path, {name: _block(array) for name, array in arrays.items()}, {"format": "pt"})


def _block(array: NDArray[Any]) -> Block:
    dtype = next(name for name, kind in FORMATS.items() if array.dtype == kind)
    return Block(dtype, array.shape, lambda: array)


def write_llama_folder(
    folder: Path,
    *,
    shards: int = 0,
    config: Mapping[str, Any] | None = None,
    change: Callable[[Arrays], object] = lambda arrays: None,
    shape: TinyShape = SHAPE,
) -> Path:
    """Write the Llama to a new folder and return it.

    Args:
        shards: files beside an index; 0 for a single file.
        config: keys in place of those of `llama_config`.
        change: what is done to the weights before they are written.
    """
    folder.mkdir()
    write_json(folder / "config.json", {**llama_config(shape), **(config or {})})
    write_tokenizer(folder, shape.vocabulary)
    arrays = llama_weights(shape)
    change(arrays)
    if not shards:
        write_arrays(folder / "model.safetensors", arrays)
        return folder
    names, places = list(arrays), dict[str, str]()
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        write_arrays(folder / file, {name: arrays[name] for name in names[i::shards]})
        places |= dict.fromkeys(names[i::shards], file)
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": 1}, "weight_map": places})
    return folder


def _common(**others: Any) -> dict[str, Any]:
    return {
        "vocab_size": SHAPE.vocabulary,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
        **others,
    }


LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 50000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
GEMMA = _common(
    num_hidden_layers=5,
    head_dim=24,
    query_pre_attn_scalar=40,
    sliding_window=WINDOW,
    layer_types=["sliding_attention", "sliding_attention", "full_attention"] + ["sliding_attention"] * 2,
)
TINY_MODELS: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", _common(tie_word_embeddings=False)),
    "llama 3, tied": (
        "LlamaConfig",
        "LlamaForCausalLM",
        _common(rope_parameters=LLAMA_3, tie_word_embeddings=True, head_dim=32),
    ),
    "mistral": ("MistralConfig", "MistralForCausalLM", _common(sliding_window=None)),
    "mistral, window": ("MistralConfig", "MistralForCausalLM", _common(sliding_window=WINDOW)),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", _common(tie_word_embeddings=True)),
    "qwen2, window": (
        "Qwen2Config",
        "Qwen2ForCausalLM",
        _common(use_sliding_window=True, sliding_window=WINDOW, max_window_layers=0),
    ),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", _common(head_dim=24)),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", GEMMA),
    "gemma3, window beyond the context": (
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {**GEMMA, "sliding_window": 4 * CONTEXT, "query_pre_attn_scalar": 24},
    ),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {
            "vocab_size": SHAPE.vocabulary,
            "n_embd": 64,
            "n_layer": 2,
            "n_head": 4,
            "n_inner": 96,
            "n_positions": CONTEXT,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
    ),
}
"""By name: configuration, model and what the configuration is made of."""


def save_tiny_model(folder: Path, name: str, *, dtype: str = "float32", max_shard_size: str = "5GB") -> Any:
    """A model with the weights that are saved in that type, itself in float32; a tokenizer lies beside them."""
    import torch
    import transformers

    config_class, model_class, values = TINY_MODELS[name]
    config = getattr(transformers, config_class)(**values)
    config._attn_implementation = "eager"
    torch.manual_seed(SEED)
    stored = getattr(torch, dtype)
    model = getattr(transformers, model_class)(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            parameter.copy_(_random(parameter_name, parameter).to(stored))
    copy.deepcopy(model).to(stored).save_pretrained(folder, max_shard_size=max_shard_size)
    write_tokenizer(folder)
    return model


def _random(name: str, parameter: Any) -> Any:
    """Gains away from 0 and 1, biases away from 0, and matrices that keep the size of what passes them."""
    import torch

    normal = torch.randn(parameter.shape)
    if parameter.ndim == 1:
        return 0.3 * normal + (1 if "norm" in name or "ln_" in name else 0)
    if "embed" in name or "wte" in name or "wpe" in name or "lm_head" in name:
        return normal
    return 1.5 * normal / parameter.shape[-1] ** 0.5
