"""What a GGUF file says about text: vocabulary, chat template and its own sampling defaults.

Knows no tokenizer. Always: tokens are unique and not empty, every merge joins two tokens into a third, and the
ids named are ids of tokens.
"""

import numpy as np

from model.loading.checkpoint import MAX_TEMPLATE_BYTES, GenerationDefaults, Vocabulary
from model.loading.cursor import shown
from model.loading.gguf_metadata import Metadata

MAX_NAME_BYTES = 256
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5
TOKEN_TYPES = (NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED)

BOS_BY_DEFAULT = frozenset(
    (
        "falcon-h1",
        "falcon3",
        "jina-v5-nano",
        "lfm2",
        "llama-bpe",
        "llama-v3",
        "llama3",
        "midm-2.0",
        "pixtral",
        "tekken",
    )
)
"""Pre-tokenizers whose texts begin with the BOS token unless the file says otherwise."""

_TOKENS = "tokenizer.ggml.tokens"
_TYPES = "tokenizer.ggml.token_type"
_MERGES = "tokenizer.ggml.merges"
_BOS = "tokenizer.ggml.bos_token_id"
_ENDS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    model = metadata.text("tokenizer.ggml.model", MAX_NAME_BYTES)
    if model != "gpt2":
        metadata.refuse("tokenizer.ggml.model", f"is {shown(model)}; only byte-level BPE ('gpt2') is supported")
    pre_tokenizer = metadata.text("tokenizer.ggml.pre", MAX_NAME_BYTES)
    tokens = _read_tokens(metadata)
    types = _read_types(metadata, len(tokens))
    bos = metadata.integer(_BOS, 0, len(tokens) - 1) if _BOS in metadata else None
    adds_bos = metadata.flag("tokenizer.ggml.add_bos_token", default=pre_tokenizer in BOS_BY_DEFAULT)
    if adds_bos and bos is None:
        metadata.refuse(_BOS, "is missing, though texts begin with it")
    return Vocabulary(
        pre_tokenizer=pre_tokenizer,
        tokens=tokens,
        merges=_read_merges(metadata, frozenset(tokens)),
        control_token_ids=frozenset(i for i, kind in enumerate(types) if kind in (CONTROL, UNKNOWN)),
        user_defined_token_ids=frozenset(i for i, kind in enumerate(types) if kind == USER_DEFINED),
        eos_token_ids=frozenset(metadata.integer(key, 0, len(tokens) - 1) for key in _ENDS if key in metadata),
        bos_token_id=bos,
        adds_bos=adds_bos,
    )


def _read_tokens(metadata: Metadata) -> tuple[str, ...]:
    tokens = metadata.texts(_TOKENS)
    if not tokens:
        metadata.refuse(_TOKENS, "is empty")
    seen: dict[str, int] = {}
    for token_id, token in enumerate(tokens):
        if not token:
            metadata.refuse(_TOKENS, f"holds an empty token, id {token_id}")
        first = seen.setdefault(token, token_id)
        if first != token_id:
            metadata.refuse(_TOKENS, f"holds {shown(token)} twice, as ids {first} and {token_id}")
    return tokens


def _read_types(metadata: Metadata, token_count: int) -> list[int]:
    types = metadata.integers(_TYPES)
    if len(types) != token_count:
        metadata.refuse(_TYPES, f"has {len(types)} entries for {token_count} tokens")
    strange = set(types).difference(TOKEN_TYPES)
    if strange:
        metadata.refuse(_TYPES, f"holds the type {min(strange)}; allowed are {NORMAL} to {UNUSED}")
    return types


def _read_merges(metadata: Metadata, tokens: frozenset[str]) -> tuple[str, ...]:
    merges = metadata.texts(_MERGES)
    if len(set(merges)) != len(merges):
        metadata.refuse(_MERGES, "holds a merge twice")
    for rank, merge in enumerate(merges):
        left, _, right = merge.partition(" ")
        if not (left in tokens and right in tokens and left + right in tokens):
            metadata.refuse(_MERGES, f"holds {shown(merge)} as entry {rank}, which does not join two tokens into one")
    return merges


def read_chat_template(metadata: Metadata) -> str | None:
    key = "tokenizer.chat_template"
    return metadata.text(key, MAX_TEMPLATE_BYTES) if key in metadata else None


def read_defaults(metadata: Metadata) -> GenerationDefaults:
    """The sampling that the file recommends; fields that it does not name are None."""

    def number(key: str, least: float, most: float) -> float | None:
        return _as_written(metadata.number(key, least, most)) if key in metadata else None

    top_k = "general.sampling.top_k"
    return GenerationDefaults(
        temperature=number("general.sampling.temp", 0, 2),
        top_k=metadata.integer(top_k, 0, 1 << 31) if top_k in metadata else None,
        top_p=number("general.sampling.top_p", 1e-6, 1),
        min_p=number("general.sampling.min_p", 0, 1),
    )


def _as_written(number: float) -> float:
    """The shortest decimal with this float32: files hold 0.9 as 0.8999999761…, and 0.9 was meant."""
    return float(str(np.float32(number)))
