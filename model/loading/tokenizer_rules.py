"""The parts of a `tokenizer.json`: what each may say, and what that means for a vocabulary.

Knows JSON values and the names of pre-tokenizers, no files.
Always: a form that is not known raises Refusal with the name of the part.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model.loading.checkpoint import SPACE_MARK
from model.loading.cursor import shown
from model.pre_tokenizers import PATTERNS


class Refusal(Exception):
    """What a part says cannot be used; `reason` begins with its name."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class AddedToken:
    token_id: int
    spelling: str
    special: bool
    normalized: bool
    """Whether it is looked for in what the normalizer makes of a text."""


def added_tokens(stated: Any, most: int) -> list[AddedToken]:
    """The entries of `added_tokens`, with ids below `most`."""
    if stated is None:
        return []
    if not isinstance(stated, list):
        raise Refusal("added_tokens is not a list")
    return [_added_token(each, most) for each in stated]


def _added_token(stated: Any, most: int) -> AddedToken:
    if not isinstance(stated, dict):
        raise Refusal("added_tokens holds what is no object")
    token_id, spelling, special = stated.get("id"), stated.get("content"), stated.get("special", False)
    if type(token_id) is not int or not 0 <= token_id < most:
        raise Refusal(f"added_tokens holds an id that is not one of 0 to {most - 1}")
    if not isinstance(spelling, str) or not spelling or not isinstance(special, bool):
        raise Refusal(f"added_tokens holds an id {token_id} without content")
    for option in ("single_word", "lstrip", "rstrip"):
        if stated.get(option, False) is not False:
            raise Refusal(f"added_tokens: {option} of {shown(spelling)} is not implemented")
    return AddedToken(token_id, spelling, special, stated.get("normalized") is True)


