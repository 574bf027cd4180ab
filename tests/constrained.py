"""A sequence that draws its tokens uniformly from the mask: wilder than any model at any temperature."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.decoding.constraint import CompiledConstraint, Constraint
from model.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Drawn:
    """One token: what was drawn, and what was taken instead or as it was."""

    drawn: int
    taken: int


def allowed_ids(mask: NDArray[np.uint32]) -> NDArray[np.intp]:
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))


def draws(constraint: Constraint, rng: np.random.Generator) -> Iterator[Drawn]:
    """Until the text ends or nothing is left."""
    while constraint.left and not constraint.ended:
        drawn = int(rng.choice(allowed_ids(constraint.mask())))
        taken = constraint.settle(drawn, constraint.left)
        constraint.advance(taken)
        assert not constraint.failed
        yield Drawn(drawn, taken)


def random_ids(compiled: CompiledConstraint, limit: int, seed: int) -> list[int]:
    return [token.taken for token in draws(compiled.begin(limit), np.random.default_rng(seed))]


def text_of(tokenizer: Tokenizer, ids: list[int]) -> str:
    """Strictly: half a character is an error."""
    return b"".join(map(tokenizer.token_bytes, ids)).decode()
