"""How the beams of a step go on: what is asked of the op set, which candidates may follow, and which of them end.

Knows which ids end a text, stop strings and constraints; never looks at logits, which the op set ranks.
Always: the candidates are those of the whole vocabulary: a ranking that was too short is asked for again, longer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model.decoding.beam import (
    Candidate,
    Ending,
    Hypothesis,
    Row,
    Search,
    Selection,
    TokenEnding,
    Verdict,
    select,
)
from model.decoding.choice import Ask, Asking, Choice
from model.decoding.params import Drawn, Ranked, Ranking, Score
from model.decoding.stop_scan import StopScan

MOST_EXCLUDED = 32
"""So many candidates of one beam may be excluded in a step because nothing that conforms could follow them in time;
after that it can only go on with the token that its constraint named instead."""
LONGER = 4
"""How many times longer a ranking is that was too short."""


class Ranker(Protocol):
    """The part of an op set that a beam search needs."""

    def rank(self, logits: Any, rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]: ...


@dataclass(frozen=True, slots=True)
class Picked:
    """The candidates of one search in this step that live on, and those that end."""

    ask: Ask
    search: Search
    live: Sequence[Candidate]
    ended: Sequence[tuple[Candidate, Ending]]
    beams: Sequence["_Beam"]

    def scores(self) -> list[Score]:
        """The model's own log-probabilities that its caller wants, of those that live on and those that end."""
        options = self.ask.parameters.logprobs
        if options is None:
            return []
        sequences = self.ask.sequences
        return [Score(sequences[each.parent].rows[-1], each.token_id, options.top) for each in self._candidates()]

    def choice(self, scored: Sequence[Drawn], prompt: tuple[Drawn, ...]) -> Choice:
        """The step as a choice. `scored` answers `scores`."""
        candidates = self._candidates()
        tokens = scored or [Drawn(each.token_id) for each in candidates]
        grown = [self._grown(each, token) for each, token in zip(candidates, tokens, strict=True)]
        live, ended = grown[: len(self.live)], grown[len(self.live) :]
        search = self.search.advance(live, zip(ended, (ending for _, ending in self.ended), strict=True))
        gained = tuple((token,) for token in tokens[: len(live)])
        return Choice(tuple(each.parent for each in self.live), gained, prompt, search)

    def _candidates(self) -> list[Candidate]:
        return [*self.live, *(each for each, _ in self.ended)]

    def _grown(self, candidate: Candidate, token: Drawn) -> Hypothesis:
        parent = self.search.live[candidate.parent]
        stops = self.beams[candidate.parent].scans.get(candidate.token_id)
        return Hypothesis(parent, token, parent.length + 1, candidate.logprob, stops)


class BeamChooser:
    """Picks, for every search of a step, the candidates that live on and those that end."""

    def __init__(self, ops: Ranker, eos_token_ids: frozenset[int]) -> None:
        self._ops = ops
        self._eos_token_ids = eos_token_ids

    def pick(self, logits: Any, asks: Sequence[tuple[Ask, Search, tuple[int, ...]]]) -> list[Picked | None]:
        """One answer for each (ask, its search, banned ids); None where a row holds a NaN, or nothing may follow.

        One ranking of all beams of all searches together, and another only where one was too short.
        """
        beams = [self._beams(*each) for each in asks]
        picked: dict[int, Picked | None] = {}
        to_rank = [beam for each in beams for beam in each]
        while to_rank:
            for beam, ranked in zip(to_rank, self._ops.rank(logits, [each.ranking for each in to_rank]), strict=True):
                beam.take(ranked)
            to_rank = []
            for index, (ask, search, _) in enumerate(asks):
                if index in picked:
                    continue
                outcome = _select(search, beams[index])
                if isinstance(outcome, int):
                    to_rank.append(beams[index][outcome])
                    to_rank[-1].lengthen()
                else:
                    picked[index] = None if outcome is None else Picked(ask, search, *outcome, beams[index])
        return [picked[index] for index in range(len(asks))]

    def _beams(self, ask: Ask, search: Search, banned: tuple[int, ...]) -> list["_Beam"]:
        parameters = ask.parameters
        eos = frozenset() if parameters.ignore_eos else self._eos_token_ids
        stops: dict[int, TokenEnding] = dict.fromkeys(parameters.stop_token_ids, "stop")
        ending = stops | dict.fromkeys(eos, "eos")
        return [
            _Beam(ask, asking, hypothesis.stops, ending, banned)
            for asking, hypothesis in zip(ask.sequences, search.live, strict=True)
        ]


