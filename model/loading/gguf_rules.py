"""Which keys of a GGUF file may stand beside those that a loader reads.

Knows keys and the values at which they change nothing. Always: a key that could change what a Llama computes, or
how its text becomes tokens, is read by the loader, or holds a value at which it does nothing, or is refused by name.
"""

import math
from collections.abc import Mapping

from model.config import ModelConfig
from model.loading.gguf_metadata import Metadata

LLAMA_READ = frozenset(
    f"llama.{key}"
    for key in (
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.layer_norm_rms_epsilon",
        "attention.scale",
        "attention.sliding_window",
        "attention.value_length",
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "rope.dimension_count",
        "rope.freq_base",
        "vocab_size",
    )
)
TOKENIZER_READ = frozenset(
    f"tokenizer.{key}"
    for key in (
        "chat_template",
        "ggml.add_bos_token",
        "ggml.add_space_prefix",
        "ggml.bos_token_id",
        "ggml.eos_token_id",
        "ggml.eom_token_id",
        "ggml.eot_token_id",
        "ggml.ignore_merges",
        "ggml.merges",
        "ggml.model",
        "ggml.pre",
        "ggml.scores",
        "ggml.token_type",
        "ggml.tokens",
    )
)

INERT = frozenset(
    (
        # They say where the scaling of positions came from; without a scaling they do nothing.
        "llama.rope.scaling.original_context_length",
        "llama.rope.scaling.finetuned",
        # Named templates beside the default one, and the same vocabulary in another form.
        "tokenizer.chat_templates",
        "tokenizer.huggingface.json",
        "tokenizer.ggml.token_type_count",
    )
)
_NAMED_TEMPLATE = "tokenizer.chat_template."
_TOKEN_ID = ("tokenizer.ggml.", "_token_id")

NEUTRAL: Mapping[str, bool | int | float | str] = {
    "general.type": "model",
    "general.quantization_version": 2,
    "general.sampling.mirostat": 0,
    "general.sampling.penalty_repeat": 1,
    "general.sampling.sequence": "",
    "general.sampling.xtc_probability": 0,
    "llama.attention.causal": True,
    "llama.attention.clamp_kqv": 0,
    "llama.attention.max_alibi_bias": 0,
    "llama.attn_logit_softcapping": 0,
    "llama.embedding_scale": 1,
    "llama.expert_count": 0,
    "llama.expert_used_count": 0,
    "llama.final_logit_softcapping": 0,
    "llama.logit_scale": 1,
    "llama.pooling_type": 0,
    "llama.residual_scale": 1,
    "llama.rope.scale_linear": 1,
    "llama.rope.scaling.attn_factor": 1,
    "llama.rope.scaling.factor": 1,
    "llama.rope.scaling.type": "none",
    "llama.tensor_data_layout": "Meta AI original pth",
    "llama.use_parallel_residual": False,
    "split.count": 1,
    "tokenizer.ggml.add_eos_token": False,
    "tokenizer.ggml.add_sep_token": False,
    "tokenizer.ggml.remove_extra_whitespaces": False,
}
"""Keys that are not implemented, with the one value at which they change nothing."""

_OWN_NAMESPACES = ("llama.", "tokenizer.")


def check_keys(metadata: Metadata) -> None:
    """Raise ModelFileError naming a key that would change the model and is not implemented."""
    for key in metadata:
        if key in NEUTRAL:
            _check_neutral(metadata, key)
        elif key.startswith(_OWN_NAMESPACES) and not _is_known(key):
            metadata.refuse(key, "is not implemented")


def _check_neutral(metadata: Metadata, key: str) -> None:
    neutral, value = NEUTRAL[key], metadata.scalar(key)
    same_kind = isinstance(value, bool) == isinstance(neutral, bool)
    if not same_kind or value != neutral:
        metadata.refuse(key, f"is not implemented for values other than {neutral!r}")


def _is_known(key: str) -> bool:
    return (
        key in LLAMA_READ
        or key in TOKENIZER_READ
        or key in INERT
        or key.startswith(_NAMED_TEMPLATE)
        or (key.startswith(_TOKEN_ID[0]) and key.endswith(_TOKEN_ID[1]))
    )


def check_attention(metadata: Metadata, config: ModelConfig) -> None:
    """Refuse an attention that is not the plain one over the whole context with scale 1/√d."""
    window = metadata.integer("llama.attention.sliding_window", 0, 1 << 31, default=0)
    if 0 < window < config.context_length:
        metadata.refuse(
            "llama.attention.sliding_window",
            f"is {window}, below the context of {config.context_length}: sliding windows are not implemented",
        )
    if "llama.attention.scale" in metadata:
        plain = 1 / math.sqrt(config.head_width)
        scale = metadata.number("llama.attention.scale", 0, 1e6)
        if not math.isclose(scale, plain, rel_tol=1e-6):
            metadata.refuse("llama.attention.scale", f"is {scale:g}: scales other than {plain:g} are not implemented")
