"""Tiny random Llama models: as GGUF files, and as the same weights in `transformers`.

`write_tiny_gguf(path, shape=…, format=…, seed=…)` writes a file that any GGUF reader loads;
`tiny_hf_model(shape=…, format=…, seed=…)` is the model that such a file must compute.
Always: the same shape, format and seed give the same weights in both, the rounding of the format included.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args

import gguf
import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import models, pre_tokenizers, trainers

from tests.block_formats import dequantised, stored_rows

FormatName = Literal[
    "F32",
    "F16",
    "BF16",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "IQ4_NL",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
]
EVERY_FORMAT: tuple[FormatName, ...] = get_args(FormatName)
FORMAT_NAMES: tuple[FormatName, ...] = EVERY_FORMAT[: EVERY_FORMAT.index("IQ4_NL")]
"""The formats that the `gguf` package writes, for any width that 32 divides."""
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_TEXT_ID, IM_START_ID, IM_END_ID = range(3)

CHAT_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_TRAINING_TEXT = """\
The seed lies in the ground and waits for the rain. When the rain has come, the seed opens, and the
first leaf finds the light. Whoever plants the same seed in the same ground will see the same flower:
that is what we ask of a machine that writes. The answer should depend on the question and on nothing
else; not on the hour, not on the weather, not on the other gardens. There were 12 rows and 34 beds.
def grow(seed):
    for day in range(100):
        seed = water(seed)
    return seed
Über den Gärten liegt Schnee. 種は土の中で雨を待つ。🌱🌱 naïve café
"""


@dataclass(frozen=True, slots=True)
class TinyShape:
    """Sizes of a tiny Llama. Block formats need every width to be a multiple of 32, K-quants of 256."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 16
    feed_forward: int = 96
    vocabulary: int = 320
    tied: bool = True
    context: int = 256
    rope_base: float = 10000.0
    rope_factor: float | None = None
    """Scales rotary positions as Llama 3 does, by this much."""
    epsilon: float = 1e-5


FOR_EVERY_FORMAT = TinyShape(layers=1, width=256, heads=4, kv_heads=2, head_width=64, feed_forward=256)
"""The least shape that K-quants have."""


@dataclass(frozen=True, slots=True)
class TinyVocabulary:
    """Byte-level BPE: control tokens, then 256 bytes, then one token for each merge, then unused ids."""

    tokens: tuple[str, ...]
    token_types: tuple[int, ...]
    merges: tuple[str, ...]


@cache
def tiny_vocabulary(size: int) -> TinyVocabulary:
    """Exactly `size` tokens (at least 259); ids that no merge fills are of type unused."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_TRAINING_TEXT], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    if len(tokens) > size:
        raise ValueError(f"a byte-level vocabulary needs at least {len(tokens)} tokens, not {size}")
    unused = [f"[unused{i}]" for i in range(size - len(tokens))]
    return TinyVocabulary(
        tokens=(*tokens, *unused),
        token_types=(
            *[int(gguf.TokenType.CONTROL)] * len(CONTROL_TOKENS),
            *[int(gguf.TokenType.NORMAL)] * (len(tokens) - len(CONTROL_TOKENS)),
            *[int(gguf.TokenType.UNUSED)] * len(unused),
        ),
        merges=tuple(" ".join(merge) for merge in model["merges"]),
    )


def tiny_weights(shape: TinyShape = TinyShape(), *, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Float32 weights by their GGUF names; q and k rows in the order of `transformers`, not of GGUF."""
    rng = np.random.default_rng(seed)
    query_width, kv_width = shape.heads * shape.head_width, shape.kv_heads * shape.head_width

    def matrix(outputs: int, inputs: int) -> NDArray[np.float32]:
        normal = rng.standard_normal((outputs, inputs), dtype=np.float32)
        return normal / np.float32(np.sqrt(inputs))

    def gain() -> NDArray[np.float32]:
        return np.float32(1) + np.float32(0.2) * rng.standard_normal(shape.width, dtype=np.float32)

    weights = {"token_embd.weight": matrix(shape.vocabulary, shape.width) * np.float32(4)}
    for layer in range(shape.layers):
        weights |= {
            f"blk.{layer}.attn_norm.weight": gain(),
            f"blk.{layer}.attn_q.weight": matrix(query_width, shape.width) * np.float32(2),
            f"blk.{layer}.attn_k.weight": matrix(kv_width, shape.width) * np.float32(2),
            f"blk.{layer}.attn_v.weight": matrix(kv_width, shape.width),
            f"blk.{layer}.attn_output.weight": matrix(shape.width, query_width),
            f"blk.{layer}.ffn_norm.weight": gain(),
            f"blk.{layer}.ffn_gate.weight": matrix(shape.feed_forward, shape.width),
            f"blk.{layer}.ffn_up.weight": matrix(shape.feed_forward, shape.width),
            f"blk.{layer}.ffn_down.weight": matrix(shape.width, shape.feed_forward),
        }
    weights["output_norm.weight"] = gain()
    if not shape.tied:
        weights["output.weight"] = matrix(shape.vocabulary, shape.width) * np.float32(4)
    return weights


