"""Tensor names: ours, and those that GGUF files use.

Knows no shapes. Always: each function undoes the other.
"""

import re
from collections.abc import Mapping

_WHOLE_MODEL: Mapping[str, str] = {
    "embedding": "token_embd.weight",
    "output_norm": "output_norm.weight",
    "head": "output.weight",
}
_LAYER: Mapping[str, str] = {
    "attention_norm": "attn_norm",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "attention_output": "attn_output",
    "feed_forward_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
_WHOLE_MODEL_BY_GGUF = {gguf: ours for ours, gguf in _WHOLE_MODEL.items()}
_LAYER_BY_GGUF = {gguf: ours for ours, gguf in _LAYER.items()}
_LAYER_NAME = re.compile(r"blk\.(0|[1-9][0-9]{0,3})\.([a-z_]+)\.weight")


def gguf_name(name: str) -> str:
    """`layers.3.query` → `blk.3.attn_q.weight`. Raises KeyError for a name that is not ours."""
    if name in _WHOLE_MODEL:
        return _WHOLE_MODEL[name]
    _, layer, part = name.split(".")
    return f"blk.{layer}.{_LAYER[part]}.weight"


def name_from_gguf(name: str) -> str | None:
    """`blk.3.attn_q.weight` → `layers.3.query`; None for a tensor that no supported model has."""
    if name in _WHOLE_MODEL_BY_GGUF:
        return _WHOLE_MODEL_BY_GGUF[name]
    match = _LAYER_NAME.fullmatch(name)
    part = _LAYER_BY_GGUF.get(match[2]) if match else None
    return f"layers.{match[1]}.{part}" if match and part else None
