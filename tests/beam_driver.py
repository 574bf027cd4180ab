"""Beam searches over a model that a test makes up: the sampler, the torch op set's ranking, and no engine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from model.decoding.beam import Search, begin
from model.decoding.choice import Ask, Asking
from model.decoding.constraint import CompiledConstraint
from model.decoding.history import history_of
from model.decoding.params import DecodingParameters
from model.decoding.sampler import Sampler
from model.decoding.stop_scan import StopScan
from tests.reference.beams import Found, Model, Row, Tokens
from tests.torch_chooser import TorchChooser


class RandomModel:
    """Logits fixed at random for every sequence; some are equal when `ties` is set."""

    def __init__(self, vocabulary: int, seed: int = 0, *, ties: bool = False, spread: float = 1.0) -> None:
        self.vocabulary = vocabulary
        self._seed = seed
        self._ties = ties
        self._spread = spread

    def __call__(self, tokens: Tokens) -> Row:
        rng = np.random.default_rng([self._seed, len(tokens), *tokens])
        row = (rng.normal(size=self.vocabulary) * self._spread).astype(np.float32)
        return np.round(row) if self._ties else row


class Letters:
    """Every id is one character, from a on."""

    def token_bytes(self, token_id: int) -> bytes:
        return chr(ord("a") + token_id).encode()


@dataclass(frozen=True, slots=True)
class Asked:
    """One search, and the model that it runs on."""

    model: Model
    parameters: DecodingParameters
    constraint: CompiledConstraint | None = None


def run(asked: Sequence[Asked], *, eos: frozenset[int] = frozenset()) -> list[Search]:
    """All searches at once, one step of all of them after the other; how each ended."""
    sampler = Sampler(TorchChooser(), eos)
    searches = [begin(each.parameters, StopScan.begin(Letters(), each.parameters.stop)) for each in asked]
    while any(search.stopped is None for search in searches):
        going = [index for index, search in enumerate(searches) if search.stopped is None]
        rows: list[Row] = []
        asks = [_ask(asked[index], searches[index], rows) for index in going]
        for index, choice in zip(going, sampler.choose(torch.from_numpy(np.stack(rows)), asks), strict=True):
            assert choice.search is not None
            searches[index] = choice.search
    return searches


def _ask(asked: Asked, search: Search, rows: list[Row]) -> Ask:
    sequences = []
    for hypothesis in search.live:
        tokens = ids_of(hypothesis.tokens())
        history = history_of(asked.parameters, (), frozenset())
        for token in tokens if history is not None else ():
            history.push(token)  # type: ignore[union-attr]
        constraint = None if asked.constraint is None else asked.constraint.begin(asked.parameters.max_new_tokens)
        for token in tokens if constraint is not None else ():
            constraint.advance(token)  # type: ignore[union-attr]
        sequences.append(Asking((len(rows),), len(tokens), history=history, constraint=constraint))
        rows.append(asked.model(tokens))
    return Ask(tuple(sequences), (), (), asked.parameters, search=search)


def ids_of(tokens: Sequence[object]) -> Tokens:
    return tuple(token.token_id for token in tokens)  # type: ignore[attr-defined]


def found(search: Search) -> list[Found]:
    """The pool in the words of the reference."""
    return [
        Found(ids_of(each.hypothesis.tokens()), each.hypothesis.logprob, each.score, each.finish_reason)
        for each in search.pool
    ]