def llama_3_factors(head_width: int, base: float, factor: float) -> list[float]:
    """What Llama 3 divides each rotary frequency by, computed one at a time as converters do."""
    factors = []
    for i in range(0, head_width, 2):
        wave_length = 2 * math.pi * base ** (i / head_width)
        if wave_length < 8192 / 4.0:
            factors.append(1.0)
        elif wave_length > 8192 / 1.0:
            factors.append(factor)
        else:
            smooth = (8192 / wave_length - 1.0) / (4.0 - 1.0)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return factors


def permute_for_gguf(weight: NDArray[Any], head_count: int) -> NDArray[Any]:
    """Rows of q or k as GGUF stores them: the halves of each head, which RoPE pairs up, interleaved."""
    half = weight.shape[0] // head_count // 2
    return weight.reshape(head_count, 2, half, -1).swapaxes(1, 2).reshape(weight.shape)


def _permuted(name: str, weight: NDArray[Any], shape: TinyShape) -> NDArray[Any]:
    if ".attn_q." in name:
        return permute_for_gguf(weight, shape.heads)
    if ".attn_k." in name:
        return permute_for_gguf(weight, shape.kv_heads)
    return weight


def add_metadata(writer: gguf.GGUFWriter, shape: TinyShape, *, name: str = "tiny") -> None:
    """Everything that a file says beside its weights."""
    writer.add_name(name)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_width)
    writer.add_value_length(shape.head_width)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_vocab_size(shape.vocabulary)
    add_metadata_of_text(writer, shape.vocabulary)


def add_metadata_of_text(writer: gguf.GGUFWriter, vocabulary_size: int) -> None:
    """The tiny vocabulary, its control tokens and the chat template."""
    vocabulary = tiny_vocabulary(vocabulary_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(list(vocabulary.token_types))
    writer.add_token_merges(list(vocabulary.merges))
    writer.add_bos_token_id(IM_START_ID)
    writer.add_eos_token_id(IM_END_ID)
    writer.add_unk_token_id(END_OF_TEXT_ID)
    writer.add_pad_token_id(IM_END_ID)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def write_tiny_gguf(
    path: Path,
    *,
    shape: TinyShape = TinyShape(),
    format: FormatName = "F32",
    seed: int = 0,
    weights: Mapping[str, NDArray[np.float32]] | None = None,
) -> Path:
    """Write the model to `path` with every matrix in `format` (gains stay F32) and return the path.

    `weights` stand in place of those that `tiny_weights` makes of the seed.
    """
    writer = gguf.GGUFWriter(path, "llama")
    add_metadata(writer, shape)
    for name, weight in (weights or tiny_weights(shape, seed=seed)).items():
        kind = gguf.GGMLQuantizationType["F32" if weight.ndim == 1 else format]
        writer.add_tensor(name, _permuted(name, stored_rows(weight, kind.name), shape), raw_dtype=kind)
    if shape.rope_factor is not None:
        factors = llama_3_factors(shape.head_width, shape.rope_base, shape.rope_factor)
        writer.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def rounded_weights(
    shape: TinyShape = TinyShape(), *, format: FormatName = "F32", seed: int = 0
) -> dict[str, NDArray[np.float32]]:
    """`tiny_weights` after the rounding of `format`: what a correct loader must find in the file."""
    return {
        name: weight if weight.ndim == 1 else dequantised(stored_rows(weight, format), format)
        for name, weight in tiny_weights(shape, seed=seed).items()
    }


_HF_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hf_name(gguf_name: str) -> str:
    """The `transformers` parameter that holds the tensor `gguf_name` of a Llama."""
    *layer, part, suffix = gguf_name.split(".")
    prefix = f"model.layers.{layer[1]}." if layer else ""
    return f"{prefix}{_HF_NAMES[part]}.{suffix}"


def _rope_parameters(shape: TinyShape) -> dict[str, Any]:
    if shape.rope_factor is None:
        return {"rope_type": "default", "rope_theta": shape.rope_base}
    return {
        "rope_type": "llama3",
        "rope_theta": shape.rope_base,
        "factor": shape.rope_factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


def tiny_hf_model(
    shape: TinyShape = TinyShape(), *, format: FormatName = "F32", seed: int = 0, dtype: str = "float32"
) -> Any:
    """The `transformers.LlamaForCausalLM` that computes what the file of the same arguments holds.

    `dtype` is a torch type's name; float64 holds the same weights exactly.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=shape.width,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_width,
        vocab_size=shape.vocabulary,
        max_position_embeddings=shape.context,
        rms_norm_eps=float(np.float32(shape.epsilon)),  # as the file holds it
        rope_parameters=_rope_parameters(shape),
        tie_word_embeddings=shape.tied,
        bos_token_id=IM_START_ID,
        eos_token_id=IM_END_ID,
    )
    config._attn_implementation = "eager"
    model = cast(Any, LlamaForCausalLM(config)).to(getattr(torch, dtype)).eval()
    weights = rounded_weights(shape, format=format, seed=seed)
    state = {hf_name(name): torch.tensor(weight) for name, weight in weights.items()}
    if shape.tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    return model
