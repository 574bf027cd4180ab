"""A whole model by one recipe, layer after layer, written as it goes.

Knows the order of the work: text passes a layer as it was compressed before the next layer is looked at, so that later
layers make up for what earlier ones lost. Always: an interrupted run goes on behind its last whole layer and ends with
the same bytes; of the model's own weights one layer is held at a time.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from model.compression.artefact_writer import ArtefactWriter
from model.compression.calibration import INPUT_OF, HiddenStates, Layer
from model.compression.compress_layer import compress_layer, shrunk
from model.compression.matrix import check_group
from model.compression.recipe import Recipe, RecipeError, Unit
from model.compression.selection import Pattern, smallest
from model.config import ModelConfig
from model.loading.checkpoint import Checkpoint, layer_prefix
from model.loading.shapes import decoder_shapes

OnStep = Callable[[], None]
Windows = Sequence[Sequence[int]]
_NOTE_OF_LAYERS = "layers"


def check_fits(recipe: Recipe, config: ModelConfig) -> ModelConfig:
    """The shape of the model that the recipe leaves. Raises RecipeError when it does not fit a model of this shape."""
    _check_family(recipe, config)
    try:
        after = shrunk(config, recipe)
        shapes = decoder_shapes(after)
        for name in INPUT_OF:
            _check_columns(recipe, shapes[layer_prefix(0) + name][1])
    except ValueError as error:
        raise RecipeError(f"{recipe.name} does not fit this model: {error}") from None
    return after


def _check_family(recipe: Recipe, config: ModelConfig) -> None:
    if config.family.gate == "none":
        raise RecipeError(f"models of the family {config.architecture} cannot be compressed: they have no gate")
    narrows = any(recipe.share(unit) for unit in get_args(Unit))
    if narrows and (config.architecture != "llama" or config.window is not None):
        raise RecipeError(
            f"{recipe.name} takes neurons, heads or layers away, which is implemented for plain Llamas alone, "
            f"not for {config.architecture}{' with a window' if config.window else ''}"
        )


def _check_columns(recipe: Recipe, columns: int) -> None:
    if recipe.quantise and isinstance(recipe.quantise.grid.group, int):
        check_group(recipe.quantise.grid.group, columns)
    if recipe.prune and isinstance(recipe.prune.sparsity, Pattern):
        recipe.prune.sparsity.check(columns)


def step_count(checkpoint: Checkpoint, recipe: Recipe) -> int:
    """How often `compress` tells of a step."""
    return check_fits(recipe, checkpoint.config).layer_count + _scouted(checkpoint.config, recipe)


def compress(
    checkpoint: Checkpoint, recipe: Recipe, windows: Windows, writer: ArtefactWriter, on_step: OnStep
) -> tuple[ModelConfig, dict[str, Any]]:
    """Write every tensor of the compressed model.

    Args:
        windows: token ids of the text, windows of one length; none where the recipe needs no text.
        writer: of the same recipe and model. What it holds already is not made again.

    Returns:
        The compressed model's shape, and a report of plain values: `layers` with the figures of each matrix, and what
        they come to.

    Raises:
        RecipeError: when the recipe does not fit the model, or needs text and has none.
        ValueError: when a weight or an input is not finite, or too great for a grid.
        OSError: when the folder cannot be written.
    """
    after = check_fits(recipe, checkpoint.config)
    if recipe.needs_text and not windows:
        raise RecipeError(f"{recipe.name} needs text to look at")
    work = _Work(checkpoint, recipe, windows, writer, on_step)
    order = work.layers_that_stay(after.layer_count)
    layers = [work.compressed(own, index) for index, own in enumerate(order)]
    for name in ("embedding", "output_norm", "head"):
        if name in checkpoint.tensors and name not in writer.done():
            writer.put(name, checkpoint.tensors[name])
    return after, {**_summary(writer, layers), "layers": layers}


def _scouted(config: ModelConfig, recipe: Recipe) -> int:
    """Layers that text passes as they are, to see which to drop."""
    return config.layer_count if recipe.share("layers") else 0


class _Work:
    """Text on its way through the model that is made."""

    def __init__(
        self, checkpoint: Checkpoint, recipe: Recipe, windows: Windows, writer: ArtefactWriter, on_step: OnStep
    ) -> None:
        self._checkpoint = checkpoint
        self._config = checkpoint.config
        self._recipe = recipe
        self._windows = windows
        self._writer = writer
        self._on_step = on_step
        self._after = shrunk(checkpoint.config, recipe)
        self._text = self._fresh_text() if recipe.needs_hessians else None

    def layers_that_stay(self, count: int) -> list[int]:
        """All layers, or those that turn what passes them most (Men et al. 2024), in their order."""
        every = list(range(self._config.layer_count))
        if count == len(every):
            return every
        influences = self._influences()
        dropped = set(smallest(np.array(influences), len(every) - count).tolist())
        return [index for index in every if index not in dropped]

    def _influences(self) -> list[float]:
        note = self._writer.note(_NOTE_OF_LAYERS)
        influences: list[float] = [] if note is None else note["influences"]
        text = self._fresh_text()
        for index in range(self._config.layer_count):
            if note is None:
                influences.append(text.advance(self._config.of_layer(index), self._checkpoint.layer(index)))
            self._on_step()
        self._writer.put_note(_NOTE_OF_LAYERS, {"influences": influences})
        return influences

    def compressed(self, own: int, index: int) -> dict[str, Any]:
        """Layer `own` of the model as layer `index` of the compressed one; its figures."""
        note_name = f"layer-{index}"
        figures = self._writer.note(note_name)
        if figures is None:
            figures = self._compress(own, index)
            self._writer.put_note(note_name, figures)
        if self._text is not None and index + 1 < self._after.layer_count:
            self._text.advance(self._after.of_layer(index), self._written(index))
        self._on_step()
        return figures

    def _compress(self, own: int, index: int) -> dict[str, Any]:
        layer = self._checkpoint.layer(own)
        hessians = self._text.hessians(self._config.of_layer(own), layer) if self._text else {}
        done = compress_layer(layer, hessians, self._recipe, self._config)
        for name, weights in done.tensors.items():
            self._writer.put(layer_prefix(index) + name, weights)
        matrices = {name: dataclasses.asdict(each) for name, each in done.figures.items()}
        return {"layer": own, "matrices": matrices}

    def _written(self, index: int) -> Layer:
        prefix = layer_prefix(index)
        names = (name for name in decoder_shapes(self._after) if name.startswith(prefix))
        return {name.removeprefix(prefix): self._writer.tensor(name) for name in names}

    def _fresh_text(self) -> HiddenStates:
        return HiddenStates(self._checkpoint.tensors["embedding"], self._windows, self._config.embedding_scale)


def _summary(writer: ArtefactWriter, layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the matrices of all layers come to."""
    sizes = [writer.stored_size(layer_prefix(index) + name) for index in range(len(layers)) for name in INPUT_OF]
    weights, stored_bytes = (sum(each) for each in zip(*sizes, strict=True))
    figures = [each for layer in layers for each in layer["matrices"].values()]
    tried = [each["dampening"] for each in figures if each["dampening"] is not None]
    return {
        "weights": weights,
        "bytes": stored_bytes,
        "bits_per_weight": 8 * stored_bytes / weights,
        "zeros": sum(each["zeros"] for each in figures),
        "most_dampening": max(tried, default=None),
        "fallbacks": sum(each["fell_back"] for each in figures),
        "dead_columns": sum(each["dead_columns"] for each in figures),
    }
