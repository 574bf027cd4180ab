"""Both op sets' choices from rows of any numbers, by one interface."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from model.decoding import torch_choice
from model.decoding.params import Draw, Drawn, Ranked, Ranking, Score
from model.native import _native
from model.ops.native_choice import draw_tuple, drawn, rank_tuple, ranked, score_tuple, scored
from tests.bits.conditions import available_isas

Rows = NDArray[np.float32]


class Chooser(Protocol):
    """What an op set does with rows [rows, vocabulary]."""

    def choose(self, rows: Rows, draws: Sequence[Draw]) -> list[Drawn]: ...

    def rank(self, rows: Rows, rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]: ...

    def score(self, rows: Rows, scores: Sequence[Score]) -> list[Drawn]: ...


class NativeChooser:
    def __init__(self, isa: str = "auto", threads: int = 1) -> None:
        self._native = _native.Chooser(isa, threads)

    def choose(self, rows: Rows, draws: Sequence[Draw]) -> list[Drawn]:
        answers = self._native.choose(rows, [draw_tuple(draw) for draw in draws])
        return [drawn(draw, answer) for draw, answer in zip(draws, answers, strict=True)]

    def rank(self, rows: Rows, rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]:
        return [ranked(answer) for answer in self._native.rank(rows, [rank_tuple(each) for each in rankings])]

    def score(self, rows: Rows, scores: Sequence[Score]) -> list[Drawn]:
        return [scored(answer) for answer in self._native.score(rows, [score_tuple(each) for each in scores])]


class TorchChooser:
    def choose(self, rows: Rows, draws: Sequence[Draw]) -> list[Drawn]:
        return torch_choice.choose(torch.from_numpy(rows), draws)

    def rank(self, rows: Rows, rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]:
        return torch_choice.rank(torch.from_numpy(rows), rankings)

    def score(self, rows: Rows, scores: Sequence[Score]) -> list[Drawn]:
        return torch_choice.score(torch.from_numpy(rows), scores)


NATIVE: dict[str, Callable[[], Chooser]] = {
    f"{isa}, {threads} threads": partial(NativeChooser, isa, threads) for isa in available_isas() for threads in (1, 3)
}
"""Every instruction set that the machine has."""
CHOOSERS: dict[str, Callable[[], Chooser]] = {"torch": TorchChooser, "native": NativeChooser}
