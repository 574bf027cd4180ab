"""Which architectures of Hugging Face folders are run, and which keys of `config.json` may stand beside those read.

Knows keys and the values at which they change nothing. Always: a key that could change what a model computes is read
by the loader, or holds a value at which it does nothing, or is refused by name with what would have to be built; a key
that is not known is refused too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model.loading.json_keys import JsonKeys, label, shown_value

Neutral = Mapping[str, tuple[tuple[Any, ...], str]]
"""By key: the values at which it changes nothing (null is always one), and what others would need."""

MAX_NAME_BYTES = 256

_SIZES = frozenset(
    (
        "head_dim",
        "hidden_size",
        "intermediate_size",
        "layer_types",
        "max_position_embeddings",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "rms_norm_eps",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
    )
)
_NO_BIAS: Neutral = {"attention_bias": ((False,), "biases of its attention")}
_SILU: Neutral = {"hidden_act": (("silu", "swish"), "another activation")}
_CAPS: Neutral = {
    "attn_logit_softcapping": ((), "soft caps of attention scores"),
    "final_logit_softcapping": ((), "soft caps of logits"),
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """One that is run, by the name that `architectures` gives it."""

    family: str
    model_type: str
    read: frozenset[str] = _SIZES
    """Keys that the loader reads, beside those that it reads of every architecture."""
    neutral: Neutral = field(default_factory=dict)
    ties_head: bool = False
    """Whether the head is the embedding where `tie_word_embeddings` is absent."""


ARCHITECTURES: Mapping[str, Architecture] = {
    "LlamaForCausalLM": Architecture(
        "llama",
        "llama",
        neutral={
            **_SILU,
            **_NO_BIAS,
            "mlp_bias": ((False,), "biases of its feed-forward layers"),
            "rope_interleaved": ((False,), "rotary positions of neighbouring pairs"),
            "sliding_window": ((), "a window of this architecture"),
        },
    ),
    "MistralForCausalLM": Architecture("llama", "mistral", _SIZES | {"sliding_window"}, {**_SILU, **_NO_BIAS}),
    "Qwen2ForCausalLM": Architecture(
        "qwen2",
        "qwen2",
        _SIZES | {"max_window_layers", "sliding_window", "use_sliding_window"},
        {**_SILU, "use_mrope": ((False,), "rotary positions in three dimensions")},
    ),
    "Qwen3ForCausalLM": Architecture(
        "qwen3",
        "qwen3",
        _SIZES | {"max_window_layers", "sliding_window", "use_sliding_window"},
        {**_SILU, **_NO_BIAS},
    ),
    "Gemma3ForCausalLM": Architecture(
        "gemma3",
        "gemma3_text",
        _SIZES
        | {
            "_sliding_window_pattern",
            "query_pre_attn_scalar",
            "rope_local_base_freq",
            "sliding_window",
            "sliding_window_pattern",
        },
        {
            **_NO_BIAS,
            **_CAPS,
            "hidden_activation": (("gelu_pytorch_tanh",), "another activation"),
            "use_bidirectional_attention": ((False,), "attention to later positions"),
        },
        ties_head=True,
    ),
    "GPT2LMHeadModel": Architecture(
        "gpt2",
        "gpt2",
        frozenset(("layer_norm_epsilon", "n_embd", "n_head", "n_inner", "n_layer", "n_positions")),
        {
            "activation_function": (("gelu_new", "gelu_pytorch_tanh"), "another activation"),
            "scale_attn_weights": ((True,), "attention without a scale"),
            "scale_attn_by_inverse_layer_idx": ((False,), "a scale of attention for each layer"),
            # Another order of the same operations, with more digits.
            "reorder_and_upcast_attn": ((False, True), ""),
        },
        ties_head=True,
    ),
}

_EXPERTS = "experts, and the router that chooses among them"
_IMAGES = "what makes tokens of images"
REFUSED: Mapping[str, str] = {
    "BloomForCausalLM": "attention biased by distance (ALiBi)",
    "CohereForCausalLM": "parallel attention and feed-forward, and a scale of logits",
    "DeepseekV2ForCausalLM": "latent attention, and " + _EXPERTS,
    "DeepseekV3ForCausalLM": "latent attention, and " + _EXPERTS,
    "FalconForCausalLM": "parallel attention and feed-forward",
    "GPTBigCodeForCausalLM": "its fused projections",
    "GPTJForCausalLM": "parallel attention and feed-forward, and rotary positions of a part of each head",
    "GPTNeoXForCausalLM": "parallel attention and feed-forward, and rotary positions of a part of each head",
    "Gemma2ForCausalLM": "soft caps of attention scores and logits",
    "Gemma3ForConditionalGeneration": _IMAGES + "; save its language model alone, as Gemma3ForCausalLM",
    "GemmaForCausalLM": "its family: Gemma 3 without norms of heads and outputs",
    "GptOssForCausalLM": "attention sinks, and " + _EXPERTS,
    "GraniteForCausalLM": "its four scales",
    "Llama4ForConditionalGeneration": _IMAGES + ", and " + _EXPERTS,
    "LlavaForConditionalGeneration": _IMAGES,
    "MambaForCausalLM": "its recurrence in place of attention",
    "Mistral3ForConditionalGeneration": _IMAGES,
    "MixtralForCausalLM": _EXPERTS,
    "MllamaForConditionalGeneration": _IMAGES,
    "OPTForCausalLM": "its family: LayerNorm, ReLU and learned positions with an offset",
    "Olmo2ForCausalLM": "norms behind each part alone",
    "OlmoForCausalLM": "norms without gains",
    "Phi3ForCausalLM": "its fused projections and long rotary positions",
    "PhiForCausalLM": "parallel attention and feed-forward, and rotary positions of a part of each head",
    "Qwen2MoeForCausalLM": _EXPERTS,
    "Qwen2VLForConditionalGeneration": _IMAGES,
    "Qwen2_5_VLForConditionalGeneration": _IMAGES,
    "Qwen3MoeForCausalLM": _EXPERTS,
    "Qwen3NextForCausalLM": "its recurrence in place of attention, and " + _EXPERTS,
    "SmolLM3ForCausalLM": "layers without positions",
    "StableLmForCausalLM": "rotary positions of a part of each head",
    "Starcoder2ForCausalLM": "its family: biases, LayerNorm and rotary positions",
    "T5ForConditionalGeneration": "an encoder",
}
"""Architectures that people have and that are not run, with what would have to be built."""

_READ_OF_ALL = frozenset(("architectures", "eos_token_id", "model_type", "tie_word_embeddings", "vocab_size"))
_INERT = frozenset(
    (
        # Where it came from, and how others run it.
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_attn_implementation_internal",
        "_commit_hash",
        "_name_or_path",
        "attn_implementation",
        "cache_implementation",
        "dtype",
        "is_llama_config",
        "model_name",
        "name_or_path",
        "tokenizer_class",
        "torch_dtype",
        "torchscript",
        "transformers.js_config",
        "transformers_version",
        "use_bfloat16",
        "use_cache",
        # Matrix products in pieces, with the same sums.
        "chunk_size_feed_forward",
        "pretraining_tp",
        # Training.
        "attention_dropout",
        "attn_pdrop",
        "classifier_dropout",
        "embd_pdrop",
        "gradient_checkpointing",
        "initializer_range",
        "resid_pdrop",
        # Other heads than that of the next token.
        "finetuning_task",
        "id2label",
        "label2id",
        "num_labels",
        "problem_type",
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
        "task_specific_params",
        # What is returned beside logits.
        "is_decoder",
        "output_attentions",
        "output_hidden_states",
        "output_past",
        "return_dict",
        # Of text, which the tokenizer's files say; and the older name of a length that is read.
        "bos_token_id",
        "n_ctx",
        "pad_token_id",
        "unk_token_id",
    )
)
_INERT_PREFIXES = ("unsloth_",)
_SAMPLING = "sampling defaults outside generation_config.json"
_NEUTRAL_OF_ALL: Neutral = {
    "add_cross_attention": ((False,), "attention to another text"),
    "auto_map": ((), "code that comes with the model, which is not run"),
    "compression_config": ((), "its quantisation"),
    "do_sample": ((False,), _SAMPLING),
    "is_encoder_decoder": ((False,), "an encoder"),
    "partial_rotary_factor": ((1,), "rotary positions of a part of each head"),
    "pruned_heads": (({},), "layers with fewer heads"),
    "quantization_config": ((), "its quantisation; use the folder of the unquantised model, or a GGUF file"),
    "repetition_penalty": ((1,), _SAMPLING),
    "temperature": ((1,), _SAMPLING),
    "tie_encoder_decoder": ((False,), "an encoder"),
    "top_k": ((50,), _SAMPLING),
    "top_p": ((1,), _SAMPLING),
}


def architecture_of(keys: JsonKeys) -> Architecture:
    """Raises ModelFileError for one that is not run, with what would have to be built."""
    names = keys.items("architectures")
    if len(names) != 1 or not isinstance(names[0], str):
        keys.refuse("architectures", "is not a list of one name")
    name = names[0]
    if name not in ARCHITECTURES:
        needs = REFUSED.get(name, "its decoder")
        keys.refuse(
            "architectures",
            f"is {label(name)}, which is not implemented: {needs} would have to be built. "
            f"Supported are {', '.join(ARCHITECTURES)}",
        )
    architecture = ARCHITECTURES[name]
    if keys.text("model_type", MAX_NAME_BYTES) != architecture.model_type:
        keys.refuse("model_type", f"is not {architecture.model_type}, which {name} has")
    return architecture


def check_keys(keys: JsonKeys, architecture: Architecture) -> None:
    """Raise ModelFileError naming a key that would change the model and is not implemented."""
    neutral = {**_NEUTRAL_OF_ALL, **architecture.neutral}
    known = _READ_OF_ALL | _INERT | architecture.read
    for key in keys:
        if key in neutral:
            check_neutral(keys, key, *neutral[key])
        elif key not in known and not key.startswith(_INERT_PREFIXES):
            keys.refuse(key, "is not known, and may change what the model computes")


def check_neutral(keys: JsonKeys, key: str, allowed: tuple[Any, ...], needs: str) -> None:
    """Refuse a value that is neither null nor one of those allowed."""
    value = keys.value(key)
    if value is not None and not any(is_same(value, each) for each in allowed):
        keys.refuse(key, f"is {shown_value(value)}, which is not implemented: {needs} would have to be built")


def is_same(value: Any, other: Any) -> bool:
    """Equal, where a truth value is no number."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
