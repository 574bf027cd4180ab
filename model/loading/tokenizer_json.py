"""A `tokenizer.json` and the small files beside it as a `Vocabulary`.

Knows the forms in which byte-level BPE (GPT-2, SmolLM2, Llama 3, Qwen2, Qwen3, Mistral NeMo) and SentencePiece's BPE
with byte fallback (Llama 2, Mistral, Gemma) are published; knows no tokenizer library.
Always: what could change how text becomes tokens is read, or does nothing, or is refused by name; every failure is a
ModelFileError; sizes are checked before anything is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.loading.checkpoint import ModelFileError, Vocabulary
from model.loading.cursor import shown
from model.loading.model_file import ModelFile
from model.loading.safetensors import parsed_json
from model.loading.tokenizer_rules import (
    AddedToken,
    Refusal,
    added_tokens,
    begins_with,
    merges_of,
    pre_tokenizer_of,
    space_prefix_of,
    token_ids,
)

TOKENIZER = "tokenizer.json"
SETTINGS = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
MAX_TOKENIZER_BYTES = 128 << 20
MAX_SETTINGS_BYTES = 16 << 20
MAX_TOKENS = 1 << 20
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_TOP_LEVEL = frozenset(
    (
        "version",
        "truncation",
        "padding",
        "added_tokens",
        "normalizer",
        "pre_tokenizer",
        "post_processor",
        "decoder",
        "model",
    )
)


def read_tokenizer_json(folder: Path, vocabulary_size: int | None = None) -> Vocabulary:
    """The vocabulary of a model's folder.

    Args:
        folder: holds `tokenizer.json`, and perhaps `tokenizer_config.json` and `special_tokens_map.json`.
        vocabulary_size: rows of the model's embedding. Ids that the tokenizer leaves out up to there become unused
            tokens: no text encodes to them and they add nothing to a text. Special tokens past it are left out.

    Returns:
        The vocabulary; of ids that end a text it knows the tokenizer's `eos_token` alone.

    Raises:
        ModelFileError: for what cannot be read, contradicts itself or is not implemented, and for other tokens past
            `vocabulary_size`.
    """
    path = folder / TOKENIZER
    try:
        return _read(_object(path, MAX_TOKENIZER_BYTES), _settings(folder), vocabulary_size)
    except Refusal as refusal:
        raise ModelFileError(refusal.reason, path=path) from None


def _read(said: Mapping[str, Any], settings: "_Settings", vocabulary_size: int | None) -> Vocabulary:
    for key in said.keys() - _TOP_LEVEL:
        raise Refusal(f"{shown(key)} is not implemented")
    model = said.get("model")
    if not isinstance(model, dict):
        raise Refusal("model is missing")
    added = _known_to_model(added_tokens(said.get("added_tokens"), MAX_TOKENS), vocabulary_size)
    ids = token_ids(model, added, MAX_TOKENS)
    tokens, unused = _by_id(ids, vocabulary_size)
    eos = _id_of(settings.eos_token, ids, "eos_token")
    bos, adds_bos = _beginning(said, settings, ids)
    spaced = model.get("byte_fallback") is True
    if settings.adds_prefix_space and not spaced:
        raise Refusal(f"add_prefix_space of {SETTINGS} is not implemented")
    control = _control(added, model, ids)
    byte_ids = frozenset(ids[each] for each in _BYTES if each in ids) if spaced else frozenset()
    user_defined = frozenset(each.token_id for each in added if not each.special) - control
    return Vocabulary(
        pre_tokenizer="" if spaced else pre_tokenizer_of(said),
        tokens=tokens,
        merges=merges_of(model, ids, without=frozenset(tokens[each] for each in control)),
        control_token_ids=control,
        user_defined_token_ids=user_defined,
        eos_token_ids=frozenset(() if eos is None else (eos,)),
        bos_token_id=bos,
        adds_bos=adds_bos,
        form="byte_fallback" if spaced else "byte_level",
        unused_token_ids=unused,
        byte_token_ids=byte_ids,
        adds_space_prefix=spaced and space_prefix_of(said, added),
        ignores_merges=model.get("ignore_merges") is True,
    )


def _beginning(said: Mapping[str, Any], settings: "_Settings", ids: Mapping[str, int]) -> tuple[int | None, bool]:
    """The token for the beginning of a text, and whether texts begin with it.

    The settings come first; a post-processor says what they do not.
    """
    begins = begins_with(said.get("post_processor"), ids)
    bos = _id_of(settings.bos_token, ids, "bos_token")
    if bos is None and begins:
        bos = begins[0]
    if begins not in ([], [bos]):
        raise Refusal("post_processor puts another token than bos_token before texts, which is not implemented")
    adds_bos = bool(begins) if settings.adds_bos is None else settings.adds_bos
    if adds_bos and bos is None:
        raise Refusal("bos_token is missing, though texts begin with it")
    return bos, adds_bos


def _known_to_model(added: Sequence[AddedToken], vocabulary_size: int | None) -> list[AddedToken]:
    """Without special tokens past the model's rows: no text spells them, and the model can neither read nor write them.

    The text-only models of Gemma 3 come with the token of an image, which has no row.
    """
    return [each for each in added if not (each.special and vocabulary_size and each.token_id >= vocabulary_size)]


def _control(added: Sequence[AddedToken], model: Mapping[str, Any], ids: Mapping[str, int]) -> frozenset[int]:
    """Special tokens, and the one for what cannot be spelled."""
    unknown = model.get("unk_token")
    special = frozenset(each.token_id for each in added if each.special)
    return special | {ids[unknown]} if isinstance(unknown, str) and unknown in ids else special


def _by_id(ids: Mapping[str, int], vocabulary_size: int | None) -> tuple[tuple[str, ...], frozenset[int]]:
    """The spellings in the order of ids, and the ids that have none of their own."""
    needed = max(ids.values()) + 1
    size = needed if vocabulary_size is None else vocabulary_size
    if needed > size:
        raise Refusal(f"has tokens up to id {needed - 1}; the model has {size} rows")
    by_id = {token_id: spelling for spelling, token_id in ids.items()}
    unused = frozenset(range(size)) - by_id.keys()
    for token_id in unused:
        filler = f"[unused id {token_id}]"
        if filler in ids:
            raise Refusal(f"holds {shown(filler)}, the name of an id without a token")
        by_id[token_id] = filler
    return tuple(by_id[token_id] for token_id in range(size)), unused


def _id_of(spelling: str | None, ids: Mapping[str, int], name: str) -> int | None:
    if spelling is None:
        return None
    if spelling not in ids:
        raise Refusal(f"lacks {shown(spelling)}, the {name} of {SETTINGS}")
    return ids[spelling]


@dataclass(frozen=True, slots=True)
class _Settings:
    """What the files beside `tokenizer.json` say."""

    bos_token: str | None
    eos_token: str | None
    adds_bos: bool | None
    adds_prefix_space: bool | None


def _settings(folder: Path) -> _Settings:
    path = folder / SETTINGS
    said = _optional(path)
    special = _optional(folder / SPECIAL_TOKENS)
    names = {}
    for name in ("bos_token", "eos_token"):
        stated = said[name] if name in said else special.get(name)
        content = stated.get("content") if isinstance(stated, dict) else stated
        if stated is not None and not isinstance(content, str):
            raise ModelFileError(f"{name} is no token", path=path)
        names[name] = content
    for name in ("add_eos_token", "do_lower_case"):
        if _flag(path, said, name):
            raise ModelFileError(f"{name} is not implemented", path=path)
    return _Settings(
        bos_token=names["bos_token"],
        eos_token=names["eos_token"],
        adds_bos=_flag(path, said, "add_bos_token"),
        adds_prefix_space=_flag(path, said, "add_prefix_space"),
    )


def _flag(path: Path, said: Mapping[str, Any], name: str) -> bool | None:
    flag = said.get(name)
    if not isinstance(flag, bool | None):
        raise ModelFileError(f"{name} is not a truth value", path=path)
    return flag


def _optional(path: Path) -> Mapping[str, Any]:
    return _object(path, MAX_SETTINGS_BYTES) if path.exists() else {}


def _object(path: Path, most_bytes: int) -> dict[str, Any]:
    file = ModelFile(path)
    if file.size > most_bytes:
        raise file.error(f"is {file.size} bytes long; allowed are {most_bytes}")
    try:
        said = parsed_json(file.read(0, file.size).tobytes())
    except ValueError as problem:
        raise file.error(f"is not valid JSON: {shown(str(problem))}") from None
    if not isinstance(said, dict):
        raise file.error("is not an object")
    return said
