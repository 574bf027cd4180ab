"""Who guesses for which sequence, and how many guesses a step runs: as many as are expected to pay.

Knows sequences, plans and measured times; knows nothing of pages of the served model, HTTP or threads.
Always: a guess only adds rows to a step, and `Sampler` keeps it where it is the token that is drawn, so that drafting
changes no bit of any answer. Always: guesses stay within `max_new_tokens`, and none of them ends a text.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from model.decoding.params import DecodingParameters, Speculation
from model.decoding.speculative import (
    Acceptance,
    Guesses,
    WatchedLookup,
    allot,
    expected_gain,
)
from service.draft_model import Clock, DraftModel, Wanted
from service.logs import told
from service.plan import PlannedRows
from service.sequence import Sequence as Sample
from service.step_budget import RowCost

logger = logging.getLogger(__name__)

MOST_TEXTS = 8
"""With more decode rows than this in a step nothing is guessed: rows have no idle cores left to use."""
FOLLOWED_IDS = 2048
"""Most ids that one step enters into look-ups, about three milliseconds' work: long prompts take several steps."""
FEW_TEXTS = 8
"""Up to this many, a request that names its way of guessing gets at least one guess a step."""
MOST_MODEL_GUESSES = 8
MODEL_RATE = 0.7
"""Share of a draft model's guesses that are expected to hold, before any was made."""
TRIAL_SHARE = 0.01
"""Share of the time that may go to trying whether a draft model that did not pay pays now."""
TRIAL_S = 0.25
"""Most time for trials that may be saved up; what a draft model may use before anything is known of it."""


@dataclass(slots=True)
class _Drafts:
    """What is known for the guesses of one sequence."""

    of_model: Acceptance
    lookup: WatchedLookup = field(default_factory=WatchedLookup)
    guessed: tuple[int, ...] = ()
    """By the draft model, in the last step."""
    length: int = 0
    """Of the sequence then."""


@dataclass(slots=True)
class _Candidate:
    """One sequence that may be guessed for in this step."""

    rows: PlannedRows
    drafts: _Drafts
    room: int
    """Most guesses before `max_new_tokens`."""
    guesses: Guesses = field(default_factory=Guesses)

    @property
    def mode(self) -> Speculation:
        return self.rows.active.request.parameters.speculation

    @property
    def parameters(self) -> DecodingParameters:
        return self.rows.active.request.parameters


