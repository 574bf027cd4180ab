"""Tensor names: ours, and those that GGUF files use.

Knows no shapes. Always: of the first two functions each undoes the other. What GGUF files of GPT-2 hold as one matrix
of queries, keys and values is three tensors of ours.
"""

import re
from collections.abc import Mapping

FUSED = {"attn_qkv.weight": ("query", "key", "value"), "attn_qkv.bias": ("query_bias", "key_bias", "value_bias")}
"""Of a layer: the name in GGUF, and ours of the parts in it, which have as many rows each."""
_WHOLE_MODEL: Mapping[str, str] = {
    "embedding": "token_embd.weight",
    "position_embedding": "position_embd.weight",
    "output_norm": "output_norm.weight",
    "output_norm_bias": "output_norm.bias",
    "head": "output.weight",
}
_LAYER: Mapping[str, str] = {
    "attention_norm": "attn_norm.weight",
    "attention_norm_bias": "attn_norm.bias",
    "query": "attn_q.weight",
    "query_bias": "attn_q.bias",
    "query_norm": "attn_q_norm.weight",
    "key": "attn_k.weight",
    "key_bias": "attn_k.bias",
    "key_norm": "attn_k_norm.weight",
    "value": "attn_v.weight",
    "value_bias": "attn_v.bias",
    "attention_output": "attn_output.weight",
    "attention_output_bias": "attn_output.bias",
    "attention_output_norm": "post_attention_norm.weight",
    "feed_forward_norm": "ffn_norm.weight",
    "feed_forward_norm_bias": "ffn_norm.bias",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "up_bias": "ffn_up.bias",
    "down": "ffn_down.weight",
    "down_bias": "ffn_down.bias",
    "feed_forward_output_norm": "post_ffw_norm.weight",
}
_WHOLE_MODEL_BY_GGUF = {gguf: ours for ours, gguf in _WHOLE_MODEL.items()}
_LAYER_BY_GGUF = {gguf: ours for ours, gguf in _LAYER.items()}
_LAYER_NAME = re.compile(r"blk\.(0|[1-9][0-9]{0,3})\.([a-z_]+\.(?:weight|bias))")


def gguf_name(name: str) -> str:
    """`layers.3.query` → `blk.3.attn_q.weight`. Raises KeyError for a name that is not ours."""
    if name in _WHOLE_MODEL:
        return _WHOLE_MODEL[name]
    _, layer, part = name.split(".")
    return f"blk.{layer}.{_LAYER[part]}"


def name_from_gguf(name: str) -> str | None:
    """`blk.3.attn_q.weight` → `layers.3.query`; None for a tensor that no supported model has."""
    if name in _WHOLE_MODEL_BY_GGUF:
        return _WHOLE_MODEL_BY_GGUF[name]
    match = _LAYER_NAME.fullmatch(name)
    part = _LAYER_BY_GGUF.get(match[2]) if match else None
    return f"layers.{match[1]}.{part}" if match and part else None


def fused_from_gguf(name: str) -> tuple[str, ...]:
    """`blk.3.attn_qkv.weight` → `layers.3.query`, `layers.3.key`, `layers.3.value`; none for other tensors."""
    match = _LAYER_NAME.fullmatch(name)
    return tuple(f"layers.{match[1]}.{part}" for part in FUSED.get(match[2], ())) if match else ()
