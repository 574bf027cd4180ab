"""Which tokens may come next, as bits.

Always: an id that is silent or banned is never allowed, and one that ends the text is exactly where the text may end.
"""

from collections.abc import Iterable

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray


def bits_of(token_ids: Iterable[int], vocabulary_size: int) -> NDArray[np.uint32]:
    """Bit (id mod 32) of word (id div 32) for each of the ids, in ceil(vocabulary / 32) words."""
    words = np.zeros((vocabulary_size + 31) // 32, dtype=np.uint32)
    for token_id in token_ids:
        words[token_id // 32] |= np.uint32(1 << token_id % 32)
    return words


class TokenMask:
    """What one compiled constraint takes from every mask, and adds where the text may end."""

    def __init__(self, vocabulary_size: int, forbidden: frozenset[int], ends: frozenset[int]) -> None:
        """`ends` are the ids that end a text, in spite of `forbidden`."""
        self._vocabulary_size = vocabulary_size
        self._allowed = ~bits_of(forbidden, vocabulary_size)
        self._ends = bits_of(ends, vocabulary_size)
        self.end = min(ends)
        self.ends = ends
        self.forbidden = forbidden

    def of(self, matcher: LLMatcher) -> NDArray[np.uint32]:
        """The mask of a state: words as in `bits_of`."""
        words = np.empty_like(self._allowed)
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        words &= self._allowed
        if matcher.is_accepting():
            words |= self._ends
        return words

    def among(self, words: NDArray[np.uint32], token_ids: Iterable[int]) -> NDArray[np.uint32]:
        """Of a mask the tokens with these ids and those that end the text; all of it where there is none of these."""
        some = words & bits_of(token_ids, self._vocabulary_size)
        return some | (words & self._ends) if some.any() else words

    def only(self, token_id: int) -> NDArray[np.uint32]:
        """A mask of one token."""
        return bits_of([token_id], self._vocabulary_size)
