"""Tensor names of Hugging Face folders: where each of our tensors lies among the published ones.

Knows names and how a published tensor holds ours, no bytes. Always: each published tensor that a model has is the
source of at least one of ours.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from model.config import ModelConfig
from model.loading.shapes import decoder_shapes


@dataclass(frozen=True, slots=True)
class Source:
    """The published tensor that holds one of ours, and how."""

    name: str
    shape: tuple[int, ...]
    """Of ours."""
    published_shape: tuple[int, ...]
    first: int = 0
    """The first of its outputs that is ours."""
    is_transposed: bool = False
    """Whether it lies as [inputs, outputs]."""
    adds_one: bool = False
    """Whether ours is 1 + what lies there."""


_BIAS = "_bias"
_ROTARY: Mapping[str, str] = {
    "embedding": "model.embed_tokens",
    "output_norm": "model.norm",
    "head": "lm_head",
    "attention_norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "query_norm": "self_attn.q_norm",
    "key_norm": "self_attn.k_norm",
    "attention_output": "self_attn.o_proj",
    "feed_forward_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_NAMES: Mapping[str, Mapping[str, str]] = {
    "llama": _ROTARY,
    "qwen2": _ROTARY,
    "qwen3": _ROTARY,
    "gemma3": {
        **_ROTARY,
        "attention_output_norm": "post_attention_layernorm",
        "feed_forward_norm": "pre_feedforward_layernorm",
        "feed_forward_output_norm": "post_feedforward_layernorm",
    },
    "gpt2": {
        "embedding": "wte",
        "position_embedding": "wpe",
        "output_norm": "ln_f",
        "head": "lm_head",
        "attention_norm": "ln_1",
        "query": "attn.c_attn",
        "key": "attn.c_attn",
        "value": "attn.c_attn",
        "attention_output": "attn.c_proj",
        "feed_forward_norm": "ln_2",
        "up": "mlp.c_fc",
        "down": "mlp.c_proj",
    },
}
_GPT2_PREFIX = "transformer."
_BUFFERS = re.compile(r"h\.[0-9]+\.attn\.(bias|masked_bias)|model\.layers\.[0-9]+\.self_attn\.rotary_emb\.inv_freq")
"""Tables that are not learned: masks of GPT-2, and the frequencies of rotary positions, which `config.json` gives."""


def canonical(name: str, family: str) -> str:
    """A published name without the prefix that GPT-2's have in some files and not in others."""
    return name.removeprefix(_GPT2_PREFIX) if family == "gpt2" else name


def is_buffer(name: str) -> bool:
    """Whether a tensor of that canonical name is a table that loaders make themselves."""
    return _BUFFERS.fullmatch(name) is not None


def sources(config: ModelConfig) -> dict[str, Source]:
    """Where each tensor that the decoder may have lies, by our names."""
    shapes = decoder_shapes(config)
    return {name: _source(name, shape, config) for name, shape in shapes.items()}


def _source(name: str, shape: tuple[int, ...], config: ModelConfig) -> Source:
    family = config.architecture
    *layer, part = name.split(".")
    kind = "weight"
    if part.endswith(_BIAS):
        part, kind = part.removesuffix(_BIAS), "bias"
    prefix = "" if not layer else f"h.{layer[1]}." if family == "gpt2" else f"model.layers.{layer[1]}."
    source = Source(f"{prefix}{_NAMES[family][part]}.{kind}", shape, shape)
    if family == "gemma3" and part.endswith("norm"):
        return replace(source, adds_one=True)
    if family == "gpt2" and layer and not part.endswith("norm"):
        return _of_conv1d(source, part, config)
    return source


def _of_conv1d(source: Source, part: str, config: ModelConfig) -> Source:
    """GPT-2 publishes its linear layers transposed, and those of queries, keys and values as one."""
    outputs, *inputs = source.shape
    first = 0
    if part in ("query", "key", "value"):
        outputs, first = 3 * config.width, ("query", "key", "value").index(part) * config.width
    return replace(source, published_shape=(*inputs, outputs), first=first, is_transposed=bool(inputs))
