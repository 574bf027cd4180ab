"""The Llama decoder, written once over an op set.

Knows no tensors, no batch and no pages: it names weights and calls operations, so an op set may run it directly
or record it once and replay it. Always: the calls depend on the configuration alone, never on what is run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Self

from model.config import ModelConfig
from model.loading.checkpoint import Checkpoint
from model.loading.tensor import StoredTensor
from model.ops.protocol import Array, Matrix, OpSet, Vector


@dataclass(frozen=True, slots=True)
class LayerWeights(Generic[Matrix, Vector]):
    """One decoder layer; matrices that share an input are stacked into one."""

    attention_norm: Vector
    query_key_value: Matrix
    attention_output: Matrix
    feed_forward_norm: Vector
    gate_up: Matrix
    down: Matrix


@dataclass(frozen=True, slots=True)
class ModelWeights(Generic[Matrix, Vector]):
    """Every weight of the decoder, in its op set's own form."""

    embedding: Matrix
    layers: tuple[LayerWeights[Matrix, Vector], ...]
    output_norm: Vector
    head: Matrix
    """The embedding itself when the checkpoint ties them."""

    @classmethod
    def load(cls, ops: OpSet[Array, Matrix, Vector], checkpoint: Checkpoint) -> Self:
        """Hand the checkpoint's tensors to `ops`, each once."""
        tensors = checkpoint.tensors
        embedding = ops.matrix(tensors["embedding"])
        return cls(
            embedding=embedding,
            layers=tuple(load_layer(ops, checkpoint.layer(i)) for i in range(checkpoint.config.layer_count)),
            output_norm=ops.vector(tensors["output_norm"]),
            head=ops.matrix(tensors["head"]) if "head" in tensors else embedding,
        )


def load_layer(ops: OpSet[Array, Matrix, Vector], tensors: Mapping[str, StoredTensor]) -> LayerWeights[Matrix, Vector]:
    """Hand the tensors of one layer to `ops`; their names here are those behind `layers.{i}.`."""

    def stored(*names: str) -> list[StoredTensor]:
        return [tensors[name] for name in names]

    return LayerWeights(
        attention_norm=ops.vector(*stored("attention_norm")),
        query_key_value=ops.matrix(*stored("query", "key", "value")),
        attention_output=ops.matrix(*stored("attention_output")),
        feed_forward_norm=ops.vector(*stored("feed_forward_norm")),
        gate_up=ops.matrix(*stored("gate", "up")),
        down=ops.matrix(*stored("down")),
    )


class Transformer(Generic[Array, Matrix, Vector]):
    """Pre-normalised decoder layers with rotary grouped-query attention and SwiGLU (Touvron et al. 2023)."""

    def __init__(
        self,
        ops: OpSet[Array, Matrix, Vector],
        config: ModelConfig,
        weights: ModelWeights[Matrix, Vector],
    ) -> None:
        self._ops = ops
        self._config = config
        self._weights = weights

    def forward(self) -> Array:
        """Logits [asked rows, vocabulary] of the batch that the op set is running."""
        ops = self._ops
        hidden = ops.embed(self._weights.embedding)
        for index, layer in enumerate(self._weights.layers):
            hidden = run_layer(ops, self._config, index, layer, hidden)
        normed = ops.rms_norm(ops.asked_rows(hidden), self._weights.output_norm, self._config.norm_epsilon)
        return ops.linear(normed, self._weights.head)


def run_layer(
    ops: OpSet[Array, Matrix, Vector],
    config: ModelConfig,
    index: int,
    layer: LayerWeights[Matrix, Vector],
    hidden: Array,
) -> Array:
    """What decoder layer `index` makes of the hidden states [rows, width] of the batch that the op set is running."""
    normed = ops.rms_norm(hidden, layer.attention_norm, config.norm_epsilon)
    hidden = ops.add(hidden, _attention(ops, config, index, layer, normed))
    normed = ops.rms_norm(hidden, layer.feed_forward_norm, config.norm_epsilon)
    return ops.add(hidden, _feed_forward(ops, config, layer, normed))


def _attention(
    ops: OpSet[Array, Matrix, Vector], config: ModelConfig, index: int, layer: LayerWeights[Matrix, Vector], x: Array
) -> Array:
    widths = (config.query_width, config.kv_width, config.kv_width)
    queries, keys, values = ops.split(ops.linear(x, layer.query_key_value), widths)
    ops.store(index, keys, values)
    return ops.linear(ops.attend(index, queries), layer.attention_output)


def _feed_forward(
    ops: OpSet[Array, Matrix, Vector], config: ModelConfig, layer: LayerWeights[Matrix, Vector], x: Array
) -> Array:
    width = config.feed_forward_width
    gate, up = ops.split(ops.linear(x, layer.gate_up), (width, width))
    return ops.linear(ops.silu_multiply(gate, up), layer.down)
