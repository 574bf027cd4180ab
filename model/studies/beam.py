"""Greedy decoding and beam search beside the likeliest sequence of all (definition 3.2, proposition 3.3).

Knows a model as a function from sequences to rows of logits. Always: searches are the product's own, on its compiled
ranking; sequences have a fixed length, so no token ends one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from model.decoding.beam import begin
from model.decoding.choice import Ask, Asking
from model.decoding.params import DecodingParameters, Drawn, Score
from model.decoding.sampler import Sampler
from model.ops.native_choice import NativeChooser, Rows

Tokens = tuple[int, ...]
MOST_SEQUENCES = 1_000_000
"""So many are tried one after the other to find the likeliest."""


class SequenceModel(Protocol):
    """An autoregressive model."""

    @property
    def vocabulary(self) -> int: ...

    def rows(self, sequences: Sequence[Tokens]) -> Rows:
        """Logits of what follows each of some sequences of one length [sequences, vocabulary]."""


@dataclass(frozen=True, slots=True)
class TableModel:
    """Probabilities of the next token after the last one.

    Args:
        first: of the first token [vocabulary].
        after: for each last token, of the next one [vocabulary, vocabulary].
    """

    first: tuple[float, ...]
    after: tuple[tuple[float, ...], ...]

    @property
    def vocabulary(self) -> int:
        return len(self.first)

    def __call__(self, tokens: Tokens) -> NDArray[np.float32]:
        """Logits [vocabulary] of what follows some tokens."""
        return np.log(np.array(self.after[tokens[-1]] if tokens else self.first, dtype=np.float32))

    def rows(self, sequences: Sequence[Tokens]) -> Rows:
        if not sequences[0]:
            return self(())[None]
        return np.log(np.array(self.after, dtype=np.float32))[[tokens[-1] for tokens in sequences]]


GREEDY_FAILS = TableModel((0.6, 0.4), ((0.55, 0.45), (0.9, 0.1)))
"""Proposition 3.3.1, of length 2."""
BEAM_FAILS = TableModel((0.4, 0.35, 0.25), ((0.4, 0.3, 0.3), (0.4, 0.3, 0.3), (0.9, 0.05, 0.05)))
"""Proposition 3.3.4, of length 2."""


def random_model(vocabulary: int, seed: int) -> TableModel:
    """Probabilities drawn evenly from all there are."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(vocabulary), vocabulary + 1).tolist()
    return TableModel(tuple(rows[0]), tuple(map(tuple, rows[1:])))


@dataclass(frozen=True, slots=True)
class Found:
    """What one way of decoding finds.

    Args:
        width: B; 0 for greedy decoding.
        tokens: the sequence.
        logprob: its log-probability.
        probability: e to that.
        candidates: probabilities that were evaluated: rows of logits times |V|.
        most_candidates: n·B·|V|, which they do not exceed; B = 1 for greedy decoding.
    """

    width: int
    tokens: Tokens
    logprob: float
    probability: float
    candidates: int
    most_candidates: int


@dataclass(frozen=True, slots=True)
class BeamStudy:
    """One model.

    Args:
        name: of the model.
        vocabulary, length: |V| and n.
        found: greedy decoding, then each width.
        best: the likeliest sequence of all, where there are few enough to try them.
        best_logprob, best_probability: of it.
    """

    name: str
    vocabulary: int
    length: int
    found: tuple[Found, ...]
    best: Tokens | None
    best_logprob: float | None
    best_probability: float | None


def study(
    name: str,
    model: SequenceModel,
    length: int,
    widths: Sequence[int],
    *,
    on_found: Callable[[], None] = lambda: None,
) -> BeamStudy:
    """Greedy decoding and each width, of at least 1, over sequences of one length; `on_found` is told of each."""
    found = []
    for width in (0, *widths):
        counted = _Counted(model)
        tokens = searched(counted, length, width) if width else greedy(counted, length)
        found.append(_found(model, tokens, width, counted.count))
        on_found()
    best = likeliest(model, length)
    score = None if best is None else logprob(model, best)
    return BeamStudy(name, model.vocabulary, length, tuple(found), best, score, None if score is None else exp(score))


def greedy(model: SequenceModel, length: int) -> Tokens:
    """The likeliest token after each other, by the sampler at temperature 0."""
    sampler, tokens = Sampler(NativeChooser(), frozenset()), Tokens()
    parameters = DecodingParameters(length, seed=0, temperature=0.0)
    while len(tokens) < length:
        ask = Ask((Asking((0,), len(tokens)),), (0,), (0,), parameters)
        (choice,) = sampler.choose(model.rows([tokens]), [ask])
        tokens += _ids(choice.tokens[0])
    return tokens


def searched(model: SequenceModel, length: int, width: int) -> Tokens:
    """The best sequence that a beam search finds."""
    sampler, parameters = Sampler(NativeChooser(), frozenset()), DecodingParameters(length, seed=0, beam_width=width)
    search = begin(parameters, None)
    while search.stopped is None:
        live = [_ids(each.tokens()) for each in search.live]
        sequences = tuple(Asking((row,), len(tokens)) for row, tokens in enumerate(live))
        ask = Ask(sequences, (), (), parameters, search=search)
        (choice,) = sampler.choose(model.rows(live), [ask])
        assert choice.search is not None, "a row of logits without a finite maximum"
        search = choice.search
    return _ids(search.pool[0].hypothesis.tokens())


def likeliest(model: SequenceModel, length: int) -> Tokens | None:
    """The likeliest sequence of all, the first of equals; None where there are too many to try."""
    if model.vocabulary**length > MOST_SEQUENCES:
        return None
    totals = np.zeros(1)
    for count in range(length):
        prefixes = list(product(range(model.vocabulary), repeat=count))
        totals = (totals[:, None] + _log_softmax(model.rows(prefixes))).ravel()
    places = np.unravel_index(int(totals.argmax()), (model.vocabulary,) * length)
    return tuple(int(place) for place in places)


def logprob(model: SequenceModel, tokens: Tokens) -> float:
    """log p of a sequence: the sum over its tokens, as the compiled scorer gives them."""
    chooser, total = NativeChooser(), 0.0
    for t, token in enumerate(tokens):
        (scored,) = chooser.score(model.rows([tokens[:t]]), [Score(0, token)])
        assert scored.logprob is not None, "a row of logits without a finite maximum"
        total += scored.logprob
    return total


def _found(model: SequenceModel, tokens: Tokens, width: int, rows: int) -> Found:
    score, vocabulary = logprob(model, tokens), model.vocabulary
    return Found(width, tokens, score, exp(score), rows * vocabulary, len(tokens) * max(width, 1) * vocabulary)


def _ids(drawn: Sequence[Drawn]) -> Tokens:
    assert all(each.token_id is not None for each in drawn), "a row of logits without a finite maximum"
    return tuple(each.token_id for each in drawn if each.token_id is not None)


def _log_softmax(rows: Rows) -> NDArray[np.float64]:
    shifted = rows.astype(np.float64) - rows.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


class _Counted:
    """A model that counts the rows of logits it gives."""

    def __init__(self, model: SequenceModel) -> None:
        self._model = model
        self.count = 0

    @property
    def vocabulary(self) -> int:
        return self._model.vocabulary

    def rows(self, sequences: Sequence[Tokens]) -> Rows:
        self.count += len(sequences)
        return self._model.rows(sequences)
