"""The torch op set's choice without a model, for a sampler over logits that a test made."""

from collections.abc import Sequence

import torch

from model.decoding import torch_choice
from model.decoding.params import Draw, Drawn, Score


class TorchChooser:
    """What a sampler needs of an op set."""

    def choose(self, logits: torch.Tensor, draws: Sequence[Draw]) -> list[Drawn]:
        return torch_choice.choose(logits, draws)

    def score(self, logits: torch.Tensor, scores: Sequence[Score]) -> list[Drawn]:
        return torch_choice.score(logits, scores)
