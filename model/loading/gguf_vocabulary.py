"""What a GGUF file says about text: vocabulary, chat template and its own sampling defaults.

Knows no tokenizer. Always: tokens are unique and not empty, every merge joins two tokens into a third, and the
ids named are ids of tokens.
"""

import math
import re
from collections.abc import Mapping

import numpy as np

from model.loading.checkpoint import MAX_TEMPLATE_BYTES, GenerationDefaults, Vocabulary, VocabularyForm
from model.loading.cursor import shown
from model.loading.gguf_metadata import Metadata
from model.pre_tokenizers import IGNORE_MERGES

MAX_NAME_BYTES = 256
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
BYTE_FALLBACK = "byte-fallback-bpe"
FORMS: Mapping[str, VocabularyForm] = {
    "gpt2": "byte_level",
    "llama": "sentencepiece",
    BYTE_FALLBACK: "byte_fallback",
}
IGNORES_MERGES = "tokenizer.ggml.ignore_merges"
"""Written by this program, for vocabularies that differ from what their pre-tokenizer's name says of it."""

BOS_BY_DEFAULT = frozenset(("llama-bpe", "tekken"))
"""Pre-tokenizers whose texts begin with the BOS token unless the file says otherwise."""

_TOKENS = "tokenizer.ggml.tokens"
_TYPES = "tokenizer.ggml.token_type"
_MERGES = "tokenizer.ggml.merges"
_BOS = "tokenizer.ggml.bos_token_id"
ENDS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
"""Keys that name an id that ends a text."""
_MODEL = "tokenizer.ggml.model"
_SCORES = "tokenizer.ggml.scores"
_SPACE_PREFIX = "tokenizer.ggml.add_space_prefix"
_BYTE_SPELLING = re.compile("<0x[0-9A-F]{2}>")


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    """The vocabulary of a file, in one of three forms by `tokenizer.ggml.model`.

    "gpt2" is byte-level BPE and "llama" SentencePiece's. BYTE_FALLBACK is written by this program alone, for
    vocabularies of `tokenizer.json` that have merges where SentencePiece has scores.
    """
    form = FORMS.get(metadata.text(_MODEL, MAX_NAME_BYTES))
    if form is None:
        named = metadata.text(_MODEL, MAX_NAME_BYTES)
        metadata.refuse(_MODEL, f"is {shown(named)}; supported are {', '.join(map(repr, FORMS))}")
    # Other forms have no words; files name some pre-tokenizer all the same, or none.
    pre_tokenizer = metadata.text("tokenizer.ggml.pre", MAX_NAME_BYTES) if form == "byte_level" else ""
    tokens = _read_tokens(metadata)
    types = _read_types(metadata, tokens, form)
    bos = metadata.integer(_BOS, 0, len(tokens) - 1) if _BOS in metadata else None
    begins_with_bos = form == "sentencepiece" or pre_tokenizer in BOS_BY_DEFAULT
    adds_bos = metadata.flag("tokenizer.ggml.add_bos_token", default=begins_with_bos)
    if adds_bos and bos is None:
        metadata.refuse(_BOS, "is missing, though texts begin with it")
    return Vocabulary(
        pre_tokenizer=pre_tokenizer,
        tokens=tokens,
        merges=() if form == "sentencepiece" else _read_merges(metadata, frozenset(tokens)),
        control_token_ids=_of_type(types, CONTROL, UNKNOWN),
        user_defined_token_ids=_of_type(types, USER_DEFINED),
        eos_token_ids=frozenset(metadata.integer(key, 0, len(tokens) - 1) for key in ENDS if key in metadata),
        bos_token_id=bos,
        adds_bos=adds_bos,
        form=form,
        scores=_read_scores(metadata, len(tokens)) if form == "sentencepiece" else (),
        unused_token_ids=_of_type(types, UNUSED),
        byte_token_ids=_of_type(types, BYTE),
        adds_space_prefix=_adds_space_prefix(metadata, form),
        ignores_merges=metadata.flag(IGNORES_MERGES, default=pre_tokenizer in IGNORE_MERGES),
    )


def _of_type(types: list[int], *kinds: int) -> frozenset[int]:
    return frozenset(token_id for token_id, kind in enumerate(types) if kind in kinds)


def _adds_space_prefix(metadata: Metadata, form: VocabularyForm) -> bool:
    adds = metadata.flag(_SPACE_PREFIX, default=form == "sentencepiece")
    if adds and form == "byte_level":
        metadata.refuse(_SPACE_PREFIX, "is not implemented for byte-level BPE")
    return adds


def _read_scores(metadata: Metadata, token_count: int) -> tuple[float, ...]:
    scores = metadata.numbers(_SCORES)
    if len(scores) != token_count:
        metadata.refuse(_SCORES, f"has {len(scores)} entries for {token_count} tokens")
    if not all(map(math.isfinite, scores)):
        metadata.refuse(_SCORES, "holds a NaN or an infinity")
    return scores


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


def _read_types(metadata: Metadata, tokens: tuple[str, ...], form: VocabularyForm) -> list[int]:
    types = metadata.integers(_TYPES)
    most = UNUSED if form == "byte_level" else BYTE
    if len(types) != len(tokens):
        metadata.refuse(_TYPES, f"has {len(types)} entries for {len(tokens)} tokens")
    strange = set(types).difference(range(NORMAL, most + 1))
    if strange:
        metadata.refuse(_TYPES, f"holds the type {min(strange)}; allowed are {NORMAL} to {most}")
    for token_id in _of_type(types, BYTE):
        if not _BYTE_SPELLING.fullmatch(tokens[token_id]):
            metadata.refuse(_TYPES, f"calls {shown(tokens[token_id])} a byte")
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
