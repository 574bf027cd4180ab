"""The decoder of every family, written once over an op set.

Knows no tensors, no batch and no pages: it names weights and calls operations, so an op set may run it directly
or record it once and replay it. Always: the calls depend on the configuration alone, never on what is run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Self

from model.config import ModelConfig
from model.family import Gate
from model.loading.checkpoint import Checkpoint
from model.loading.tensor import StoredTensor
from model.ops.protocol import Array, Matrix, OpSet, Vector


@dataclass(frozen=True, slots=True)
class Norm(Generic[Vector]):
    """A gain, and the bias that a LayerNorm has beside it."""

    gain: Vector
    bias: Vector | None


@dataclass(frozen=True, slots=True)
class Linear(Generic[Matrix, Vector]):
    """A matrix and the bias that is added to its product; matrices that share an input are stacked into one."""

    matrix: Matrix
    bias: Vector | None = None


@dataclass(frozen=True, slots=True)
class LayerWeights(Generic[Matrix, Vector]):
    """One decoder layer; what its family has not is None."""

    attention_norm: Norm[Vector]
    query_key_value: Linear[Matrix, Vector]
    query_norm: Vector | None
    key_norm: Vector | None
    attention_output: Linear[Matrix, Vector]
    attention_output_norm: Norm[Vector] | None
    feed_forward_norm: Norm[Vector]
    upward: Linear[Matrix, Vector]
    """Gate and up, or up alone where the family has no gate."""
    down: Linear[Matrix, Vector]
    feed_forward_output_norm: Norm[Vector] | None


@dataclass(frozen=True, slots=True)
class ModelWeights(Generic[Matrix, Vector]):
    """Every weight of the decoder, in its op set's own form."""

    embedding: Matrix
    position_embedding: Matrix | None
    layers: tuple[LayerWeights[Matrix, Vector], ...]
    output_norm: Norm[Vector]
    head: Matrix
    """The embedding itself when the checkpoint ties them."""

    @classmethod
    def load(cls, ops: OpSet[Array, Matrix, Vector], checkpoint: Checkpoint) -> Self:
        """Hand the checkpoint's tensors to `ops`, each once."""
        tensors, gate = checkpoint.tensors, checkpoint.config.family.gate
        embedding = ops.matrix(tensors["embedding"])
        layers = (load_layer(ops, gate, checkpoint.layer(i)) for i in range(checkpoint.config.layer_count))
        return cls(
            embedding=embedding,
            position_embedding=ops.matrix(tensors["position_embedding"]) if "position_embedding" in tensors else None,
            layers=tuple(layers),
            output_norm=_Loader(ops, tensors).norm("output_norm"),
            head=ops.matrix(tensors["head"]) if "head" in tensors else embedding,
        )


def load_layer(
    ops: OpSet[Array, Matrix, Vector], gate: Gate, tensors: Mapping[str, StoredTensor]
) -> LayerWeights[Matrix, Vector]:
    """Hand the tensors of one layer to `ops`; their names here are those behind `layers.{i}.`."""
    load = _Loader(ops, tensors)
    return LayerWeights(
        attention_norm=load.norm("attention_norm"),
        query_key_value=load.linear("query", "key", "value"),
        query_norm=load.vector("query_norm"),
        key_norm=load.vector("key_norm"),
        attention_output=load.linear("attention_output"),
        attention_output_norm=load.norm("attention_output_norm") if "attention_output_norm" in tensors else None,
        feed_forward_norm=load.norm("feed_forward_norm"),
        upward=load.linear("up") if gate == "none" else load.linear("gate", "up"),
        down=load.linear("down"),
        feed_forward_output_norm=load.norm("feed_forward_output_norm")
        if "feed_forward_output_norm" in tensors
        else None,
    )


