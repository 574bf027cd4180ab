"""Beam search as values: hypotheses that share their beginnings, and the best of those that have ended.

Knows tokens and their log-probabilities; knows no logits, pages or text.
Always: hypotheses rank by the float64 sum of their tokens' log-probabilities; ties by the parent's rank, then the
logit, then the id (definition 3.2). A step copies no list of tokens: each hypothesis points to what it continues.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from typing import Literal

from model.decoding.params import DecodingParameters, Drawn, Ranked
from model.decoding.stop_scan import StopScan

Ending = Literal["eos", "stop", "length", "deadline"]
Stopped = Literal["bound", "length", "deadline"]
"""Why a search ended: no live beam could beat what was kept, or the tokens or the time were used up."""
TokenEnding = Literal["eos", "stop"]
"""How a token may end a text."""
Verdict = Literal["live", "excluded"] | TokenEnding
"""What a candidate is: it goes on, it ends its text, or it may not follow."""

_POWERS = Context(prec=40)


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """The beginning of a text: one token after another hypothesis. The one without a parent is empty."""

    parent: "Hypothesis | None" = None
    token: Drawn | None = None
    length: int = 0
    """Generated tokens, EOS included."""
    logprob: float = 0.0
    """The sum over its tokens."""
    stops: StopScan | None = None

    @property
    def last_id(self) -> int:
        """The id of its last token."""
        assert self.token is not None, "the empty hypothesis has no token"
        assert self.token.token_id is not None, "a failed draw is in no hypothesis"
        return self.token.token_id

    def tokens(self, after: "Hypothesis | None" = None) -> list[Drawn]:
        """Its tokens in order; those that follow `after`, which it continues."""
        found = []
        node: Hypothesis | None = self
        while node is not None and node is not after:
            if node.token is not None:
                found.append(node.token)
            node = node.parent
        return found[::-1]


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A hypothesis that has ended."""

    hypothesis: Hypothesis
    score: float
    finish_reason: Ending


@dataclass(frozen=True, slots=True)
class Candidate:
    """One token after one live beam. `logprob` is of the whole sequence."""

    parent: int
    token_id: int
    logprob: float


Selection = tuple[list[Candidate], list[tuple[Candidate, Ending]]]
"""The candidates that live on, and those that end; both in the order of their ranks."""


@dataclass(frozen=True, slots=True)
class Row:
    """What may follow one live beam, the likeliest first."""

    ranked: Sequence[Ranked]
    complete: bool
    """Whether nothing else may follow it."""


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """Where a search stands after a step. `live` and `pool` begin with the best."""

    width: int
    most_tokens: int
    length_penalty: float = 0.0
    live: tuple[Hypothesis, ...] = field(default_factory=lambda: (Hypothesis(),))
    pool: tuple[Entry, ...] = ()
    """The best `width` of those that have ended: score descending, the earlier first where scores are equal."""
    stopped: Stopped | None = None

    def score(self, hypothesis: Hypothesis) -> float:
        """log-probability / length^α."""
        return hypothesis.logprob / power(hypothesis.length, self.length_penalty)

    def advance(self, live: Sequence[Hypothesis], ended: Iterable[tuple[Hypothesis, Ending]] = ()) -> "Search":
        """After a step that left these beams, and ended those, both in the order of their ranks."""
        after = replace(self, live=tuple(live), pool=self._pooled(ended))
        if live and live[0].length >= self.most_tokens:
            return after.cut("length")
        return after if after._may_improve() else replace(after, stopped="bound")

    def cut(self, reason: Literal["length", "deadline"]) -> "Search":
        """Stop here: the live beams have ended too, for this reason. They stay listed in `live`."""
        return replace(self, pool=self._pooled((each, reason) for each in self.live), stopped=reason)

    def _pooled(self, ended: Iterable[tuple[Hypothesis, Ending]]) -> tuple[Entry, ...]:
        new = [Entry(each, self.score(each), reason) for each, reason in ended]
        if not new:
            return self.pool
        return tuple(sorted((*self.pool, *new), key=lambda entry: -entry.score)[: self.width])

    def _may_improve(self) -> bool:
        """Whether a live beam may come to beat the worst kept one.

        Sums only fall, so the best that a beam may reach is its sum at the length that suits it best.
        """
        if not self.live or len(self.pool) < self.width:
            return bool(self.live)
        best = self.live[0]
        length = self.most_tokens if self.length_penalty >= 0.0 else best.length + 1
        return best.logprob / power(length, self.length_penalty) > self.pool[-1].score


