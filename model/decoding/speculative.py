"""Guesses of the tokens to come: where they are taken from, how often they hold, and how many are worth a row.

Knows token ids and seconds that it is given; knows no model and no requests.
Always: no guess changes an answer, since it is kept only where it is the token that is drawn anyway. So everything here
may depend on luck and load.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul

MOST_GUESSES = 15
"""Of one sequence in one step."""
CANDIDATES = 16
"""Earlier places that are compared with the end of the ids, the most recent first."""
LONGEST_MATCH = 32
"""Equal tokens after which a place is not compared further."""
MATCHES = ((17, 0.95), (9, 0.9), (5, 0.8), (3, 0.6), (2, 0.35))
"""From how many equal tokens on a guess is expected to hold how often, before anything was seen."""
FORGETTING = 0.95
"""Weight of the past at each new guess: about the last twenty count."""
PRIOR_WEIGHT = 2.0
"""How many guesses the expectation before the first one is worth."""
LEAST_GAIN = 0.02
"""Guessing begins where it is expected to make texts faster by about this share."""

Cost = Callable[[int], float]
"""Seconds of a step of so many rows."""


class PromptLookup:
    """Finds where the last tokens stood before, in the prompt or in the answer (prompt lookup decoding, Saxena 2023).

    Every pair of tokens links to the place where it stood before, as in the hash chains of LZ77: a new token costs
    constant time, and so does a look-up.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._after: dict[tuple[int, int], int] = {}
        # For each place: the last one before it that follows the same two tokens; 0 where there is none.
        self._earlier = [0]

    def __len__(self) -> int:
        return len(self._ids)

    def extend(self, ids: Iterable[int]) -> None:
        """Tokens that came since."""
        known, after = self._ids, self._after
        for token_id in ids:
            place, pair = len(known) + 1, (known[-1] if known else -1, token_id)
            known.append(token_id)
            self._earlier.append(after.get(pair, 0))
            after[pair] = place

    def find(self, most: int) -> "tuple[tuple[int, ...], int]":
        """What followed the longest equal end, the most recent of several, and how many tokens were equal.

        Nothing for fewer than two equal tokens. Where the ids end, what was found follows itself.
        """
        best = matched = 0
        place = self._earlier[-1]
        for _ in range(CANDIDATES):
            if not place or matched == LONGEST_MATCH:
                break
            equal = self._equal_before(place)
            # Two are equal by the chain; fewer say nothing.
            if equal > matched:
                best, matched = place, equal
            place = self._earlier[place]
        if not matched:
            return (), 0
        period = len(self._ids) - best
        return tuple(self._ids[best + number % period] for number in range(most)), matched

    def _equal_before(self, place: int) -> int:
        ids, end = self._ids, len(self._ids)
        most = min(place, LONGEST_MATCH)
        return next((n for n in range(most) if ids[place - 1 - n] != ids[end - 1 - n]), most)


class Acceptance:
    """The share of guesses that held lately."""

    __slots__ = ("_expected", "_held", "_seen", "_weight")

    def __init__(self, expected: float, weight: float = PRIOR_WEIGHT) -> None:
        self._expected = expected
        self._weight = weight
        self._held = 0.0
        self._seen = 0.0

    @property
    def rate(self) -> float:
        return (self._held + self._weight * self._expected) / (self._seen + self._weight)

    def observe(self, held: bool) -> None:
        self._held = FORGETTING * self._held + held
        self._seen = FORGETTING * self._seen + 1


@dataclass(frozen=True, slots=True)
class Guesses:
    """Tokens that may follow, and the chance of each that it holds and all before it."""

    tokens: tuple[int, ...] = ()
    chances: tuple[float, ...] = ()

    @classmethod
    def made(cls, tokens: tuple[int, ...], rates: Iterable[float]) -> "Guesses":
        """`rates` are the chances of each guess once those before it hold."""
        return cls(tokens, tuple(accumulate(rates, mul)))

    def first(self, count: int) -> "Guesses":
        return Guesses(self.tokens[:count], self.chances[:count])


class WatchedLookup:
    """A look-up that learns how far its guesses can be trusted, also from those that nobody ran."""

    def __init__(self) -> None:
        self._lookup = PromptLookup()
        self._acceptance = [Acceptance(expected) for _, expected in MATCHES]
        self._guessed: tuple[int, ...] = ()
        self._matched = 0
        self._is_behind = False

    def follow(self, ids: Sequence[int], most: int) -> int:
        """Take in at most so many of the tokens that came since the last call; answers how many.

        `ids` are all ids of the sequence. Nothing is guessed before all of them were taken in.
        """
        new = ids[len(self._lookup) : len(self._lookup) + most]
        for number, (guess, token_id) in enumerate(zip(self._guessed, new, strict=False)):
            self._of_match(self._matched + number).observe(guess == token_id)
            if guess != token_id:
                break
        self._guessed = ()
        self._lookup.extend(new)
        self._is_behind = len(self._lookup) < len(ids)
        return len(new)

    def guess(self) -> Guesses:
        """What may follow the ids."""
        if self._is_behind:
            return Guesses()
        self._guessed, self._matched = self._lookup.find(MOST_GUESSES)
        rates = (self._of_match(self._matched + number).rate for number in range(len(self._guessed)))
        return Guesses.made(self._guessed, rates)

    def _of_match(self, matched: int) -> Acceptance:
        return next(
            acceptance for (least, _), acceptance in zip(MATCHES, self._acceptance, strict=True) if matched >= least
        )


def expected_gain(chances: Sequence[float], rows: int, before_s: float, after_s: float) -> float:
    """What guesses of one sequence do for all of `rows` texts, as a sum of logarithms of speed.

    Its text gets more tokens a step, and the step takes longer for everyone: proportional fairness (Kelly 1997).
    """
    return math.log1p(sum(chances)) - rows * math.log(after_s / before_s)


def allot(chances: Sequence[Sequence[float]], rows: int, cost: Cost) -> list[int]:
    """How many guesses of each sequence to run in a step of `rows` other rows, one for each text.

    Takes the guesses that speed up their texts most, as long as all texts together gain (see `expected_gain`).
    """
    counts = [0] * len(chances)
    if not any(chances):
        return counts
    order = sorted(
        ((-gain, which) for which, of_one in enumerate(chances) for gain in _gains(of_one)),
    )
    before = cost(rows)
    gained, best, best_count = 0.0, LEAST_GAIN, 0
    for count, (loss, _) in enumerate(order, start=1):
        gained -= loss
        net = gained - rows * math.log(cost(rows + count) / before)
        if net > best:
            best, best_count = net, count
    for _, which in order[:best_count]:
        counts[which] += 1
    return counts


def _gains(chances: Sequence[float]) -> list[float]:
    """By how much each further guess raises the logarithm of the tokens that a step is expected to bring."""
    expected = list(accumulate(chances, initial=1.0))
    return [math.log(after / before) for before, after in pairwise(expected)]