class _Beam:
    """One live beam in one step: its candidates, and what each of them is."""

    def __init__(
        self,
        ask: Ask,
        asking: Asking,
        stops: StopScan | None,
        ending: Mapping[int, TokenEnding],
        banned: tuple[int, ...],
    ) -> None:
        self._stops = stops
        self._ending = ending
        self._constraint = asking.constraint
        self._left = ask.parameters.max_new_tokens - asking.generated
        self._may_stop = asking.generated + 1 >= ask.parameters.min_new_tokens
        self._verdicts: dict[int, Verdict] = {}
        self._excluded = 0
        self._instead: int | None = None
        self.scans: dict[int, StopScan] = {}
        """For each candidate that was judged: where its text stands."""
        self.row = Row((), complete=False)
        self.ranking = Ranking(
            asking.rows[-1],
            ask.parameters.beam_width + bool(ending),
            banned,
            asking.history.edits() if asking.history is not None else None,
            asking.constraint.mask() if asking.constraint is not None else None,
        )

    @property
    def failed(self) -> bool:
        return not self.row.ranked or (self._constraint is not None and self._constraint.failed)

    @property
    def _is_cornered(self) -> bool:
        return self._excluded >= MOST_EXCLUDED

    def take(self, ranked: Sequence[Ranked]) -> None:
        """The answer to `ranking`."""
        if not self._is_cornered:
            self.row = Row(ranked, complete=len(ranked) < self.ranking.count)
            return
        known = {each.token_id for each in self.row.ranked}
        self.row = Row([*self.row.ranked, *(each for each in ranked if each.token_id not in known)], complete=True)

    def lengthen(self) -> None:
        """Ask for more candidates, or for the last one that there is."""
        if self._is_cornered and self._instead is not None and self.ranking.allowed is not None:
            self.ranking = replace(self.ranking, count=1, allowed=_only(self._instead, len(self.ranking.allowed)))
        else:
            self.ranking = replace(self.ranking, count=LONGER * self.ranking.count)

    def judge(self, token_id: int) -> Verdict:
        """What a candidate is; worked out once for each."""
        verdict = self._verdicts.get(token_id)
        if verdict is None:
            verdict = self._verdicts[token_id] = "excluded" if self._is_excluded(token_id) else self._judged(token_id)
        return verdict

    def _is_excluded(self, token_id: int) -> bool:
        if self._constraint is None or token_id == self._instead:
            return False
        if self._is_cornered:
            return True
        settled = self._constraint.settle(token_id, self._left)
        if settled == token_id:
            return False
        self._excluded += 1
        self._instead = settled
        return True

    def _judged(self, token_id: int) -> Verdict:
        ending = self._ending.get(token_id)
        if ending is not None:
            return ending
        if self._stops is None:
            return "live"
        scan = self.scans[token_id] = self._stops.after(token_id)
        return "stop" if scan.is_complete and self._may_stop else "live"


def _select(search: Search, beams: Sequence[_Beam]) -> Selection | int | None:
    """None where the search must fail; which beam needs a longer ranking; or what goes on and what ends."""
    if any(beam.failed for beam in beams):
        return None
    outcome = select(search, [beam.row for beam in beams], lambda parent, token_id: beams[parent].judge(token_id))
    if any(beam.failed for beam in beams):
        return None
    nothing_left = outcome == ([], []) and not search.pool
    return None if nothing_left else outcome


def _only(token_id: int, words: int) -> NDArray[np.uint32]:
    """A mask that allows one token."""
    mask = np.zeros(words, dtype=np.uint32)
    mask[token_id // 32] = 1 << token_id % 32
    return mask