_MODEL_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "dropout": (None, 0, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
}
_MODEL_READ = frozenset(
    ("type", "vocab", "merges", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges", *_MODEL_NEUTRAL)
)


def token_ids(model: Mapping[str, Any], added: Sequence[AddedToken], most: int) -> dict[str, int]:
    """Every token of the model and of `added_tokens`, by its spelling."""
    _check_model(model)
    stated = model.get("vocab")
    if not isinstance(stated, dict) or not stated:
        raise Refusal("model.vocab is not an object of ids")
    ids = dict(stated)
    if not all(type(token_id) is int and 0 <= token_id < most for token_id in ids.values()) or "" in ids:
        raise Refusal(f"model.vocab holds an empty token, or an id that is not one of 0 to {most - 1}")
    for each in added:
        if ids.setdefault(each.spelling, each.token_id) != each.token_id:
            raise Refusal(f"added_tokens gives {shown(each.spelling)} another id than model.vocab")
    if len(set(ids.values())) != len(ids):
        raise Refusal("model.vocab and added_tokens give two tokens the same id")
    return ids


def _check_model(model: Mapping[str, Any]) -> None:
    # Older files name no type; merges are BPE's alone.
    kind = model.get("type", "BPE" if "merges" in model else None)
    if kind != "BPE":
        raise Refusal(f"model.type is {_summary(kind)}; supported is 'BPE'")
    for key in sorted(model.keys() - _MODEL_READ):
        raise Refusal(f"model: {shown(key)} is not implemented")
    for key, allowed in _MODEL_NEUTRAL.items():
        if model.get(key) not in allowed:
            raise Refusal(f"model.{key} is not implemented for {_summary(model[key])}")


def merges_of(model: Mapping[str, Any], ids: Mapping[str, int], without: frozenset[str]) -> tuple[str, ...]:
    """Each merge as "left right". Those that join to a token of `without` are left out: such a token is no text."""
    stated = model.get("merges")
    if not isinstance(stated, list):
        raise Refusal("model.merges is not a list")
    merges: dict[str, None] = {}
    for rank, each in enumerate(stated):
        left, right = _pair(each, rank)
        if not (left in ids and right in ids and left + right in ids):
            raise Refusal(f"model.merges: entry {rank} does not join two tokens into one")
        if f"{left} {right}" in merges:
            raise Refusal(f"model.merges: entry {rank} stands there twice")
        merges[f"{left} {right}"] = None
    return tuple(each for each in merges if without.isdisjoint((*each.split(" "), each.replace(" ", ""))))


def _pair(stated: Any, rank: int) -> list[str]:
    parts = stated.split(" ") if isinstance(stated, str) else stated
    match parts:
        case [str(left), str(right)] if left and right and " " not in left + right:
            return [left, right]
    raise Refusal(f"model.merges: entry {rank} is no pair of tokens")


def pre_tokenizer_of(said: Mapping[str, Any]) -> str:
    """The name of a byte-level vocabulary's pre-tokenizer; its normalizer and decoder must be the usual ones.

    A normalizer NFC is known and not applied: a text is encoded as it was written, and comes back so.
    """
    if not _is_any(said.get("normalizer"), (None, _NFC, {"type": "Sequence", "normalizers": [_NFC]})):
        raise Refusal(f"normalizer {_summary(said['normalizer'])} is not implemented")
    decoder = said.get("decoder")
    if decoder is None or _without(decoder, *_BYTE_LEVEL_OPTIONS, "add_prefix_space") != {"type": "ByteLevel"}:
        raise Refusal(f"decoder {_summary(decoder)} is not implemented")
    stated = said.get("pre_tokenizer")
    steps = stated.get("pretokenizers") if isinstance(stated, dict) and stated.get("type") == "Sequence" else [stated]
    if isinstance(steps, list) and steps and _is_byte_level(steps[-1]):
        name = _named(steps[:-1], splits=steps[-1].get("use_regex", True))
        if name is not None:
            return name
    raise Refusal(f"pre_tokenizer {_summary(stated)} is not implemented")


_NFC = {"type": "NFC"}
_BYTE_LEVEL_OPTIONS = ("trim_offsets", "use_regex")


def _is_byte_level(stated: Any) -> bool:
    plain = {"type": "ByteLevel", "add_prefix_space": False}
    return isinstance(stated, dict) and _without(stated, *_BYTE_LEVEL_OPTIONS) == plain


def _named(before: list[Any], *, splits: bool) -> str | None:
    """The pre-tokenizer of these steps before bytes become letters; `splits`: whether that step splits too."""
    if splits:
        by_steps = {"[]": "gpt-2", _canonical([{"type": "Digits", "individual_digits": True}]): "smollm"}
        return by_steps.get(_canonical(before))
    for name, pattern in PATTERNS.items():
        step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
        if _canonical(before) in (_canonical([step]), _canonical([step | {"invert": False}])):
            return name
    return None


_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK}
_NO_SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
_TO_SPACES = [
    {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def space_prefix_of(said: Mapping[str, Any], added: Sequence[AddedToken]) -> bool:
    """Whether a vocabulary with "▁" for a space, and these added tokens, puts one before each text.

    Published files say so in three ways: a normalizer that writes "▁", with a prefix or without, or a pre-tokenizer
    Metaspace. A pre-tokenizer that splits at spaces, of which the normalizer left none, does nothing.
    """
    decoder = said.get("decoder")
    decoders = [{"type": "Sequence", "decoders": [*_TO_SPACES, *more]} for more in ([], [_STRIP])]
    if not _is_any(decoder, decoders):
        raise Refusal(f"decoder {_summary(decoder)} is not implemented")
    normalizer, pre_tokenizer = said.get("normalizer"), said.get("pre_tokenizer")
    if normalizer is None:
        return _metaspace(pre_tokenizer)
    if not _is_any(pre_tokenizer, (None, _NO_SPLIT)):
        raise Refusal(f"pre_tokenizer {_summary(pre_tokenizer)} is not implemented")
    prefixed = [{"type": "Prepend", "prepend": SPACE_MARK}, _SPACES]
    if _is_any(normalizer, ({"type": "Sequence", "normalizers": prefixed},)):
        for each in added:
            if each.normalized and not each.special:
                # The library would look for it behind a space alone: the normalizer puts one before its spelling too.
                raise Refusal(f"added_tokens: normalized of {shown(each.spelling)} is not implemented")
        return True
    if _is_any(normalizer, (_SPACES, {"type": "Sequence", "normalizers": [_SPACES]})):
        return False
    raise Refusal(f"normalizer {_summary(normalizer)} is not implemented")


def _metaspace(stated: Any) -> bool:
    plain = {"type": "Metaspace", "replacement": SPACE_MARK, "split": False}
    if isinstance(stated, dict) and _without(stated, "prepend_scheme") == plain:
        scheme = stated.get("prepend_scheme")
        if scheme in ("first", "always", "never"):
            return bool(scheme != "never")
    raise Refusal(f"pre_tokenizer {_summary(stated)} is not implemented")


def begins_with(stated: Any, ids: Mapping[str, int]) -> list[int]:
    """The tokens that a post-processor puts before a text; one that puts any behind it is refused."""
    steps = stated.get("processors") if isinstance(stated, dict) and stated.get("type") == "Sequence" else [stated]
    if not isinstance(steps, list):
        raise Refusal("post_processor is not implemented")
    begins: list[int] = []
    for step in steps:
        kind = step.get("type") if isinstance(step, dict) else step
        if kind == "TemplateProcessing":
            begins += _template(step.get("single"), ids)
        elif kind not in (None, "ByteLevel"):
            raise Refusal(f"post_processor {_summary(step)} is not implemented")
    return begins


def _template(single: Any, ids: Mapping[str, int]) -> list[int]:
    *before, last = single if isinstance(single, list) and single else [None]
    begins = []
    for piece in before:
        special = piece.get("SpecialToken") if isinstance(piece, dict) else None
        spelling = special.get("id") if isinstance(special, dict) else None
        if not isinstance(spelling, str) or spelling not in ids:
            raise Refusal(f"post_processor: {_summary(piece)} before a text is not implemented")
        begins.append(ids[spelling])
    if not isinstance(last, dict) or last.keys() != {"Sequence"}:
        raise Refusal(f"post_processor: {_summary(last)} behind a text is not implemented")
    return begins


def _is_any(stated: Any, allowed: Sequence[Any]) -> bool:
    return any(_canonical(stated) == _canonical(each) for each in allowed)


def _canonical(stated: Any) -> str:
    """One text for equal values, in which false is not 0."""
    return json.dumps(stated, sort_keys=True)


def _without(stated: Any, *keys: str) -> Any:
    return {key: value for key, value in stated.items() if key not in keys} if isinstance(stated, dict) else stated


def _summary(stated: Any) -> str:
    return shown(json.dumps(stated, ensure_ascii=False))
