"""A short text that completes what a grammar has seen so far: found by walking the grammar byte by byte.

Knows bytes and a grammar over single bytes, and counts in tokens through a `Spelling`. Two ways: `ChoiceCompletion`
knows all texts and is exact; `GrammarCompletion` walks with fixed preferences (end as soon as it may, close what is
open, open nothing) and, where that is too long, changes one decision at a time.
Always: what is found is accepted by the grammar to its last byte; and it depends on the grammar, the text so far and
the limits alone: they count steps, never time.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from llguidance import LLMatcher

from model.decoding.constraint.vocabulary import Spelled, Spelling


class GrammarExhaustedError(Exception):
    """The grammar reached a limit of its own; a fresh one may go further, for what a lexer has met stays in it."""


MAX_BYTES = 1 << 16
"""Of a completion: more than any context holds."""
ALTERNATIVES = 6
"""Other bytes that are tried at each decision."""
STEPS_PER_TOKEN = 16
"""Bytes that a walk may choose for each token that is left."""
MOST_VISITS = 64
"""A walk that has stood so often where the same bytes may come next gives up."""
MOST_LOOKS = 3
"""How often it looks for something new there."""
COMMON = tuple(b"a%ca" % sign for sign in b"@.-_:/,#+= ")
"""What a free text may have to hold that no grammar names as a word."""
_QUOTE = ord('"')


@dataclass(slots=True)
class Budget:
    """What a search may still do."""

    steps: int
    """Bytes that may be chosen, or looked at."""
    changes: int = 0
    """Decisions of a completion that is too long that may be changed."""


class Completion(Protocol):
    """A way to find completions."""

    def find(self, state: LLMatcher, text: bytes, tokens: int, budget: Budget, preference: int) -> "Found | None":
        """A completion of at most `tokens` tokens, from `state`, which is left as it is, after `text`; None when the
        budget ends first. Raises GrammarExhaustedError."""

    def shortest(self, state: LLMatcher, budget: Budget) -> "Found | None":
        """The shortest completion from the beginning that a few tries give. Raises GrammarExhaustedError."""


def _every(first: bytes, last: bytes) -> bytes:
    """Every byte once: `first`, the others that are printable, what is not, and `last`."""
    middle = (*range(0x21, 0x7F), 0x20, *range(0x80, 0x100), 0x0A, *range(0x20), 0x7F)
    return bytes(dict.fromkeys((*first, *(byte for byte in middle if byte not in last), *last)))


_ENDING, _OPENING = b"}])>\",;:@!?%&|=~#$'`", b" \n\t/*^.+-<[{(\\"
_LETTERS, _DIGITS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", b"1234567890"
_TIMES = b"TZ"
"""Before other letters: some readers know no others in a date and time, though the lower case is allowed too."""
WIDE = 48
"""Where at least so many bytes may come next, the text is free: inside a string, say."""


@dataclass(frozen=True, slots=True)
class Preference:
    """Which byte a walk takes where several may come next: every byte, in order."""

    narrow: bytes
    """Where the text is not free."""
    wide: bytes
    """Where it is."""
    curious: bool = False
    """Whether a walk that comes back to where it was looks for a byte that leads somewhere new."""
    patient: bool = False
    """Whether it goes on in a free text when it has come back many times."""


_FREE = _every(b'"' + _LETTERS + _DIGITS, _OPENING)
PREFERENCES = (
    Preference(_every(_ENDING + _TIMES + _LETTERS + _DIGITS, _OPENING), _FREE),
    Preference(_every(_ENDING + _TIMES + _LETTERS + _DIGITS, _OPENING), _FREE, curious=True),
    # Long runs of spaces and of some signs are single tokens, which counts where a text must only be long.
    Preference(_every(_ENDING + _DIGITS + _TIMES + _LETTERS, _OPENING), _every(b'" -=*_', b"[{(<\\"), patient=True),
)
"""For each try."""


@dataclass(frozen=True, slots=True)
class Found:
    """A completion, and the number of the preference that led to it: the one to try first the next time."""

    spelled: Spelled
    preference: int = 0


@dataclass(frozen=True, slots=True)
class _Walk:
    """A completion's bytes, and where along it something else could have been chosen."""

    text: bytes
    decisions: tuple[tuple[int, bytes], ...]
    """(place, other bytes that the grammar allowed there, in the order of preference)."""


