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
from typing import Protocol

from llguidance import LLMatcher

from model.decoding.constraint.vocabulary import Spelled, Spelling
from model.decoding.constraint.walk import PREFERENCES, Budget, Hints, Walk, Walker, completes

STEPS_PER_TOKEN = 16
"""Bytes that a walk may choose for each token that is left."""
MAX_ENDS = 128
"""Ends of an example that are tried."""


class Completion(Protocol):
    """A way to find completions."""

    def find(self, state: LLMatcher, text: bytes, tokens: int, budget: Budget, preference: int) -> "Found | None":
        """A completion of at most `tokens` tokens, from `state`, which is left as it is, after `text`; None when the
        budget ends first. Raises GrammarExhaustedError."""

    def shortest(self, state: LLMatcher, budget: Budget) -> "Found | None":
        """The shortest completion from the beginning that a few tries give. Raises GrammarExhaustedError."""


@dataclass(frozen=True, slots=True)
class Found:
    """A completion, and the number of the preference that led to it: the one to try first the next time."""

    spelled: Spelled
    preference: int = 0


class GrammarCompletion:
    """For any grammar: greedy walks first, then one changed decision at a time."""

    def __init__(self, spelling: Spelling, hints: Hints) -> None:
        self._spelling = spelling
        self._hints = hints

    def shortest(self, state: LLMatcher, budget: Budget) -> Found | None:
        steps = budget.steps // 2
        if completes(state, self._hints.example):
            return Found(self._spelling.spell(self._hints.example))
        found = [found for found, _ in self._tries(state, steps, budget, 0)]
        return min(found, key=lambda one: one.spelled.counts[0], default=None)

    def find(self, state: LLMatcher, text: bytes, tokens: int, budget: Budget, preference: int) -> Found | None:
        if (end := self._end_of_example(state, tokens, preference)) is not None:
            return end
        best: tuple[Found, Walk] | None = None
        for found, walk in self._tries(
            state, min(STEPS_PER_TOKEN * tokens + 64, budget.steps // 2), budget, preference
        ):
            if found.spelled.counts[0] <= tokens:
                return found
            if best is None or found.spelled.counts[0] < best[0].spelled.counts[0]:
                best = found, walk
        return None if best is None else self._improved(state, *best, tokens, budget)

    def _end_of_example(self, state: LLMatcher, tokens: int, preference: int) -> Found | None:
        """The shortest end of the example that completes the text, if it is short enough."""
        example = self._hints.example[-MAX_ENDS:]
        for start in range(len(example) - 1, -1, -1):
            if completes(state, example[start:]):
                found = Found(self._spelling.spell(example[start:]), preference)
                return found if found.spelled.counts[0] <= tokens else None
        return None

    def _tries(self, state: LLMatcher, steps: int, budget: Budget, first: int) -> Iterator[tuple[Found, Walk]]:
        texts = set()
        for turn in range(len(PREFERENCES)):
            number = (first + turn) % len(PREFERENCES)
            walk = Walker(state, PREFERENCES[number], self._hints).walk(b"", steps, budget)
            if walk is not None and walk.text not in texts:
                texts.add(walk.text)
                yield Found(self._spelling.spell(walk.text), number), walk

    def _improved(self, state: LLMatcher, best: Found, walk: Walk, tokens: int, budget: Budget) -> Found | None:
        """Make the first single change that helps, again and again. None when no single change helps."""
        while best.spelled.counts[0] > tokens:
            better = next(self._better(state, best, walk, tokens, budget), None)
            if better is None:
                return None
            best, walk = better
        return best

    def _better(
        self, state: LLMatcher, best: Found, walk: Walk, tokens: int, budget: Budget
    ) -> Iterator[tuple[Found, Walk]]:
        """Shorter completions that differ from `walk` in one decision, and in what follows from it."""
        for place, others in walk.decisions:
            for byte in others:
                if budget.changes <= 0:
                    return
                budget.changes -= 1
                walker = Walker(state, PREFERENCES[best.preference], self._hints)
                start = walk.text[:place] + bytes([byte])
                other = walker.walk(start, STEPS_PER_TOKEN * tokens + 64, budget)
                if other is None:
                    continue
                found = Found(self._spelling.spell(other.text), best.preference)
                if found.spelled.counts[0] < best.spelled.counts[0]:
                    yield found, other


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
