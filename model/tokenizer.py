"""Text to token ids and back, for byte-level BPE vocabularies.

Knows no model, no chat format and no stop rule.
Always: text never encodes to a control id, since the BPE is built without their spellings; and text comes back
as it went in, since what the vocabulary cannot spell is refused.
"""

from collections.abc import Iterable

import tokenizers
from tokenizers import AddedToken, Regex, models, pre_tokenizers

from model.loading.checkpoint import ModelFileError, Vocabulary

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
}


class UnknownTokenId(ValueError):
    """An id that the vocabulary does not have."""

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__(f"token id outside 0 … {vocabulary_size - 1}")


class UnencodableText(ValueError):
    """Text with a lone surrogate, or with a character that the vocabulary has no tokens for."""


class Tokenizer:
    """A byte-level BPE over one vocabulary. Immutable; any thread may call it, and encoding frees the others."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Raises ModelFileError when the vocabulary needs what is not implemented, or contradicts itself."""
        self.vocabulary_size = len(vocabulary.tokens)
        self.eos_token_ids = vocabulary.eos_token_ids
        self.control_token_ids = vocabulary.control_token_ids
        self.bos_token_id = vocabulary.bos_token_id
        self._prefix = _prefix(vocabulary)
        self._written = _written_bytes(vocabulary)
        self._single_bytes = b"".join(
            written
            for token_id, written in enumerate(self._written)
            if len(written) == 1 and token_id not in self.control_token_ids
        )
        self._bpe = _build(vocabulary)

    def encode(self, text: str) -> list[int]:
        """The ids of `text` as text alone: a control token's spelling stays letters.

        Raises UnencodableText.
        """
        self.require_encodable(text)
        # `encode` holds the interpreter lock for its whole run, a tenth of a second for a long prompt; this does not.
        return self._bpe.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def encode_prompt(self, text: str) -> list[int]:
        """The ids of a prompt: as `encode`, after the beginning-of-text token where the model adds one."""
        return self._prefix + self.encode(text)

    def require_encodable(self, text: str) -> None:
        """Raise UnencodableText unless the vocabulary can spell every character of `text`."""
        try:
            missing = text.encode().translate(None, delete=self._single_bytes)
        except UnicodeEncodeError as problem:
            raise UnencodableText(f"character {problem.start} is a lone surrogate") from None
        if missing:
            position = next(i for i, c in enumerate(text) if c.encode().translate(None, self._single_bytes))
            raise UnencodableText(
                f"character {position} (U+{ord(text[position]):04X}) has no token in the model's vocabulary"
            )

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of `token_ids`, control tokens written out, invalid UTF-8 as U+FFFD. Raises UnknownTokenId."""
        return b"".join(map(self._written_out, token_ids)).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """What a token adds to a text: nothing for a control token. Raises UnknownTokenId."""
        written = self._written_out(token_id)
        return b"" if token_id in self.control_token_ids else written

    def token_text(self, token_id: int) -> str:
        """One token for reading: control tokens written out, parts of characters as U+FFFD. Raises UnknownTokenId."""
        return self._written_out(token_id).decode(errors="replace")

    def _written_out(self, token_id: int) -> bytes:
        if not 0 <= token_id < self.vocabulary_size:
            raise UnknownTokenId(self.vocabulary_size)
        return self._written[token_id]


def _prefix(vocabulary: Vocabulary) -> list[int]:
    if not vocabulary.adds_bos:
        return []
    assert vocabulary.bos_token_id is not None, "the loader refuses a file that adds a token and does not name it"
    return [vocabulary.bos_token_id]


def _byte_alphabet() -> dict[str, int]:
    """The letter that stands for each byte in the spellings of GPT-2's vocabulary and its descendants."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + place): byte for place, byte in enumerate(others)}


# Characters that are no letters of the alphabet become one that Latin-1 cannot encode, so that they show.
_LETTER_TO_BYTE = dict.fromkeys(range(256), 0xFFFF) | {ord(letter): byte for letter, byte in _byte_alphabet().items()}


def _written_bytes(vocabulary: Vocabulary) -> list[bytes]:
    """The bytes of each token: those its letters stand for, or its spelling where it is no part of the BPE."""
    verbatim = vocabulary.control_token_ids | vocabulary.user_defined_token_ids
    written = []
    for token_id, spelling in enumerate(vocabulary.tokens):
        if token_id in verbatim:
            written.append(spelling.encode())
            continue
        try:
            written.append(spelling.translate(_LETTER_TO_BYTE).encode("latin-1"))
        except UnicodeEncodeError:
            raise ModelFileError(f"token {token_id} is not spelled in the byte alphabet") from None
    return written


def _build(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    pre_tokenizer = _PRE_TOKENIZERS.get(vocabulary.pre_tokenizer)
    if pre_tokenizer is None:
        known = ", ".join(sorted(_PRE_TOKENIZERS))
        raise ModelFileError(f"pre-tokenizer {vocabulary.pre_tokenizer!r} is not implemented; known: {known}")
    ids = {
        spelling: token_id
        for token_id, spelling in enumerate(vocabulary.tokens)
        if token_id not in vocabulary.control_token_ids
    }
    bpe = tokenizers.Tokenizer(_bpe_model(ids, vocabulary.merges))
    bpe.pre_tokenizer = pre_tokenizer
    bpe.add_tokens(
        [
            AddedToken(vocabulary.tokens[token_id], normalized=False)
            for token_id in sorted(vocabulary.user_defined_token_ids)
        ]
    )
    return bpe


def _bpe_model(ids: dict[str, int], merges: tuple[str, ...]) -> models.BPE:
    pairs = []
    for merge in merges:
        left, _, right = merge.partition(" ")
        pairs.append((left, right))
    try:
        return models.BPE(vocab=ids, merges=pairs)
    except Exception as problem:  # the library raises nothing narrower
        raise ModelFileError(f"the merges make a token that text must not make: {problem}") from problem