@lru_cache(maxsize=1 << 14)
def power(length: int, exponent: float) -> float:
    """length^exponent, from decimal arithmetic: a library's `pow` may differ between processors."""
    return float(_POWERS.power(Decimal(length), Decimal(exponent)))


def select(search: Search, rows: Sequence[Row], judge: Callable[[int, int], Verdict]) -> Selection | int:
    """The candidates that live on, and those that end; or which row's ranking is too short to tell.

    Of the first `width` candidates those that end are kept, and the best `width` that do not end live on. `judge`
    says what a token (its second argument) is after a live beam (its first).
    """
    live: list[Candidate] = []
    ended: list[tuple[Candidate, Ending]] = []
    heap = [_place(search, rows, parent, 0) for parent in range(len(rows)) if rows[parent].ranked]
    heapify(heap)
    while heap and len(live) < search.width:
        total, parent, _, token_id, index = heap[0]
        verdict = judge(parent, token_id)
        if verdict == "live":
            live.append(Candidate(parent, token_id, -total))
        elif verdict != "excluded" and len(live) + len(ended) < search.width:
            ended.append((Candidate(parent, token_id, -total), verdict))
        if index + 1 < len(rows[parent].ranked):
            heapreplace(heap, _place(search, rows, parent, index + 1))
        elif rows[parent].complete:
            heappop(heap)
        elif len(live) < search.width:
            return parent
    return live, ended


def _place(search: Search, rows: Sequence[Row], parent: int, index: int) -> tuple[float, int, float, int, int]:
    """Sorts by sum descending, parent, logit descending, id; the index within its row comes along."""
    ranked = rows[parent].ranked[index]
    return -(search.live[parent].logprob + ranked.logprob), parent, -ranked.logit, ranked.token_id, index


def begin(parameters: DecodingParameters, stops: StopScan | None) -> Search:
    """The search that these parameters ask for, before its first token."""
    root = Hypothesis(stops=stops)
    return Search(parameters.beam_width, parameters.max_new_tokens, parameters.length_penalty, (root,))


class SharedPrefix:
    """How far all live beams and all kept ones of a search agree, step by step.

    Always: a step costs as much as there are beams, and more only by the tokens that it finds to be shared.
    """

    def __init__(self, root: Hypothesis) -> None:
        self.end = root
        """The last hypothesis that all of them continue."""
        self._branches: dict[Hypothesis, Hypothesis] = {}

    def follow(self, search: Search) -> list[Drawn]:
        """The tokens that are shared since the last step."""
        leaves = [*search.live, *(entry.hypothesis for entry in search.pool)]
        branches = {leaf: self._branch(leaf) for leaf in leaves}
        before = self.end
        if len(set(branches.values())) == 1:
            self.end, branches = self._deepest(leaves)
        self._branches = branches
        return self.end.tokens(before)

    def _branch(self, leaf: Hypothesis) -> Hypothesis:
        """Which child of `end` it continues."""
        known = self._branches.get(leaf)
        if known is None and leaf.parent is not None:
            known = self._branches.get(leaf.parent)
        return known or leaf

    def _deepest(self, leaves: Sequence[Hypothesis]) -> tuple[Hypothesis, dict[Hypothesis, Hypothesis]]:
        paths = [self._path(leaf) for leaf in leaves]
        depth = 0
        while all(depth < len(path) for path in paths) and len({path[depth] for path in paths}) == 1:
            depth += 1
        return paths[0][depth - 1], {
            leaf: path[depth] for leaf, path in zip(leaves, paths, strict=True) if path[depth:]
        }

    def _path(self, leaf: Hypothesis) -> list[Hypothesis]:
        """From the child of `end` down to the leaf."""
        path = []
        node: Hypothesis | None = leaf
        while node is not None and node is not self.end:
            path.append(node)
            node = node.parent
        return path[::-1]


def common(left: Hypothesis, right: Hypothesis) -> Hypothesis:
    """The last hypothesis that both continue, or are."""
    while left is not right:
        if left.length >= right.length and left.parent is not None:
            left = left.parent
        elif right.parent is not None:
            right = right.parent
    return left
