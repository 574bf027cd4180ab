"""Which weights go: exactly as many as asked, lowest score first, equal scores by their index.

Does not know what a score means. Always: a count is exact also where scores tie, as they do in checkpoints that were
quantised before; a threshold would take all that tie.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model.compression.hessian import Matrix
from model.compression.matrix import Mask

Within = Literal["matrix", "row"]
"""Which weights are compared with one another."""


@dataclass(frozen=True, slots=True)
class Share:
    """Prune this share of the weights, wherever they lie. Raises ValueError outside 0 to 1."""

    share: float

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"share is {self.share}; it must be 0 to 1")

    def count(self, of: int) -> int:
        """How many of so many weights: the nearest whole number."""
        return round(self.share * of)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Prune `zeros` weights of every `of` neighbours in a row: 2 of 4 is what is called 2:4. Raises ValueError."""

    zeros: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.zeros <= self.of or self.of < 1:
            raise ValueError(f"a pattern of {self.zeros} zeros of {self.of} does not exist")

    def check(self, columns: int) -> None:
        """Raises ValueError when the last neighbours of a row would be fewer."""
        if columns % self.of:
            raise ValueError(f"{columns} columns are no whole number of {self.of} neighbours")


Sparsity = Share | Pattern


def smallest(scores: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Indices of the `count` smallest of a vector (all when it has fewer), smallest first, equal ones by index."""
    return np.argsort(scores, kind="stable")[: max(count, 0)]


def kept(scores: Matrix, sparsity: Sparsity, within: Within = "matrix") -> Mask:
    """A mask [rows, columns]: False for the lowest scores.

    Args:
        scores: [rows, columns].
        sparsity: how many. A pattern compares neighbours alone.
        within: a share is taken of the matrix or of each row.
    """
    if isinstance(sparsity, Pattern):
        sparsity.check(scores.shape[1])
        return _lowest_dropped(scores.reshape(-1, sparsity.of), sparsity.zeros).reshape(scores.shape)
    if within == "row":
        return _lowest_dropped(scores, sparsity.count(scores.shape[1]))
    return _lowest_dropped(scores.reshape(1, -1), sparsity.count(scores.size)).reshape(scores.shape)


def _lowest_dropped(scores: Matrix, count: int) -> Mask:
    """[lines, width]: False for the `count` lowest of each line."""
    mask: Mask = np.ones(scores.shape, np.bool_)
    np.put_along_axis(mask, np.argsort(scores, axis=1, kind="stable")[:, :count], False, axis=1)
    return mask