@dataclass(frozen=True, slots=True)
class _Loader(Generic[Array, Matrix, Vector]):
    ops: OpSet[Array, Matrix, Vector]
    tensors: Mapping[str, StoredTensor]

    def vector(self, *names: str) -> Vector | None:
        """The vectors joined; None when there are none."""
        return self.ops.vector(*(self.tensors[name] for name in names)) if names[0] in self.tensors else None

    def norm(self, name: str) -> Norm[Vector]:
        return Norm(self.ops.vector(self.tensors[name]), self.vector(f"{name}_bias"))

    def linear(self, *names: str) -> Linear[Matrix, Vector]:
        matrix = self.ops.matrix(*(self.tensors[name] for name in names))
        return Linear(matrix, self.vector(*(f"{name}_bias" for name in names)))


class Transformer(Generic[Array, Matrix, Vector]):
    """Pre-normalised decoder layers with grouped-query attention, and what `model/family.py` says beyond it."""

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
        hidden = embedded(ops, self._config, self._weights.embedding, self._weights.position_embedding)
        for index, layer in enumerate(self._weights.layers):
            hidden = run_layer(ops, self._config, index, layer, hidden)
        normed = _normed(ops, self._config, self._weights.output_norm, ops.asked_rows(hidden))
        return ops.linear(normed, self._weights.head)


def embedded(ops: OpSet[Array, Matrix, Vector], config: ModelConfig, table: Matrix, positions: Matrix | None) -> Array:
    """The hidden states [rows, width] that enter the first layer."""
    hidden = ops.embed(table, config.embedding_scale)
    return hidden if positions is None else ops.add(hidden, ops.embed_positions(positions))


def run_layer(
    ops: OpSet[Array, Matrix, Vector],
    config: ModelConfig,
    index: int,
    layer: LayerWeights[Matrix, Vector],
    hidden: Array,
) -> Array:
    """What decoder layer `index` makes of the hidden states [rows, width] of the batch that the op set is running."""
    attended = _attention(ops, config, index, layer, _normed(ops, config, layer.attention_norm, hidden))
    if layer.attention_output_norm is not None:
        attended = _normed(ops, config, layer.attention_output_norm, attended)
    hidden = ops.add(hidden, attended)
    forwarded = _feed_forward(ops, config, layer, _normed(ops, config, layer.feed_forward_norm, hidden))
    if layer.feed_forward_output_norm is not None:
        forwarded = _normed(ops, config, layer.feed_forward_output_norm, forwarded)
    return ops.add(hidden, forwarded)


def _attention(
    ops: OpSet[Array, Matrix, Vector], config: ModelConfig, index: int, layer: LayerWeights[Matrix, Vector], x: Array
) -> Array:
    widths = (config.query_width, config.kv_width, config.kv_width)
    queries, keys, values = ops.split(_linear(ops, x, layer.query_key_value), widths)
    if layer.query_norm is not None and layer.key_norm is not None:
        queries = ops.head_norm(queries, layer.query_norm, config.norm_epsilon)
        keys = ops.head_norm(keys, layer.key_norm, config.norm_epsilon)
    ops.store(index, keys, values)
    return _linear(ops, ops.attend(index, queries), layer.attention_output)


def _feed_forward(
    ops: OpSet[Array, Matrix, Vector], config: ModelConfig, layer: LayerWeights[Matrix, Vector], x: Array
) -> Array:
    upward = _linear(ops, x, layer.upward)
    gate_name = config.family.gate
    if gate_name == "none":
        return _linear(ops, ops.gelu(upward), layer.down)
    gate, up = ops.split(upward, (config.feed_forward_width, config.feed_forward_width))
    gated = ops.silu_multiply(gate, up) if gate_name == "silu" else ops.gelu_multiply(gate, up)
    return _linear(ops, gated, layer.down)


def _linear(ops: OpSet[Array, Matrix, Vector], x: Array, weights: Linear[Matrix, Vector]) -> Array:
    product = ops.linear(x, weights.matrix)
    return product if weights.bias is None else ops.add_bias(product, weights.bias)


def _normed(ops: OpSet[Array, Matrix, Vector], config: ModelConfig, norm: Norm[Vector], x: Array) -> Array:
    if norm.bias is not None:
        return ops.layer_norm(x, norm.gain, norm.bias, config.norm_epsilon)
    return ops.rms_norm(x, norm.gain, config.norm_epsilon)
