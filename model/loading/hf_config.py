"""The constants of a decoder, read from the `config.json` of a Hugging Face folder.

Knows no weights and no text. Always: a configuration that is returned keeps the rules of `ModelConfig`, and its widths
are bounded; a key that is absent has the value that `transformers` gives it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model.config import ModelConfig, SlidingWindow
from model.loading.gguf_config import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH
from model.loading.hf_rope import read_rope
from model.loading.hf_rules import Architecture, architecture_of, check_keys
from model.loading.json_keys import JsonKeys

DEFAULT_WINDOW = 4096
DEFAULT_MAX_WINDOW_LAYERS = 28
DEFAULT_WINDOW_PATTERN = 6
DEFAULT_HEAD_WIDTHS = {"qwen3": 128, "gemma3": 256}
"""Of families whose heads need not share the width of the model."""
DEFAULT_QUERY_SCALAR = 256
UNUSED_ROPE_BASE = 10_000.0
"""Of models whose positions are learned."""
GPT2_INNER = 4
"""GPT-2's feed-forward width in widths of the model, where `n_inner` is null."""


@dataclass(frozen=True, slots=True)
class FolderConfig:
    """What `config.json` says of the decoder."""

    model: ModelConfig
    ties_head: bool
    """Whether the head is the embedding."""


def read_hf_config(keys: JsonKeys) -> FolderConfig:
    """Raises ModelFileError for anything that is not one of the supported decoders, or says what is not implemented."""
    architecture = architecture_of(keys)
    check_keys(keys, architecture)
    read = _read_gpt2 if architecture.family == "gpt2" else _read_rotary
    return FolderConfig(
        model=read(keys, architecture), ties_head=keys.flag("tie_word_embeddings", default=architecture.ties_head)
    )


def _read_gpt2(keys: JsonKeys, architecture: Architecture) -> ModelConfig:
    width = keys.integer("n_embd", 1, MAX_WIDTH)
    heads = keys.integer("n_head", 1, MAX_HEADS)
    if width % heads:
        keys.refuse("n_head", f"is {heads}, which does not divide a width of {width}")
    return ModelConfig(
        architecture=architecture.family,
        layer_count=keys.integer("n_layer", 1, MAX_LAYERS),
        width=width,
        head_count=heads,
        kv_head_count=heads,
        head_width=width // heads,
        feed_forward_width=keys.integer("n_inner", 1, MAX_WIDTH, default=GPT2_INNER * width),
        vocabulary_size=keys.integer("vocab_size", 1, MAX_VOCABULARY),
        context_length=keys.integer("n_positions", 1, MAX_CONTEXT),
        rope_base=UNUSED_ROPE_BASE,
        norm_epsilon=keys.number("layer_norm_epsilon", 1e-12, 1, default=1e-5),
    )


def _read_rotary(keys: JsonKeys, architecture: Architecture) -> ModelConfig:
    family = architecture.family
    width = keys.integer("hidden_size", 1, MAX_WIDTH)
    heads = keys.integer("num_attention_heads", 1, MAX_HEADS)
    kv_heads = keys.integer(
        "num_key_value_heads", 1, heads, default=heads if architecture.model_type == "llama" else None
    )
    if heads % kv_heads:
        keys.refuse("num_key_value_heads", f"is {kv_heads}, which does not divide {heads} heads")
    head_width = _head_width(keys, family, width, heads)
    layer_count = keys.integer("num_hidden_layers", 1, MAX_LAYERS)
    context = keys.integer("max_position_embeddings", 1, MAX_CONTEXT)
    base, scaling, window_base = read_rope(keys, is_by_layer=family == "gemma3")
    return ModelConfig(
        architecture=family,
        layer_count=layer_count,
        width=width,
        head_count=heads,
        kv_head_count=kv_heads,
        head_width=head_width,
        feed_forward_width=keys.integer("intermediate_size", 1, MAX_WIDTH),
        vocabulary_size=keys.integer("vocab_size", 1, MAX_VOCABULARY),
        context_length=context,
        rope_base=base,
        norm_epsilon=keys.number("rms_norm_eps", 1e-12, 1, default=1e-6),
        rope_scaling=scaling,
        window=_window(keys, architecture, layer_count, context, window_base),
        query_scale=_query_scale(keys, head_width) if family == "gemma3" else None,
        embedding_scale=embedding_scale(width) if family == "gemma3" else 1.0,
    )


