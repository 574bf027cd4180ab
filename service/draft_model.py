"""A second, smaller model that guesses the tokens to come, with pages of its own.

Knows sequences as ids, parameters, penalties and constraints; knows nothing of HTTP, sessions, the prefix tree or the
served model's pages. Draws with the uniforms, filters, penalties and masks with which the served model will draw.
Always: the pages of a sequence hold a prefix of its ids, then guesses, of which those that did not come true are
written over. Always: a sequence that cannot be promised its pages goes on without guesses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Protocol

from model.batch import Batch, Segment
from model.decoding.choice import Ask, Asking, Choice
from model.kv_cache import BooksError, PagePool, Promise, pages_for
from service.plan import PlannedRows
from service.sequence import Sequence as Sample
from service.step_budget import RowCost, StepBudget

CATCHING_UP_S = 0.01
"""How long a step may read tokens that this model has not seen."""
FEW_ROWS = 32
"""Rows of a forward pass whose time counts as that of guessing."""

Clock = Callable[[], float]


class Runner(Protocol):
    def forward(self, batch: Batch) -> Any: ...


class Chooser(Protocol):
    def choose(self, logits: Any, asks: Sequence[Ask]) -> list[Choice]: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """A sequence, how many guesses it wants, and the tokens that would end its text: they are not guessed."""

    rows: PlannedRows
    count: int
    ending: frozenset[int]


class _Held:
    """What the pages of one sequence hold."""

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.pages: list[int] = []
        self.length = 0
        """How many of the sequence's ids."""
        self.guessed: tuple[int, ...] = ()
        """Tokens in the positions after them."""

    @property
    def end(self) -> int:
        return self.length + len(self.guessed)

    def follow(self, ids: Sequence[int]) -> None:
        """Keep of the guesses what came true."""
        came = ids[self.length : self.end]
        pairs = zip(self.guessed, came, strict=False)
        self.length += sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self.guessed = ()


class _Guess:
    """The next tokens of one sequence, while they are guessed."""

    def __init__(self, wanted: Wanted, held: _Held) -> None:
        sample = wanted.rows.sample
        self.tokens: list[int] = []
        self.held = held
        self._sample = sample
        self._wanted = wanted
        self._parameters = replace(wanted.rows.active.request.parameters, logprobs=None, explain=False)
        self._history = None if sample.history is None else sample.history.fork()
        self._constraint = None if sample.constraint is None else sample.constraint.fork()
        self._ended = False

    @property
    def goes_on(self) -> bool:
        return not self._ended and len(self.tokens) < self._wanted.count

    def segment(self) -> Segment:
        """The tokens that this model has not read yet."""
        ids, start = self._sample.ids, self.held.end
        unread = ids[start:] if start < len(ids) else self.tokens[start - len(ids) :]
        return Segment(tuple(unread), start, tuple(self.held.pages), asks=1)

    def ask(self, row: int) -> Ask:
        number = self._sample.generated + len(self.tokens)
        asking = Asking((row,), number, history=self._history, constraint=self._constraint)
        return Ask((asking,), (0,), (self._sample.index,), self._parameters)

    def take(self, token_id: int | None) -> None:
        """What was drawn after the segment ran."""
        self.held.length, self.held.guessed = len(self._sample.ids), tuple(self.tokens)
        if token_id is None or token_id in self._wanted.ending:
            self._ended = True
            return
        self.tokens.append(token_id)
        if self._history is not None:
            self._history.push(token_id)
        if self._constraint is not None:
            self._constraint.advance(token_id)


class DraftModel:
    """Guesses for many sequences at once, one forward pass for each further token."""

    def __init__(self, runner: Runner, sampler: Chooser, *, page_count: int, context_length: int, clock: Clock) -> None:
        self._runner = runner
        self._sampler = sampler
        self._pool = PagePool(page_count)
        self._context_length = context_length
        self._clock = clock
        self._budget = StepBudget(decoding_s=CATCHING_UP_S)
        self._held: dict[Sample, _Held] = {}
        self.cost = RowCost()
        """Of one forward pass, by its rows."""

    def unread(self, sample: Sample) -> int:
        """How many tokens of a sequence must be read before the first guess."""
        held = self._held.get(sample)
        return len(sample.ids) - (held.length if held else 0)

    def guess(self, wanted: Sequence[Wanted]) -> list[tuple[int, ...]]:
        """The next tokens of each sequence; none where its pages or its turn to be read are still to come."""
        guesses: dict[int, _Guess] = {}
        behind: list[Segment] = []
        left = self._budget.prefill_rows(1)
        for number, each in enumerate(wanted):
            held = self._follow(each)
            if held is None:
                continue
            unread = len(each.rows.sample.ids) - held.length
            if unread <= left:
                guesses[number] = _Guess(each, held)
            elif left:
                behind.append(self._read_ahead(each, held, left))
            left -= min(left, unread)
        self._run(list(guesses.values()), behind)
        return [tuple(guesses[number].tokens) if number in guesses else () for number in range(len(wanted))]

    def forget(self, sample: Sample) -> None:
        """The sequence has ended."""
        held = self._held.pop(sample, None)
        if held is not None:
            for page in held.pages:
                self._pool.release(page)
            held.promise.withdraw()

    def check(self, *, idle: bool) -> None:
        """Raise BooksError when pages are lost, or leased while nothing runs."""
        self._pool.check()
        if idle and (self._held or self._pool.leased or self._pool.promised):
            raise BooksError(f"the draft model leases {self._pool.leased} pages while idle")

    def _follow(self, wanted: Wanted) -> _Held | None:
        """The sequence's pages, with room for every guess; None where they cannot be had."""
        sample, request = wanted.rows.sample, wanted.rows.active.request
        end = len(sample.ids) + wanted.count
        if end > self._context_length:
            return None
        held = self._held.get(sample)
        if held is None:
            longest = len(request.prompt_ids) + request.parameters.max_new_tokens
            needed = pages_for(min(longest, self._context_length))
            if needed > self._pool.available:
                return None
            held = self._held[sample] = _Held(self._pool.promise(needed))
        held.follow(sample.ids)
        while len(held.pages) < pages_for(end - 1):
            held.promise.spend()
            held.pages.append(self._pool.take())
        return held

    @staticmethod
    def _read_ahead(wanted: Wanted, held: _Held, count: int) -> Segment:
        ids = wanted.rows.sample.ids
        segment = Segment(tuple(ids[held.length : held.length + count]), held.length, tuple(held.pages), asks=0)
        held.length += count
        return segment

    def _run(self, going: list[_Guess], behind: list[Segment]) -> None:
        while going or behind:
            started = self._clock()
            batch = Batch((*behind, *(guess.segment() for guess in going)))
            logits = self._runner.forward(batch)
            choices = self._sampler.choose(logits, [guess.ask(row) for row, guess in enumerate(going)])
            for guess, choice in zip(going, choices, strict=True):
                guess.take(choice.tokens[0][0].token_id)
            self._observe(batch.row_count, self._clock() - started)
            going, behind = [guess for guess in going if guess.goes_on], []

    def _observe(self, rows: int, seconds: float) -> None:
        self._budget.observe(rows, seconds)
        if rows <= FEW_ROWS:
            self.cost.observe(rows, seconds)
