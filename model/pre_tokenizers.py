"""How byte-level BPE cuts text into words before it joins anything, by the names that GGUF files use.

Knows patterns, no vocabularies. Always: the words joined are the text.
"""

from collections.abc import Mapping

from tokenizers import Regex, pre_tokenizers

from model.loading.checkpoint import ModelFileError

PATTERNS: Mapping[str, str] = {
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "tekken": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
"""The one pattern that words match, as the models' own tokenizers write it."""
IGNORE_MERGES = frozenset(("llama-bpe", "tekken"))
"""Those whose models take a word that is a token as that token; a GGUF file does not say so itself."""

_BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
_GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _split_at(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


_PRE_TOKENIZERS: dict[str, pre_tokenizers.PreTokenizer] = {
    "gpt-2": _GPT2,
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _GPT2]),
    # What llama.cpp does with files that say "default", which is not GPT-2's rule: punctuation stands apart first
    # and digits go in threes.
    "default": pre_tokenizers.Sequence(
        [
            _split_at(r"[\p{P}\$\+<=>\^~\|]+"),
            _split_at(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"),
            _split_at(r"\p{N}+"),
            _split_at(r"[0-9][0-9][0-9]"),
            _BYTE_LEVEL,
        ]
    ),
    **{name: pre_tokenizers.Sequence([_split_at(pattern), _BYTE_LEVEL]) for name, pattern in PATTERNS.items()},
}


def pre_tokenizer_named(name: str) -> pre_tokenizers.PreTokenizer:
    """Raises ModelFileError for a name that is not known."""
    found = _PRE_TOKENIZERS.get(name)
    if found is None:
        known = ", ".join(sorted(_PRE_TOKENIZERS))
        raise ModelFileError(f"pre-tokenizer {name!r} is not implemented; known: {known}")
    return found
