"""What is known of a model's weights beside their values: what they take as stored, and how they were compressed.

Knows checkpoints and no engines. Always: plain values, as JSON holds them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

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
    """The figures that are kept with a compressed model."""


def report_on(checkpoint: Checkpoint) -> ModelReport:
    parameters = sum(prod(tensor.shape) for tensor in checkpoint.tensors.values())
    stored = sum(tensor.stored_bytes for tensor in checkpoint.tensors.values())
    recipe = checkpoint.recipe or {}
    name = recipe.get("name")
    return ModelReport(
        parameters=parameters,
        bytes=stored,
        bits_per_weight=8 * stored / parameters,
        recipe=name if isinstance(name, str) else None,
        report=_figures(recipe),
    )


def _figures(recipe: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What was measured when the model was compressed."""
    report = recipe.get("report")
    return report if isinstance(report, Mapping) else None
