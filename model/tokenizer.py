"""Text to token ids and back, for byte-level BPE vocabularies and those of SentencePiece.

Knows no model, no chat format and no stop rule.
Always: text never encodes to a control id, since no encoder knows their spellings; and text comes back as it went
in, since what the vocabulary cannot spell is refused.
"""

from collections.abc import Iterable, Iterator

from model.encoders import encoder_of, written_bytes
from model.loading.checkpoint import SPACE_MARK, ModelFileError, Vocabulary


class UnknownTokenId(ValueError):
    """An id that the vocabulary does not have."""

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__(f"token id outside 0 … {vocabulary_size - 1}")


class UnencodableText(ValueError):
    """Text with a lone surrogate, or with a character that the vocabulary has no tokens for."""


class Tokenizer:
    """BPE over one vocabulary. Immutable; any thread may call it, and encoding frees the others."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Raises ModelFileError when the vocabulary needs what is not implemented, or contradicts itself."""
        self.vocabulary_size = len(vocabulary.tokens)
        self.eos_token_ids = vocabulary.eos_token_ids
        self.control_token_ids = vocabulary.control_token_ids | vocabulary.unused_token_ids
        """The ids that are no text. Unused ones have no spelling either."""
        self.bos_token_id = vocabulary.bos_token_id
        self._prefix = _prefix(vocabulary)
        self._space_prefix = " " if vocabulary.adds_space_prefix else ""
        self._written = written_bytes(vocabulary)
        self._single_bytes = b"".join(
            written
            for token_id, written in enumerate(self._written)
            if len(written) == 1 and token_id not in self.control_token_ids
        )
        self._space_mark_ids = _space_mark_ids(vocabulary)
        self._encoder = encoder_of(vocabulary)

    def encode(self, text: str) -> list[int]:
        """The ids of `text` as text alone: a control token's spelling stays letters.

        Raises UnencodableText.
        """
        return self.encode_continuation(self._space_prefix + text if text else text)

    def encode_continuation(self, text: str) -> list[int]:
        """As `encode`, of text that goes on from other text: where the model puts a space before texts, not here."""
        self.require_encodable(text)
        if not self._space_mark_ids:
            return self._encoder.encode(text)
        # Libraries take "▁" for the space that it stands for. Typed by a user it is a character as any other without
        # a token, and becomes its bytes.
        first, *others = text.split(SPACE_MARK)
        ids = self._encoder.encode(first)
        for piece in others:
            ids += self._space_mark_ids
            if piece:
                ids += self._encoder.encode(piece)
        return ids

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
        """The text of `token_ids`, control tokens written out, invalid UTF-8 as U+FFFD. Raises UnknownTokenId.

        Where the model puts a space before texts, one is taken off at the beginning and behind control tokens.
        """
        return b"".join(self._without_prefixes(token_ids)).decode(errors="replace")

    def _without_prefixes(self, token_ids: Iterable[int]) -> Iterator[bytes]:
        begins = bool(self._space_prefix)
        for token_id in token_ids:
            written = self._written_out(token_id)
            yield written.removeprefix(b" ") if begins else written
            begins = bool(self._space_prefix) and token_id in self.control_token_ids

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


def _space_mark_ids(vocabulary: Vocabulary) -> list[int]:
    """The byte tokens of "▁"; none where it means no space."""
    by_spelling = {vocabulary.tokens[token_id]: token_id for token_id in vocabulary.byte_token_ids}
    if vocabulary.form == "byte_level":
        return []
    missing = [byte for byte in range(256) if f"<0x{byte:02X}>" not in by_spelling]
    if missing:
        raise ModelFileError(f"the vocabulary has no token for the byte {missing[0]}")
    return [by_spelling[f"<0x{byte:02X}>"] for byte in SPACE_MARK.encode()]
