"""The live beams of one request: hypotheses, each with the pages that hold its context.

Knows hypotheses, pages, histories and constraints; knows nothing of text, events or the queue.
Always: beams share whole pages and own their last one; pages that a dropped beam alone held return to the request's
promise before another is taken, so that a search never holds more than was reserved for it.
"""

from collections import Counter
from collections.abc import Iterator

from model.decoding.beam import Hypothesis, Search, SharedPrefix, common
from model.decoding.choice import Choice, Constraint
from model.decoding.history import History
from model.decoding.params import Drawn
from service.lease import Lease
from service.request import BeamStep


class Beam:
    """One live beam."""

    __slots__ = ("constraint", "history", "hypothesis", "lease")

    index = 0
    """As a sequence has one; a beam's text has its number only when the search is over."""

    def __init__(
        self, hypothesis: Hypothesis, lease: Lease, history: History | None, constraint: Constraint | None
    ) -> None:
        self.hypothesis = hypothesis
        self.lease = lease
        self.history = history
        self.constraint = constraint

    @property
    def generated(self) -> int:
        return self.hypothesis.length

    @property
    def last_id(self) -> int:
        """The token whose row runs next."""
        return self.hypothesis.last_id

    def child(self, hypothesis: Hypothesis, *, inherits: bool) -> "Beam":
        """The beam that goes on from this one. The last child inherits what the others get copies of."""
        history, constraint = self.history, self.constraint
        if not inherits:
            history = history.fork() if history is not None else None
            constraint = constraint.fork() if constraint is not None else None
        if history is not None:
            history.push(hypothesis.last_id)
        if constraint is not None:
            constraint.advance(hypothesis.last_id)
        return Beam(hypothesis, self.lease if inherits else self.lease.fork(), history, constraint)


class Beams:
    """A search, and the beams that are live in it: none before the prompt has run."""

    def __init__(self, search: Search, *, told: bool = False) -> None:
        """`told`: each step is noted, for who wants to see the search."""
        self.search = search
        self.steps: list[tuple[BeamStep, ...]] = []
        self._notes_steps = told
        self.live: list[Beam] = []
        self.shared = SharedPrefix(search.live[0])
        self._root = search.live[0]
        self._told: dict[int, Hypothesis] = {}

    @property
    def sure(self) -> int:
        """How many texts there will be at least: a live beam always goes on or ends, and the pool loses none."""
        return len(self.search.live) + len(self.search.pool)

    def tell(self, index: int, end: Hypothesis) -> tuple[Drawn, ...]:
        """The tokens up to `end` that the answer of this index has not got yet."""
        begin, self._told[index] = self._told.get(index, self._root), end
        return tuple(end.tokens(begin))

    def begin(self, lease: Lease, history: History | None, constraint: Constraint | None) -> None:
        """The prompt has run: its pages are those of the empty hypothesis."""
        self.live = [Beam(self.search.live[0], lease, history, constraint)]

    def grow(self, choice: Choice) -> None:
        """Go on as chosen: beams without a child give their pages back before any page is taken."""
        assert choice.search is not None, "a choice of beams carries its search"
        if self._notes_steps:
            self.steps.append(tuple(step_of(self.search, choice.search)))
        self.search = choice.search
        if self.search.stopped is not None:
            return  # the beams before this step hold the pages of everything that was computed
        remaining = Counter(choice.parents)
        for index, beam in enumerate(self.live):
            if not remaining[index]:
                beam.lease.prune()
        live = []
        for parent, hypothesis in zip(choice.parents, self.search.live, strict=True):
            remaining[parent] -= 1
            live.append(self.live[parent].child(hypothesis, inherits=not remaining[parent]))
        self.live = live

    def give_up(self, target: Hypothesis, prompt_tokens: int) -> Lease | None:
        """End all beams, and hand over the pages of the one that holds most of `target`, cut to what it shares."""
        if not self.live:
            return None
        shared = [common(target, beam.hypothesis).length for beam in self.live]
        best = shared.index(max(shared))
        for index, beam in enumerate(self.live):
            if index != best:
                beam.lease.release()
        lease = self.live[best].lease
        lease.truncate(prompt_tokens + shared[best])
        self.live = []
        return lease


def step_of(before: Search, after: Search) -> Iterator[BeamStep]:
    """The beams of a step: those that live on, the best first, then those that ended in it and were kept."""
    parents = {id(hypothesis): index for index, hypothesis in enumerate(before.live)}
    live = {id(hypothesis) for hypothesis in after.live}
    ended = [(entry.hypothesis, entry.finish_reason) for entry in after.pool if id(entry.hypothesis) not in live]
    for hypothesis, ending in [*((each, None) for each in after.live), *ended]:
        parent = parents.get(id(hypothesis.parent))
        if parent is not None:
            yield BeamStep(parent, hypothesis.last_id, hypothesis.logprob, ending)
