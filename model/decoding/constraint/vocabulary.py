"""A vocabulary as llguidance sees it, and the spelling of bytes in the fewest tokens.

Always: a control token is special to the grammar, so no text makes it; `Spelling` uses the ids that it is given alone.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Protocol

from llguidance import LLTokenizer

BYTE_EOS = 256
"""The id that ends a text in the vocabulary of single bytes."""


class Tokenizer(Protocol):
    """What is needed of a tokenizer."""

    @property
    def vocabulary_size(self) -> int: ...

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    @property
    def control_token_ids(self) -> frozenset[int]: ...

    def encode_continuation(self, text: str) -> list[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def token_text(self, token_id: int) -> str: ...


class _Wrapped:
    """The form in which llguidance takes a tokenizer that is not one of its own."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, eos_token_id: int) -> None:
        self.eos_token_id = eos_token_id
        self.special_token_ids = sorted(tokenizer.control_token_ids | tokenizer.eos_token_ids)
        special = frozenset(self.special_token_ids)
        self.tokens = [
            tokenizer.token_text(token_id).encode() if token_id in special else tokenizer.token_bytes(token_id)
            for token_id in range(tokenizer.vocabulary_size)
        ]
        self._encode = tokenizer.encode_continuation

    def __call__(self, text: str) -> list[int]:
        return self._encode(text)


class _Bytes:
    """One token for each byte, and an end."""

    is_tokenizer_wrapper = True
    bos_token_id = None
    eos_token_id = BYTE_EOS
    special_token_ids = (BYTE_EOS,)
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")

    def __call__(self, text: str) -> list[int]:
        return list(text.encode())


def token_vocabulary(tokenizer: Tokenizer) -> LLTokenizer:
    """The model's own vocabulary; takes about a tenth of a second for 49,152 tokens."""
    ends = sorted(tokenizer.eos_token_ids)
    return LLTokenizer(_Wrapped(tokenizer, ends[0]), eos_token=ends)  # type: ignore[arg-type]


def byte_vocabulary() -> LLTokenizer:
    """Single bytes: the same grammar over it walks texts byte by byte, some microseconds each."""
    return LLTokenizer(_Bytes(), eos_token=BYTE_EOS, slices=[])  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Spelled:
    """Bytes and, from each place in them, the fewest tokens that spell the rest."""

    text: bytes
    counts: tuple[int, ...]
    """`counts[i]` tokens spell `text[i:]`; more than any limit where none do."""
    heads: tuple[int, ...]
    """The first of those tokens; undefined where none do."""


NEVER = 1 << 40
"""The count of tokens of what cannot be spelled."""


class Spelling:
    """Spells bytes in the fewest of the allowed tokens."""

    def __init__(self, vocabulary: Sequence[bytes], silent: frozenset[int]) -> None:
        """`vocabulary` holds each token's bytes; those of `silent` ids are no text. Of two tokens with the same bytes
        the lower id is used."""
        self._ids: dict[bytes, int] = {}
        self._longest: dict[bytes, int] = {}
        self._banned: frozenset[int] = frozenset()
        for token_id, written in enumerate(vocabulary):
            if written and token_id not in silent:
                self._ids.setdefault(written, token_id)
                start = written[:2]
                self._longest[start] = max(self._longest.get(start, 0), len(written))
        self.bytes_held = frozenset(b"".join(self._ids))

    def without(self, banned: frozenset[int]) -> "Spelling":
        """The same without these ids. Takes no memory for the vocabulary again."""
        other = copy(self)
        other._banned = self._banned | banned
        return other

    def spell(self, text: bytes) -> Spelled:
        """Of two spellings with as many tokens, the one with the shorter first token."""
        ids, longest, banned = self._ids, self._longest, self._banned
        size = len(text)
        counts, heads = [NEVER] * size + [0], [0] * size
        for start in range(size - 1, -1, -1):
            best, head = NEVER, 0
            most = start + longest.get(text[start : start + 2], 1)
            for end in range(start + 1, (most if most < size else size) + 1):
                if counts[end] < best:
                    token_id = ids.get(text[start:end])
                    if token_id is not None and token_id not in banned:
                        best, head = counts[end] + 1, token_id
            counts[start], heads[start] = min(best, NEVER), head
        return Spelled(text, tuple(counts), tuple(heads))
