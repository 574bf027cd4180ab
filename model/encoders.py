"""Text to token ids for each form of vocabulary, and the bytes that each token stands for.

Knows the libraries that do the joining. Always: text never encodes to a control or unused id, since no encoder
knows their spellings.
"""

import struct
from collections.abc import Iterator
from typing import Protocol

import sentencepiece
import tokenizers
from tokenizers import AddedToken, models, normalizers

from model.byte_alphabet import bytes_of
from model.loading.checkpoint import SPACE_MARK, ModelFileError, Vocabulary
from model.pre_tokenizers import pre_tokenizer_named


class Encoder(Protocol):
    def encode(self, text: str) -> list[int]:
        """The ids of text that the vocabulary can spell. Frees other threads while it runs."""


def encoder_of(vocabulary: Vocabulary) -> Encoder:
    """Raises ModelFileError when the vocabulary needs what is not implemented, or contradicts itself."""
    if vocabulary.form == "sentencepiece":
        return SentencePieceEncoder(vocabulary)
    return MergingEncoder(vocabulary)


class MergingEncoder:
    """BPE by merges: within words of bytes, or over characters with byte tokens for those that have no token."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        no_text = vocabulary.control_token_ids | vocabulary.unused_token_ids
        ids = {spelling: token_id for token_id, spelling in enumerate(vocabulary.tokens) if token_id not in no_text}
        self._bpe = tokenizers.Tokenizer(_bpe_model(ids, vocabulary))
        if vocabulary.form == "byte_level":
            self._bpe.pre_tokenizer = pre_tokenizer_named(vocabulary.pre_tokenizer)
        else:
            self._bpe.normalizer = normalizers.Replace(" ", SPACE_MARK)
        self._bpe.add_tokens(
            [
                AddedToken(vocabulary.tokens[token_id], normalized=False)
                for token_id in sorted(vocabulary.user_defined_token_ids)
            ]
        )

    def encode(self, text: str) -> list[int]:
        # `encode` holds the interpreter lock for its whole run, a tenth of a second for a long prompt; this does not.
        return self._bpe.encode_batch_fast([text], add_special_tokens=False)[0].ids


def _bpe_model(ids: dict[str, int], vocabulary: Vocabulary) -> models.BPE:
    pairs = []
    for merge in vocabulary.merges:
        left, _, right = merge.partition(" ")
        pairs.append((left, right))
    try:
        return models.BPE(
            vocab=ids,
            merges=pairs,
            byte_fallback=vocabulary.form == "byte_fallback",
            ignore_merges=vocabulary.ignores_merges,
        )
    except Exception as problem:  # the library raises nothing narrower
        raise ModelFileError(f"the merges make a token that text must not make: {problem}") from problem


_MORE = 0x80
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)


class SentencePieceEncoder:
    """BPE by scores, as the library that such vocabularies are trained with does it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=_model_proto(vocabulary))
        except RuntimeError as problem:
            raise ModelFileError(f"the vocabulary is none of SentencePiece: {problem}") from problem

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._processor.encode(text)
        return ids


def _model_proto(vocabulary: Vocabulary) -> bytes:
    """The vocabulary as SentencePiece's own model file, in the fields of its `ModelProto`.

    The library wants one piece for what cannot be spelled. It stands behind the vocabulary, whose own is one of the
    control tokens: with a token for each byte no text needs it.
    """
    unknown = "<unk>"
    while unknown in vocabulary.tokens:
        unknown += ">"
    pieces = [
        _piece(spelling.replace(" ", SPACE_MARK), score, _kind(vocabulary, token_id))
        for token_id, (spelling, score) in enumerate(zip(vocabulary.tokens, vocabulary.scores, strict=True))
    ]
    pieces.append(_piece(unknown, 0.0, _UNKNOWN))
    bpe, byte_fallback, unknown_id = _number(3, 2), _number(35, 1), _number(40, len(vocabulary.tokens))
    no_prefix, keep_spaces, mark_spaces = _number(3, 0), _number(4, 0), _number(5, 1)
    trainer = _data(2, bpe + byte_fallback + unknown_id)
    normalizer = _data(3, _data(1, b"identity") + no_prefix + keep_spaces + mark_spaces)
    return b"".join(pieces) + trainer + normalizer


def _kind(vocabulary: Vocabulary, token_id: int) -> int:
    if token_id in vocabulary.byte_token_ids:
        return _BYTE
    if token_id in vocabulary.user_defined_token_ids:
        return _USER_DEFINED
    no_text = token_id in vocabulary.control_token_ids or token_id in vocabulary.unused_token_ids
    return _CONTROL if no_text else _NORMAL


def _piece(spelling: str, score: float, kind: int) -> bytes:
    return _data(1, _data(1, spelling.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind))


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    if number < _MORE:
        return bytes([number])
    return bytes([number % _MORE | _MORE]) + _varint(number // _MORE)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _data(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def written_bytes(vocabulary: Vocabulary) -> list[bytes]:
    """The bytes of each token, control tokens written out; none for an unused one.

    Raises ModelFileError for a token that is not spelled as the form of the vocabulary says.
    """
    if vocabulary.form != "byte_level":
        return list(_piece_bytes(vocabulary))
    verbatim = vocabulary.control_token_ids | vocabulary.user_defined_token_ids
    written = []
    for token_id, spelling in enumerate(vocabulary.tokens):
        if token_id in vocabulary.unused_token_ids:
            written.append(b"")
        elif token_id in verbatim:
            written.append(spelling.encode())
        else:
            written.append(_letter_bytes(token_id, spelling))
    return written


def _letter_bytes(token_id: int, spelling: str) -> bytes:
    try:
        return bytes_of(spelling)
    except UnicodeEncodeError:
        raise ModelFileError(f"token {token_id} is not spelled in the byte alphabet") from None


def _piece_bytes(vocabulary: Vocabulary) -> Iterator[bytes]:
    for token_id, spelling in enumerate(vocabulary.tokens):
        if token_id in vocabulary.unused_token_ids:
            yield b""
        elif token_id in vocabulary.byte_token_ids:
            yield bytes([int(spelling[3:5], 16)])
        elif token_id in vocabulary.control_token_ids:
            yield spelling.encode()
        else:
            yield spelling.replace(SPACE_MARK, " ").encode()