class Drafting:
    """Guesses for all sequences that decode."""

    def __init__(
        self, *, clock: Clock, eos_token_ids: frozenset[int] = frozenset(), model: DraftModel | None = None
    ) -> None:
        self._clock = clock
        self._eos_token_ids = eos_token_ids
        self._model = model
        self._of_model = Acceptance(MODEL_RATE)
        self._drafts: dict[Sample, _Drafts] = {}
        self._trial_s = TRIAL_S
        self._cost = RowCost()
        self._took_s = 0.0

    def draft(self, rows: list[PlannedRows]) -> list[PlannedRows]:
        """The same decode rows, followed by guesses where they are expected to pay."""
        started = self._clock()
        drafted = rows
        if rows and len(rows) <= MOST_TEXTS:
            candidates = list(self._candidates(rows))
            self._look_up(candidates, len(rows))
            self._ask_model(candidates, len(rows))
            chosen: dict[object, tuple[int, ...]] = {
                each.rows.sample: each.guesses.tokens for each in candidates if each.guesses.tokens
            }
            drafted = [_with_drafts(each, chosen.get(each.sequence, ())) for each in rows]
        self._took_s = self._clock() - started
        return drafted

    def observe(self, rows: Sequence[PlannedRows], seconds: float) -> float:
        """Learn from a step that ran and took so long, guessing included; answers its seconds without that."""
        seconds = max(0.0, seconds - self._took_s)
        if not any(each.active.is_prefilling for each in rows):
            self._cost.observe(sum(each.count for each in rows), seconds)
            self._trial_s = min(TRIAL_S, self._trial_s + TRIAL_SHARE * seconds)
        return seconds

    def forget(self, sample: Sample) -> None:
        """The sequence has ended."""
        self._drafts.pop(sample, None)
        if self._model is not None:
            self._model.forget(sample)

    def check(self, *, idle: bool) -> None:
        """Raise BooksError when the draft model's pages do not add up."""
        if self._model is not None:
            self._model.check(idle=idle)

    def _candidates(self, rows: Sequence[PlannedRows]) -> Iterator[_Candidate]:
        for each in rows:
            parameters = each.active.request.parameters
            if parameters.speculation == "off":
                continue
            room = parameters.max_new_tokens - each.sample.generated - 1
            if room > 0:
                yield _Candidate(each, self._follow(each.sample), room)

    def _follow(self, sample: Sample) -> _Drafts:
        drafts = self._drafts.get(sample)
        if drafts is None:
            drafts = self._drafts[sample] = _Drafts(Acceptance(self._of_model.rate))
        for guess, token_id in zip(drafts.guessed, sample.ids[drafts.length :], strict=False):
            drafts.of_model.observe(guess == token_id)
            self._of_model.observe(guess == token_id)
            if guess != token_id:
                break
        drafts.guessed, drafts.length = (), len(sample.ids)
        return drafts

    def _look_up(self, candidates: Sequence[_Candidate], texts: int) -> None:
        """Give candidates what their own ids suggest, as much of it as pays."""
        asking = [each for each in candidates if each.mode != "draft"]
        room = FOLLOWED_IDS
        for each in asking:
            room -= each.drafts.lookup.follow(each.rows.sample.ids, room)
            each.guesses = each.drafts.lookup.guess().first(each.room)
        if not self._cost:
            counts = [0] * len(asking)
        else:
            counts = allot([each.guesses.chances for each in asking], texts, self._cost)
        for each, count in zip(asking, counts, strict=True):
            insists = each.mode == "prompt_lookup" and texts <= FEW_TEXTS
            each.guesses = self._allowed(each, each.guesses.first(max(count, int(insists))))

    def _allowed(self, candidate: _Candidate, guesses: Guesses) -> Guesses:
        """The guesses before the first that would end the text or break its constraint."""
        ending, constraint = self._ending(candidate.parameters), candidate.rows.sample.constraint
        count = next((n for n, token_id in enumerate(guesses.tokens) if token_id in ending), len(guesses.tokens))
        if constraint is not None and count:
            count = constraint.accepts(guesses.tokens[:count])
        return guesses.first(count)

    def _ending(self, parameters: DecodingParameters) -> frozenset[int]:
        of_model = frozenset() if parameters.ignore_eos else self._eos_token_ids
        return of_model.union(parameters.stop_token_ids)

    def _ask_model(self, candidates: Sequence[_Candidate], texts: int) -> None:
        """Let the draft model guess where nothing was looked up, when that is asked for, pays, or may be tried."""
        if self._model is None:
            return
        asking = [each for each in candidates if each.mode in ("draft", "auto") and not each.guesses.tokens]
        rows = texts + sum(len(each.guesses.tokens) for each in candidates)
        counts = [self._model_guesses(self._model, each, texts, rows, len(asking)) for each in asking]
        trial = not any(counts) and self._trial_s > 0 and texts == 1
        if trial:
            counts = [min(1, each.room) for each in asking]
        wanted = [
            (each, Wanted(each.rows, count, self._ending(each.parameters)))
            for each, count in zip(asking, counts, strict=True)
            if count
        ]
        if not wanted:
            return
        started = self._clock()
        for (each, _), tokens in zip(wanted, self._guessed([what for _, what in wanted]), strict=True):
            each.guesses = Guesses(tokens)
            each.drafts.guessed = tokens
        if trial:
            self._trial_s -= self._clock() - started

    def _model_guesses(self, model: DraftModel, each: _Candidate, texts: int, rows: int, asking: int) -> int:
        """How many guesses the draft model is expected to make worth while for this sequence."""
        most = min(each.room, MOST_MODEL_GUESSES)
        least = int(each.mode == "draft" and texts <= FEW_TEXTS)
        if not self._cost or not model.cost:
            return least
        rate, pass_s, before_s = each.drafts.of_model.rate, model.cost(asking), self._cost(rows)
        best, best_gain = 0, 0.0
        for count in range(1, most + 1):
            chances = [rate**number for number in range(1, count + 1)]
            after_s = self._cost(rows + count) + count * pass_s / asking
            gain = expected_gain(chances, texts, before_s, after_s)
            if gain > best_gain:
                best, best_gain = count, gain
        reading_s = model.cost(model.unread(each.rows.sample)) - model.cost(1)
        is_paid_back = best_gain * before_s * each.room > reading_s
        return max(best if is_paid_back else 0, least)

    def _guessed(self, wanted: list[Wanted]) -> list[tuple[int, ...]]:
        """What the draft model says. After a fault of its own it is not asked again; texts do not need it."""
        if self._model is None:
            return [()] * len(wanted)
        try:
            return self._model.guess(wanted)
        except Exception:
            logger.exception("the draft model failed and is not used any more", extra=told("draft_failed"))
            self._model = None
            return [()] * len(wanted)


def _with_drafts(rows: PlannedRows, drafts: tuple[int, ...]) -> PlannedRows:
    return replace(rows, count=1 + len(drafts), drafts=drafts) if drafts else rows
