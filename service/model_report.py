"""What is known of a model's weights beside their values: what they take as stored, and how they were compressed.

Knows checkpoints and no engines. Always: plain values, as JSON holds them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from model.evaluation.saved import read_evaluation
from model.loading.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class ModelReport:
    """The weights of all tensors together."""

    parameters: int
    bytes: int
    """What the weights take in the file, scales and masks included."""
    bits_per_weight: float
    recipe: str | None
    """The name of the recipe that compressed them; None for a model as it was published."""
    report: Mapping[str, Any] | None
    """What compressing it came to."""
    evaluation: Mapping[str, Any] | None
    """What `tane eval --save` measured."""


def report_on(checkpoint: Checkpoint, path: Path) -> ModelReport:
    """`path`: where the model lies. Raises ModelFileError for figures beside it that cannot be read."""
    parameters, stored = parameters_of(checkpoint), stored_bytes_of(checkpoint)
    recipe = checkpoint.recipe or {}
    name = recipe.get("name")
    return ModelReport(
        parameters=parameters,
        bytes=stored,
        bits_per_weight=8 * stored / parameters,
        recipe=name if isinstance(name, str) else None,
        report=_single_values(recipe.get("report")),
        evaluation=_single_values(read_evaluation(path, checkpoint.sha256)),
    )


def parameters_of(checkpoint: Checkpoint) -> int:
    """How many numbers its tensors hold."""
    return sum(prod(tensor.shape) for tensor in checkpoint.tensors.values())


def stored_bytes_of(checkpoint: Checkpoint) -> int:
    """What they take in the file."""
    return sum(tensor.stored_bytes for tensor in checkpoint.tensors.values())


def _single_values(figures: Any) -> Mapping[str, Any] | None:
    """Without the figures of each matrix and each document: these are for who opens the folder."""
    if not isinstance(figures, Mapping):
        return None
    return {name: value for name, value in figures.items() if not isinstance(value, dict | list)}
