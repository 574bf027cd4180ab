"""Tiny random models of every family: in memory, on the native op set, as GGUF files and in `transformers`.

Always: the same name and changes give the same weights everywhere; every gain and every bias is random, and prompts of
more than 24 tokens are longer than most of the windows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from model.batch import Batch, Segment
from model.config import ModelConfig, SlidingWindow
from model.kv_cache import pages_for
from model.loading.checkpoint import Checkpoint
from model.loading.names import gguf_name
from model.loading.shapes import decoder_shapes
from model.ops.native_ops import NativeOps
from model.runner import ModelRunner
from tests.block_formats import stored_rows
from tests.memory_checkpoint import NO_VOCABULARY, stored_in_memory
from tests.tiny_model import add_metadata_of_text, permute_for_gguf

Weights = dict[str, NDArray[np.float32]]
Logits = NDArray[np.float32]
PAGES = 48
_PLAIN = ModelConfig(
    architecture="llama",
    layer_count=2,
    width=64,
    head_count=4,
    kv_head_count=2,
    head_width=16,
    feed_forward_width=96,
    vocabulary_size=320,
    context_length=512,
    rope_base=10_000.0,
    norm_epsilon=float(np.float32(1e-5)),
)
FAMILY_CONFIGS: Mapping[str, ModelConfig] = {
    "mistral": replace(_PLAIN, window=SlidingWindow(24)),
    "qwen2": replace(_PLAIN, architecture="qwen2", rope_base=1e6),
    "qwen3": replace(_PLAIN, architecture="qwen3", head_width=32, rope_base=1e6),
    "gemma3": replace(
        _PLAIN,
        architecture="gemma3",
        layer_count=4,
        kv_head_count=1,
        head_width=32,
        rope_base=1e6,
        window=SlidingWindow(24, full_every=3, rope_base=10_000.0),
        embedding_scale=float(np.float32(np.sqrt(64))),
        query_scale=20**-0.5,
    ),
    "gpt2": replace(_PLAIN, architecture="gpt2", kv_head_count=4),
}
"""One of each family."""
CONFIGS: Mapping[str, ModelConfig] = {
    **FAMILY_CONFIGS,
    "mistral, a window over blocks": replace(_PLAIN, window=SlidingWindow(130)),
    "gemma3, the widest heads": replace(
        FAMILY_CONFIGS["gemma3"],
        layer_count=2,
        head_width=256,
        query_scale=None,
        window=SlidingWindow(24, full_every=2, rope_base=10_000.0),
    ),
}
"""And those that only kernels tell apart."""


def family_weights(config: ModelConfig, *, seed: int = 0) -> Weights:
    """Float32 weights by our names, the head tied to the embedding."""
    rng = np.random.default_rng(seed)

    def made(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        normal = rng.standard_normal(shape, dtype=np.float32)
        if len(shape) > 1:
            great = np.float32(2 if name.endswith(("query", "key")) else 1)
            return normal * great / np.float32(np.sqrt(shape[1]))
        return np.float32(0.2) * normal + np.float32(0 if name.endswith("bias") else 1)

    return {name: made(name, shape) for name, shape in decoder_shapes(config).items() if name != "head"}


@cache
def family_checkpoint(name: str, *, seed: int = 0, **changes: Any) -> Checkpoint:
    """The model of one of CONFIGS, changed as given, in memory and without a vocabulary."""
    config = replace(CONFIGS[name], **changes)
    tensors = {part: stored_in_memory(part, weight) for part, weight in family_weights(config, seed=seed).items()}
    return Checkpoint(name=name, sha256="", config=config, tensors=tensors, vocabulary=NO_VOCABULARY)


def native_runner(checkpoint: Checkpoint, **given: Any) -> ModelRunner:
    """On PAGES pages, all NaN until they are written."""
    ops = NativeOps(checkpoint.config, PAGES, **given)
    runner = ModelRunner(ops, checkpoint)
    ops.poison_pages()
    return runner


def last_logits(runner: ModelRunner, tokens: Sequence[int], *, chunk: int = 1 << 20) -> Logits:
    """Logits [vocabulary] of the last token, the prompt cut into chunks; it lies in the first pages."""
    logits: Logits = np.empty((1, 0), dtype=np.float32)
    for start in range(0, len(tokens), chunk):
        piece = tuple(tokens[start : start + chunk])
        end = start + len(piece)
        segment = Segment(piece, start, tuple(range(pages_for(end))), asks=int(end == len(tokens)))
        logits = runner.forward(Batch((segment,))).numpy()
    last: Logits = logits[0]
    return last


def write_family_gguf(
    path: Path,
    family: str,
    *,
    format: str = "F32",
    seed: int = 0,
    more: Mapping[str, NDArray[np.float32]] | None = None,
    **changes: Any,
) -> Path:
    """The model as a file, changed as given, matrices in a block format. `more`: tensors that it has beside its own."""
    config = replace(FAMILY_CONFIGS[family], **changes)
    writer = gguf.GGUFWriter(path, config.architecture)
    _add_config(writer, config)
    add_metadata_of_text(writer, config.vocabulary_size)
    for name, weight in _as_in_gguf(config, family_weights(config, seed=seed)).items():
        kind = gguf.GGMLQuantizationType["F32" if weight.ndim == 1 else format]
        writer.add_tensor(name, stored_rows(weight, kind.name), raw_dtype=kind)
    for name, numbers in (more or {}).items():
        writer.add_tensor(name, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_config(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
    writer.add_name("tiny")
    writer.add_block_count(config.layer_count)
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.width)
    writer.add_feed_forward_length(config.feed_forward_width)
    writer.add_head_count(config.head_count)
    if config.family.has_learned_positions:
        writer.add_layer_norm_eps(config.norm_epsilon)
        return
    writer.add_layer_norm_rms_eps(config.norm_epsilon)
    writer.add_head_count_kv(config.kv_head_count)
    writer.add_key_length(config.head_width)
    writer.add_value_length(config.head_width)
    writer.add_rope_freq_base(config.rope_base)
    if config.window is not None:
        writer.add_sliding_window(config.window.width)
    if config.window is not None and config.window.full_every:
        writer.add_uint32(f"{config.architecture}.attention.sliding_window_pattern", config.window.full_every)
    if config.query_scale is not None:
        writer.add_float32(f"{config.architecture}.attention.scale", config.query_scale)


def _as_in_gguf(config: ModelConfig, weights: Weights) -> Weights:
    """By the names of GGUF: a Llama's queries and keys permuted, a GPT-2's joined with its values."""
    named: Weights = {}
    for name, weight in weights.items():
        part = name.rpartition(".")[2]
        if config.architecture == "llama" and part in ("query", "key"):
            heads = config.head_count if part == "query" else config.kv_head_count
            named[gguf_name(name)] = permute_for_gguf(weight, heads)
        elif config.architecture == "gpt2" and part.removesuffix("_bias") in ("query", "key", "value"):
            fused = gguf_name(name).replace("attn_q", "attn_qkv").replace("attn_k.", "attn_qkv.")
            fused = fused.replace("attn_v.", "attn_qkv.")
            named[fused] = np.concatenate((named[fused], weight)) if fused in named else weight
        else:
            named[gguf_name(name)] = weight
    return named


def family_hf_model(family: str, *, seed: int = 0) -> Any:
    """The model of `transformers` that computes the same, in float64 throughout.

    As published, norms are computed in float32; here they are exact, and Gemma's are gains that it adds 1 to.
    """
    import torch

    config = FAMILY_CONFIGS[family]
    model = _HF_MODELS[family](config).double().eval()
    state = {key: torch.tensor(weight) for key, weight in hf_weights(config, family_weights(config, seed=seed)).items()}
    missing, strange = model.load_state_dict(state, strict=False)
    assert ([], {"lm_head.weight"}) == (strange, set(missing) | {"lm_head.weight"})
    for name, module in list(model.named_modules()):
        if type(module).__name__.endswith("RMSNorm"):
            exact = torch.nn.RMSNorm(module.weight.shape, config.norm_epsilon, dtype=torch.float64)
            exact.weight = torch.nn.Parameter(module.weight + 1 if family == "gemma3" else module.weight)
            model.set_submodule(name, exact)
    return model


def hf_weights(config: ModelConfig, weights: Weights) -> Weights:
    """By the names of `transformers`: GPT-2's matrices transposed and joined, Gemma's gains less 1."""
    named: Weights = {}
    for name, weight in weights.items():
        if config.architecture == "gpt2":
            key, value = _gpt2_name(name), weight.T if weight.ndim > 1 and name.startswith("layers.") else weight
            named[key] = np.concatenate((named[key], value), axis=-1) if key in named else value
        else:
            is_gain = weight.ndim == 1 and config.architecture == "gemma3"
            named[_hf_name(config, name)] = weight - np.float32(1) if is_gain else weight
    return named


_HF_PARTS = {
    "attention_norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "query_norm": "self_attn.q_norm",
    "key_norm": "self_attn.k_norm",
    "attention_output": "self_attn.o_proj",
    "attention_output_norm": "post_attention_layernorm",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward_output_norm": "post_feedforward_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_GPT2_PARTS = {
    "attention_norm": "ln_1",
    "query": "attn.c_attn",
    "key": "attn.c_attn",
    "value": "attn.c_attn",
    "attention_output": "attn.c_proj",
    "feed_forward_norm": "ln_2",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}


def _hf_name(config: ModelConfig, name: str) -> str:
    if not name.startswith("layers."):
        return {"embedding": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}[name]
    _, layer, part = name.split(".")
    kind = "bias" if part.endswith("_bias") else "weight"
    theirs = _HF_PARTS[part.removesuffix("_bias")]
    if part == "feed_forward_norm" and config.family.has_output_norms:
        theirs = "pre_feedforward_layernorm"
    return f"model.layers.{layer}.{theirs}.{kind}"


def _gpt2_name(name: str) -> str:
    whole = {"embedding": "wte.weight", "position_embedding": "wpe.weight"}
    whole |= {"output_norm": "ln_f.weight", "output_norm_bias": "ln_f.bias"}
    if name in whole:
        return f"transformer.{whole[name]}"
    _, layer, part = name.split(".")
    kind = "bias" if part.endswith("_bias") else "weight"
    return f"transformer.h.{layer}.{_GPT2_PARTS[part.removesuffix('_bias')]}.{kind}"


def _sizes(config: ModelConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.width,
        "intermediate_size": config.feed_forward_width,
        "num_hidden_layers": config.layer_count,
        "num_attention_heads": config.head_count,
        "num_key_value_heads": config.kv_head_count,
        "head_dim": config.head_width,
        "vocab_size": config.vocabulary_size,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.norm_epsilon,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_base},
        "tie_word_embeddings": True,
        "attn_implementation": "sdpa",
    }


def _mistral(config: ModelConfig) -> Any:
    from transformers import MistralConfig, MistralForCausalLM

    assert config.window is not None
    return MistralForCausalLM(MistralConfig(**_sizes(config), sliding_window=config.window.width))


def _qwen2(config: ModelConfig) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM(Qwen2Config(**_sizes(config)))


def _qwen3(config: ModelConfig) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(**_sizes(config)))


def _gemma3(config: ModelConfig) -> Any:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    window = config.window
    assert window is not None
    assert config.query_scale is not None
    ropes = {"full_attention": config.rope_base, "sliding_attention": window.rope_base}
    own = {
        "rope_parameters": {name: {"rope_type": "default", "rope_theta": base} for name, base in ropes.items()},
        "sliding_window": window.width,
        "sliding_window_pattern": window.full_every,
        "query_pre_attn_scalar": round(config.query_scale**-2),
    }
    return Gemma3ForCausalLM(Gemma3TextConfig(**_sizes(config) | own))


def _gpt2(config: ModelConfig) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            n_embd=config.width,
            n_inner=config.feed_forward_width,
            n_layer=config.layer_count,
            n_head=config.head_count,
            vocab_size=config.vocabulary_size,
            n_positions=config.context_length,
            layer_norm_epsilon=config.norm_epsilon,
        )
    )


_HF_MODELS: Mapping[str, Callable[[ModelConfig], Any]] = {
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma3": _gemma3,
    "gpt2": _gpt2,
}
