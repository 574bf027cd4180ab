"""Which keys of a GGUF file may stand beside those that a loader reads.

Knows keys and the values at which they change nothing. Always: a key that could change what a model computes, or
how its text becomes tokens, is read by the loader, or holds a value at which it does nothing, or is refused by name.
"""

from collections.abc import Mapping

from model.family import Family
from model.loading.gguf_metadata import Metadata

MODEL_READ = frozenset(
    (
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.scale",
        "attention.value_length",
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "vocab_size",
    )
)
"""Of every family, behind the name of its architecture."""
RMS_READ = frozenset(("attention.layer_norm_rms_epsilon",))
LAYER_NORM_READ = frozenset(("attention.layer_norm_epsilon",))
ROTARY_READ = frozenset(("attention.sliding_window", "rope.dimension_count", "rope.freq_base"))
OWN_READ: Mapping[str, frozenset[str]] = {
    "gemma3": frozenset(("attention.sliding_window_pattern", "rope.freq_base_swa")),
}
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
        # Named templates beside the default one, and the same vocabulary in another form.
        "tokenizer.chat_templates",
        "tokenizer.huggingface.json",
        "tokenizer.ggml.token_type_count",
    )
)
MODEL_INERT = frozenset(
    (
        # They say where the scaling of positions came from; without a scaling they do nothing.
        "rope.scaling.original_context_length",
        "rope.scaling.finetuned",
    )
)
_NAMED_TEMPLATE = "tokenizer.chat_template."
_TOKEN_ID = ("tokenizer.ggml.", "_token_id")

NEUTRAL: dict[str, bool | int | float | str] = {
    "general.type": "model",
    "general.quantization_version": 2,
    "general.sampling.mirostat": 0,
    "general.sampling.penalty_repeat": 1,
    "general.sampling.sequence": "",
    "general.sampling.xtc_probability": 0,
    "split.count": 1,
    "tokenizer.ggml.add_eos_token": False,
    "tokenizer.ggml.add_sep_token": False,
    "tokenizer.ggml.remove_extra_whitespaces": False,
}
"""Keys that are not implemented, with the one value at which they change nothing."""
MODEL_NEUTRAL: dict[str, bool | int | float | str] = {
    "attention.causal": True,
    "attention.clamp_kqv": 0,
    "attention.max_alibi_bias": 0,
    "attn_logit_softcapping": 0,
    "embedding_scale": 1,
    "expert_count": 0,
    "expert_used_count": 0,
    "final_logit_softcapping": 0,
    "logit_scale": 1,
    "pooling_type": 0,
    "residual_scale": 1,
    "rope.scale_linear": 1,
    "rope.scaling.attn_factor": 1,
    "rope.scaling.factor": 1,
    "rope.scaling.type": "none",
    "tensor_data_layout": "Meta AI original pth",
    "use_parallel_residual": False,
}
"""The same, behind the name of the architecture."""


def check_keys(metadata: Metadata, family: Family) -> None:
    """Raise ModelFileError naming a key that would change the model and is not implemented."""
    prefix = f"{family.name}."
    read = {prefix + key for key in _read_by(family)}
    neutral = NEUTRAL | {prefix + key: value for key, value in MODEL_NEUTRAL.items()}
    for key in metadata:
        if key in neutral:
            _check_neutral(metadata, key, neutral[key])
        elif key.startswith((prefix, "tokenizer.")) and key not in read and not _is_known_of_tokenizers(key):
            metadata.refuse(key, "is not implemented")


def _read_by(family: Family) -> frozenset[str]:
    norm = LAYER_NORM_READ if family.has_layer_norms else RMS_READ
    positions = frozenset[str]() if family.has_learned_positions else ROTARY_READ
    return MODEL_READ | MODEL_INERT | norm | positions | OWN_READ.get(family.name, frozenset())


def _check_neutral(metadata: Metadata, key: str, neutral: bool | int | float | str) -> None:
    value = metadata.scalar(key)
    same_kind = isinstance(value, bool) == isinstance(neutral, bool)
    if not same_kind or value != neutral:
        metadata.refuse(key, f"is not implemented for values other than {neutral!r}")


def _is_known_of_tokenizers(key: str) -> bool:
    return (
        key in TOKENIZER_READ
        or key in INERT
        or key.startswith(_NAMED_TEMPLATE)
        or (key.startswith(_TOKEN_ID[0]) and key.endswith(_TOKEN_ID[1]))
    )
