"""Both op sets' choices from rows of any numbers, by one interface."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch

from model.decoding import torch_choice
from model.decoding.params import Draw, Drawn, Ranked, Ranking, Score
from model.ops.native_choice import NativeChooser, Rows
from tests.bits.conditions import available_isas


class Chooser(Protocol):
    """What an op set does with rows [rows, vocabulary]."""

    def choose(self, rows: Rows, draws: Sequence[Draw]) -> list[Drawn]: ...

    def rank(self, rows: Rows, rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]: ...

    def score(self, rows: Rows, scores: Sequence[Score]) -> list[Drawn]: ...


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