class _Walker:
    """One walk from a state to the nearest end."""

    def __init__(self, state: LLMatcher, preference: Preference, hints: Sequence[bytes]) -> None:
        self._matcher = state.deep_copy()
        self._preference = preference
        self._hints = hints
        self._text = bytearray()
        self._decisions: list[tuple[int, bytes]] = []
        self._visits: dict[int, int] = {}

    def walk(self, start: bytes, steps: int, budget: Budget) -> _Walk | None:
        """Over `start` to an end. None when there is none within `steps`."""
        self._take(start)
        until = budget.steps - min(steps, budget.steps)
        while budget.steps > until:
            budget.steps -= 1
            self._take(bytes(self._matcher.compute_ff_tokens()))
            if self._matcher.is_accepting():
                return _Walk(bytes(self._text), tuple(self._decisions))
            if len(self._text) > MAX_BYTES or not self._choose(budget):
                return None
        return None

    def _take(self, some: bytes) -> None:
        self._text += some
        if not self._matcher.consume_tokens(list(some)):
            raise GrammarExhaustedError

    def _choose(self, budget: Budget) -> bool:
        allowed = _allowed(self._matcher)
        visit = self._visits.get(allowed, 0)
        self._visits[allowed] = visit + 1
        wide = allowed.bit_count() >= WIDE
        if visit > MOST_VISITS and not (wide and self._preference.patient):
            return False
        if wide and not visit and (hint := self._hint()):
            self._take(hint)
            return True
        choices = _ordered(allowed, self._preference.wide if wide else self._preference.narrow)
        if not choices:
            return False
        taken = 0
        if self._preference.curious and visit and len(choices) > 1 and not (wide and choices[0] == _QUOTE):
            taken = self._new(choices, visit, budget)
        if len(choices) > 1:
            others = choices[:taken] + choices[taken + 1 :]
            self._decisions.append((len(self._text), others[:ALTERNATIVES]))
        self._take(choices[taken : taken + 1])
        return True

    def _new(self, choices: bytes, visit: int, budget: Budget) -> int:
        """Which of `choices` leads to where the walk has not been; else each in turn."""
        if visit <= MOST_LOOKS:
            for number, byte in enumerate(choices):
                self._matcher.consume_token(byte)
                allowed = 0 if self._matcher.compute_ff_tokens() else _allowed(self._matcher)
                accepting = self._matcher.is_accepting()
                self._matcher.rollback(1)
                budget.steps -= 1
                if accepting or allowed not in self._visits:
                    return number
        return visit % len(choices)

    def _hint(self) -> bytes | None:
        """A text that the grammar names and that leads somewhere new."""
        for hint in self._hints:
            if self._matcher.validate_tokens(list(hint)) < len(hint):
                continue
            matcher = self._matcher.deep_copy()
            matcher.consume_tokens(list(hint))
            if matcher.is_accepting() or _allowed(matcher) not in (0, *self._visits):
                return hint
        return None


class GrammarCompletion:
    """For any grammar: greedy walks first, then one changed decision at a time."""

    def __init__(self, spelling: Spelling, hints: Sequence[bytes] = ()) -> None:
        """`hints` are texts that the grammar's source names; a free text may have to end with one."""
        self._spelling = spelling
        self._hints = (*hints, *COMMON)

    def shortest(self, state: LLMatcher, budget: Budget) -> Found | None:
        steps = budget.steps // 2
        found = [found for found, _ in self._tries(state, steps, budget, 0)]
        return min(found, key=lambda one: one.spelled.counts[0], default=None)

    def find(self, state: LLMatcher, text: bytes, tokens: int, budget: Budget, preference: int) -> Found | None:
        best: tuple[Found, _Walk] | None = None
        for found, walk in self._tries(
            state, min(STEPS_PER_TOKEN * tokens + 64, budget.steps // 2), budget, preference
        ):
            if found.spelled.counts[0] <= tokens:
                return found
            if best is None or found.spelled.counts[0] < best[0].spelled.counts[0]:
                best = found, walk
        return None if best is None else self._improved(state, *best, tokens, budget)

    def _tries(self, state: LLMatcher, steps: int, budget: Budget, first: int) -> Iterator[tuple[Found, _Walk]]:
        texts = set()
        for turn in range(len(PREFERENCES)):
            number = (first + turn) % len(PREFERENCES)
            walk = _Walker(state, PREFERENCES[number], self._hints).walk(b"", steps, budget)
            if walk is not None and walk.text not in texts:
                texts.add(walk.text)
                yield Found(self._spelling.spell(walk.text), number), walk

    def _improved(self, state: LLMatcher, best: Found, walk: _Walk, tokens: int, budget: Budget) -> Found | None:
        """Make the first single change that helps, again and again. None when no single change helps."""
        while best.spelled.counts[0] > tokens:
            better = next(self._better(state, best, walk, tokens, budget), None)
            if better is None:
                return None
            best, walk = better
        return best

    def _better(
        self, state: LLMatcher, best: Found, walk: _Walk, tokens: int, budget: Budget
    ) -> Iterator[tuple[Found, _Walk]]:
        """Shorter completions that differ from `walk` in one decision, and in what follows from it."""
        for place, others in walk.decisions:
            for byte in others:
                if budget.changes <= 0:
                    return
                budget.changes -= 1
                walker = _Walker(state, PREFERENCES[best.preference], self._hints)
                start = walk.text[:place] + bytes([byte])
                other = walker.walk(start, STEPS_PER_TOKEN * tokens + 64, budget)
                if other is None:
                    continue
                found = Found(self._spelling.spell(other.text), best.preference)
                if found.spelled.counts[0] < best.spelled.counts[0]:
                    yield found, other


@lru_cache(4096)
def _ordered(allowed: int, order: bytes) -> bytes:
    """The bytes whose bits are set, in this order."""
    return bytes(byte for byte in order if allowed >> byte & 1)


def _allowed(matcher: LLMatcher) -> int:
    """The bytes that may come next, as bits. Raises GrammarExhaustedError."""
    mask = int.from_bytes(matcher.compute_bitmask()[:32], "little")
    if matcher.is_error() and matcher.stop_reason() not in ("NoExtension", "NoExtensionBias"):
        raise GrammarExhaustedError
    return 0 if matcher.is_error() else mask


class ChoiceCompletion:
    """For texts that are all known: every one that still fits is looked at, the shortest first."""

    def __init__(self, spelling: Spelling, texts: Sequence[bytes]) -> None:
        self._spelling = spelling
        self._texts = sorted(texts)

    def shortest(self, state: LLMatcher, budget: Budget) -> Found | None:
        return Found(min(map(self._spelling.spell, self._texts), key=lambda spelled: spelled.counts[0]))

    def find(self, state: LLMatcher, text: bytes, tokens: int, budget: Budget, preference: int) -> Found | None:
        rests = []
        for candidate in self._texts[bisect_left(self._texts, text) :]:
            if not candidate.startswith(text):
                break
            rests.append(candidate[len(text) :])
        spelled = map(self._spelling.spell, sorted(rests, key=len))
        return next((Found(rest) for rest in spelled if rest.counts[0] <= tokens), None)
