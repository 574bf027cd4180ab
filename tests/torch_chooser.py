"""The torch op set's choices without a model, for a sampler over logits that a test made."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from model.decoding import torch_choice
from model.decoding.params import Draw, Drawn, Ranked, Ranking, Score


class TorchChooser:
    """What a sampler needs of an op set."""

    def choose(self, logits: torch.Tensor, draws: Sequence[Draw]) -> list[Drawn]:
        return torch_choice.choose(logits, draws)

    def rank(self, logits: torch.Tensor, rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]:
        return torch_choice.rank(logits, rankings)

    def score(self, logits: torch.Tensor, scores: Sequence[Score]) -> list[Drawn]:
        return torch_choice.score(logits, scores)

    def read_logits(self, logits: torch.Tensor, rows: Sequence[int]) -> NDArray[np.float32]:
        return logits[list(rows)].float().numpy()