def embedding_scale(width: int) -> float:
    """√width, rounded to float32 as implementations of Gemma hold it."""
    return float(np.float32(math.sqrt(width)))


def _query_scale(keys: JsonKeys, head_width: int) -> float | None:
    scalar = keys.number("query_pre_attn_scalar", 1e-6, 1e6, default=DEFAULT_QUERY_SCALAR)
    return None if scalar == head_width else scalar**-0.5


def _head_width(keys: JsonKeys, family: str, width: int, heads: int) -> int:
    default = DEFAULT_HEAD_WIDTHS.get(family)
    if "head_dim" not in keys and default is None:
        if width % heads:
            keys.refuse("num_attention_heads", f"is {heads}, which does not divide a width of {width}")
        default = width // heads
    head_width = keys.integer("head_dim", 1, MAX_WIDTH, default=default)
    if head_width % 2:
        keys.refuse("head_dim", f"is {head_width}; rotary positions need an even width")
    return head_width


def _window(
    keys: JsonKeys, architecture: Architecture, layer_count: int, context: int, rope_base: float | None
) -> SlidingWindow | None:
    """None where no layer has one, or where it holds the whole context and changes nothing."""
    width = _window_width(keys, architecture)
    windowed = _windowed_layers(keys, architecture, layer_count, width is not None)
    if not any(windowed):
        return None
    if width is None:
        keys.refuse("layer_types", "names layers with a window, and no width is in use")
    if width >= context and rope_base is None:
        return None
    return SlidingWindow(width, _full_every(keys, windowed), rope_base)


def _window_width(keys: JsonKeys, architecture: Architecture) -> int | None:
    is_off = "use_sliding_window" in architecture.read and not keys.flag("use_sliding_window", default=False)
    is_null = keys.names("sliding_window") and "sliding_window" not in keys
    if is_off or is_null or "sliding_window" not in architecture.read:
        return None
    return keys.integer("sliding_window", 1, 1 << 31, default=DEFAULT_WINDOW)


def _windowed_layers(keys: JsonKeys, architecture: Architecture, layer_count: int, has_width: bool) -> list[bool]:
    """For each layer whether it has the window."""
    if "layer_types" in keys:
        kinds = keys.items("layer_types")
        if len(kinds) != layer_count:
            keys.refuse("layer_types", f"has {len(kinds)} entries for {layer_count} layers")
        if not all(kind in ("full_attention", "sliding_attention") for kind in kinds):
            keys.refuse("layer_types", "names a kind of attention that is neither full_attention nor sliding_attention")
        return [kind == "sliding_attention" for kind in kinds]
    first, every = 0, 0
    if "max_window_layers" in architecture.read:
        first = keys.integer("max_window_layers", 0, 1 << 31, default=DEFAULT_MAX_WINDOW_LAYERS)
    if "sliding_window_pattern" in architecture.read:
        older = keys.integer("_sliding_window_pattern", 1, 1 << 31, default=DEFAULT_WINDOW_PATTERN)
        every = keys.integer("sliding_window_pattern", 1, 1 << 31, default=older)
    return [has_width and i >= first and not (every and (i + 1) % every == 0) for i in range(layer_count)]


def _full_every(keys: JsonKeys, windowed: Sequence[bool]) -> int:
    """`SlidingWindow.full_every` of such layers."""
    if all(windowed):
        return 0
    every = windowed.index(False) + 1
    if list(windowed) != [(i + 1) % every != 0 for i in range(len(windowed))]:
        key = "layer_types" if "layer_types" in keys else "max_window_layers"
        keys.refuse(key, "sets windows in another order than all but every n-th layer, which is not implemented")
    return every
