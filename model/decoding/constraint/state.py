"""The running state of one constrained sequence, and the witness that it can end in time.

Knows token ids and what is left; draws nothing. Always: `_witness` completes the text so far, in tokens that are
allowed and within what is left. A token is taken only if another witness is known after it; else the old one's next
token is; and where the grammar gives up, by a limit of its own, all that follow are. So a text always ends, and
conforms, whether it ends by an end token or at its limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from model.decoding.constraint.completion import Completion, Found
from model.decoding.constraint.grammar import Grammar
from model.decoding.constraint.mask import TokenMask
from model.decoding.constraint.usual import UsualSpellings
from model.decoding.constraint.vocabulary import BYTE_EOS, Spelled
from model.decoding.constraint.walk import Budget, GrammarExhaustedError

SETTLE_STEPS = 600
"""Steps of the search for another witness after a token."""
_NOTHING = Spelled(b"", (0,), (0,))


@dataclass(frozen=True, slots=True)
class Witness:
    """A known completion: what `found` spells from byte `place` on."""

    found: Found
    place: int = 0

    @property
    def count(self) -> int:
        """Its tokens, without one that ends the text."""
        return self.found.spelled.counts[self.place]

    @property
    def head(self) -> int | None:
        """Its next token; None at its end."""
        spelled = self.found.spelled
        return spelled.heads[self.place] if self.place < len(spelled.text) else None

    def after(self, written: bytes) -> "Witness | None":
        """The rest after `written`; None where it goes on with something else, or the rest cannot be spelled."""
        if self.found.spelled.text.startswith(written, self.place):
            return Witness(self.found, self.place + len(written))
        return None


@dataclass(frozen=True, slots=True)
class _Taken:
    """One token of the text, and what was known before it."""

    token_id: int
    written: bytes
    witness: Witness
    exhausted: bool


class Constraint:
    """What may come next in one sequence. A token is first settled and then taken: `settle`, `advance`."""

    def __init__(
        self,
        *,
        grammar: Grammar,
        tokens: LLMatcher,
        single_bytes: LLMatcher,
        mask: TokenMask,
        vocabulary: Sequence[bytes],
        usual: UsualSpellings,
        completion: Completion,
        witness: Found,
        max_new_tokens: int,
    ) -> None:
        """`tokens` and `single_bytes` are this sequence's own; `witness` fits `max_new_tokens`."""
        self._grammar = grammar
        self._tokens = tokens
        self._bytes = single_bytes
        self._mask = mask
        self._vocabulary = vocabulary
        self._usual = usual
        self._completion = completion
        self._witness = Witness(witness)
        self._max_new_tokens = max_new_tokens
        self._taken: list[_Taken] = []
        self._settled: tuple[int, Witness] | None = None
        self._exhausted = False

    @property
    def failed(self) -> bool:
        """Whether the grammar gave up, by a limit of its own, and the witness, which needs no grammar, is of no use."""
        return self._exhausted and self._witness.count > self.left

    @property
    def left(self) -> int:
        """Tokens that may still be taken."""
        return self._max_new_tokens - len(self._taken)

    @property
    def ended(self) -> bool:
        """Whether the last token ended the text."""
        return bool(self._taken) and self._taken[-1].token_id in self._mask.ends

    def mask(self) -> NDArray[np.uint32]:
        """The tokens that may come next: bit (id mod 32) of word (id div 32), ceil(vocabulary / 32) words, the caller's
        own. Never empty: where bans leave nothing else, or the grammar gave up, it is the witness's next token."""
        if not self._exhausted:
            words = self._mask.of(self._tokens)
            if self._tokens.is_error():
                self._renew()
                words = self._mask.of(self._tokens)
                self._exhausted = self._tokens.is_error()
            if words.any() and not self._exhausted:
                return self._mask.among(words, self._usual.after(taken.token_id for taken in self._taken))
        return self._mask.only(self._next_of_witness())

    def accepts(self, drafts: Sequence[int]) -> int:
        """How many of the drafted tokens, from the first on, the grammar allows after each other."""
        usable = next((i for i, draft in enumerate(drafts) if draft in self._mask.forbidden), len(drafts))
        drafted = list(drafts[:usable])
        if usable < len(drafts) and drafts[usable] in self._mask.ends:
            drafted.append(self._mask.end)
        return self._tokens.validate_tokens(drafted) if drafted and not (self.ended or self._exhausted) else 0

    def settle(self, token_id: int, left: int) -> int:
        """The token to take where `token_id` was drawn from the mask: itself, or the witness's next one.

        `left`: tokens that may still be taken, this one included; equal to the property.
        """
        witness = None if self._exhausted else self._tried(token_id, left - 1)
        if witness is None:
            token_id = self._next_of_witness()
            witness = self._witness.after(self._written(token_id)) or self._witness
        self._settled = token_id, witness
        return token_id

    def advance(self, token_id: int) -> None:
        """Take a token that `settle` returned. Raises ValueError for one that it would not return."""
        if self._settled is None or self._settled[0] != token_id:
            self.settle(token_id, self.left)
        settled, self._settled = self._settled, None
        written = self._written(token_id)
        if settled is None or settled[0] != token_id:
            if not self._exhausted:
                raise ValueError(f"token {token_id} was not settled")
            # The grammar gave up since the token was settled: the sequence has failed, and its step must not.
            settled = token_id, self._witness
        self._taken.append(_Taken(token_id, written, self._witness, self._exhausted))
        self._witness = settled[1]
        if token_id not in self._mask.ends and not self._exhausted:
            self._tokens.consume_token(token_id)
            self._bytes.consume_tokens(list(written))
            self._mend()

    def rollback(self, count: int) -> None:
        """Take back the last `count` tokens: the state is what it was before them."""
        if not count:
            return
        self._settled = None
        back, self._taken = self._taken[-count:], self._taken[:-count]
        was_exhausted = self._exhausted
        self._witness, self._exhausted = back[0].witness, back[0].exhausted
        if was_exhausted:
            if not self._exhausted:
                self._renew()
            return
        written = [taken.written for taken in back if taken.token_id not in self._mask.ends]
        self._tokens.rollback(len(written))
        self._bytes.rollback(sum(map(len, written)))
        self._mend()

    def fork(self) -> "Constraint":
        """A state of its own that goes on from here."""
        other = object.__new__(Constraint)
        other.__dict__ |= self.__dict__
        other._tokens, other._bytes = self._tokens.deep_copy(), self._bytes.deep_copy()
        other._taken = self._taken.copy()
        return other

    def _mend(self) -> None:
        """An error is believed only when a fresh grammar repeats it: what other sequences did must change nothing."""
        if self._tokens.is_error() or self._bytes.is_error():
            self._renew()
            self._exhausted = self._tokens.is_error() or self._bytes.is_error()

    def _renew(self) -> None:
        """Begin with fresh matchers, and take the text so far again."""
        taken = [taken for taken in self._taken if taken.token_id not in self._mask.ends]
        self._tokens, self._bytes = self._grammar.tokens(), self._grammar.single_bytes()
        for one in taken:
            # Each mask gives the matcher the fuel of another step, as it was given when the token came.
            self._mask.of(self._tokens)
            self._tokens.consume_token(one.token_id)
            for byte in one.written:
                self._bytes.compute_bitmask()
                self._bytes.consume_token(byte)

    def _tried(self, token_id: int, left: int) -> Witness | None:
        """As `_after`, with a fresh grammar where this one gives up."""
        try:
            return self._after(token_id, left)
        except GrammarExhaustedError:
            self._renew()
        try:
            return self._after(token_id, left)
        except GrammarExhaustedError:
            self._renew()
            return None

    def _written(self, token_id: int) -> bytes:
        return b"" if token_id in self._mask.forbidden else self._vocabulary[token_id]

    def _next_of_witness(self) -> int:
        head = self._witness.head
        return self._mask.end if head is None else head

    def _after(self, token_id: int, left: int) -> Witness | None:
        """A witness of at most `left` tokens after `token_id`; None when none is found."""
        if token_id in self._mask.ends:
            return self._witness if self._bytes.is_accepting() else None
        written = self._written(token_id)
        rest = self._witness.after(written)
        if rest is not None and rest.count <= left:
            return rest
        if not written or self._bytes.validate_tokens(list(written)) < len(written):
            self._check()
            return None
        if not self._bytes.consume_tokens(list(written)):
            raise GrammarExhaustedError
        try:
            return self._found(written, left)
        finally:
            self._bytes.rollback(len(written))

    def _found(self, written: bytes, left: int) -> Witness | None:
        """As `_after`, in the state after the token."""
        if left < 0:
            return None
        preference = self._witness.found.preference
        if self._bytes.is_accepting():
            return Witness(Found(_NOTHING, preference))
        old = self._witness.found.spelled.text[self._witness.place :]
        if self._witness.count <= left and self._completes(old):
            return self._witness
        text = b"".join(taken.written for taken in self._taken) + written
        found = self._completion.find(self._bytes, text, left, Budget(SETTLE_STEPS), preference)
        return None if found is None else Witness(found)

    def _completes(self, text: bytes) -> bool:
        """Whether the grammar accepts `text` after what it has seen, and an end there."""
        valid = self._bytes.validate_tokens([*text, BYTE_EOS])
        self._check()
        return valid == len(text) + 1

    def _check(self) -> None:
        if self._bytes.is_error():
            raise GrammarExhaustedError
