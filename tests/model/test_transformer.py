"""The decoder computes what `transformers` and a slow truth compute, and asks nothing of the batch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.batch import Batch, Segment
from model.decoding.params import Draw, Drawn, Ranked, Ranking, Score
from model.loading.tensor import StoredTensor
from model.ops.protocol import Program
from model.transformer import ModelWeights, Transformer
from tests.memory_checkpoint import memory_checkpoint
from tests.paged_sequence import PagedSequence, float64_runner
from tests.reference import forward as reference
from tests.tiny_model import TinyShape

SHAPES = {
    "grouped heads": TinyShape(),
    "a key head for each head": TinyShape(kv_heads=4),
    "one key head": TinyShape(kv_heads=1),
    "a head of its own": TinyShape(tied=False),
    "odd widths": TinyShape(layers=3, width=45, heads=3, kv_heads=1, head_width=14, feed_forward=37, vocabulary=101),
    "one layer": TinyShape(layers=1, width=66, heads=6, kv_heads=3, head_width=8),
    "scaled positions": TinyShape(rope_factor=8.0, rope_base=50000.0, head_width=32),
    "another base and epsilon": TinyShape(rope_base=100.0, epsilon=1e-3),
}
IDS = [(7 * i * i + 3 * i) % 89 for i in range(50)]


def assert_close(expected: Tensor, actual: Tensor) -> None:
    """Within 1e-9 of the largest logit."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-9 * float(expected.abs().max()))


def logits_of_every_position(shape: TinyShape) -> Tensor:
    return PagedSequence(range(2)).feed_in_pieces(float64_runner(memory_checkpoint(shape), 2), IDS, 1)


def exact_hf_model(shape: TinyShape) -> Any:
    """In float64 throughout: as published, the norms and the softmax of eager attention round to float32."""
    from tests.tiny_model import tiny_hf_model

    model = tiny_hf_model(shape, dtype="float64")
    model.set_attn_implementation("sdpa")
    for name, module in list(model.named_modules()):
        if type(module).__name__ == "LlamaRMSNorm":
            exact = torch.nn.RMSNorm(shape.width, module.variance_epsilon, dtype=torch.float64)
            exact.weight = module.weight
            model.set_submodule(name, exact)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_float64_logits_are_those_of_transformers(shape: TinyShape) -> None:
    with torch.no_grad():
        expected = exact_hf_model(shape)(torch.tensor([IDS])).logits[0]

    assert_close(expected, logits_of_every_position(shape))


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_slow_truth_is_that_of_transformers(shape: TinyShape) -> None:
    with torch.no_grad():
        expected = exact_hf_model(shape)(torch.tensor([IDS])).logits[0]

    assert_close(expected, reference.forward(memory_checkpoint(shape), IDS))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_logits_are_those_of_the_slow_truth(shape: TinyShape) -> None:
    assert_close(reference.forward(memory_checkpoint(shape), IDS), logits_of_every_position(shape))


class NamingOps:
    """An op set whose arrays, matrices and vectors are the names of what they hold; it runs without a batch."""

    page_count = 0

    def __init__(self) -> None:
        self.loaded: list[tuple[str, ...]] = []
        self.calls: list[str] = []

    def _call(self, text: str) -> str:
        self.calls.append(text)
        return f"%{len(self.calls)}"

    def matrix(self, *parts: StoredTensor) -> str:
        self.loaded.append(tuple(part.name for part in parts))
        return "+".join(part.name for part in parts)

    def vector(self, *parts: StoredTensor) -> str:
        return self.matrix(*parts)

    def embed(self, table: str, scale: float = 1.0) -> str:
        return self._call(f"embed {table}" if scale == 1.0 else f"embed {table} {scale}")

    def embed_positions(self, table: str) -> str:
        return self._call(f"embed_positions {table}")

    def layer_norm(self, x: str, gain: str, bias: str, epsilon: float) -> str:
        return self._call(f"layer_norm {x} {gain} {bias}")

    def head_norm(self, x: str, gain: str, epsilon: float) -> str:
        return self._call(f"head_norm {x} {gain}")

    def add_bias(self, x: str, bias: str) -> str:
        return self._call(f"add_bias {x} {bias}")

    def gelu_multiply(self, gate: str, up: str) -> str:
        return self._call(f"gelu_multiply {gate} {up}")

    def gelu(self, x: str) -> str:
        return self._call(f"gelu {x}")

    def rms_norm(self, x: str, gain: str, epsilon: float) -> str:
        return self._call(f"rms_norm {x} {gain}")

    def linear(self, x: str, weight: str) -> str:
        return self._call(f"linear {x} {weight}")

    def split(self, x: str, widths: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(f"{x}[{width}]" for width in widths)

    def store(self, layer: int, keys: str, values: str) -> None:
        self._call(f"store {layer} {keys} {values}")

    def attend(self, layer: int, queries: str) -> str:
        return self._call(f"attend {layer} {queries}")

    def silu_multiply(self, gate: str, up: str) -> str:
        return self._call(f"silu_multiply {gate} {up}")

    def add(self, x: str, y: str) -> str:
        return self._call(f"add {x} {y}")

    def asked_rows(self, x: str) -> str:
        return self._call(f"asked_rows {x}")

    def program(self, forward: Callable[[], str]) -> Program:
        raise NotImplementedError

    def choose(self, logits: Any, draws: Sequence[Draw]) -> list[Drawn]:
        raise NotImplementedError

    def rank(self, logits: Any, rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]:
        raise NotImplementedError

    def read_logits(self, logits: Any, rows: Sequence[int]) -> NDArray[np.float32]:
        raise NotImplementedError

    def score(self, logits: Any, scores: Sequence[Score]) -> list[Drawn]:
        raise NotImplementedError


def test_the_calls_are_made_without_a_batch() -> None:
    checkpoint = memory_checkpoint(TinyShape(layers=1))
    ops = NamingOps()

    logits = Transformer(ops, checkpoint.config, ModelWeights.load(ops, checkpoint)).forward()

    assert [
        "embed embedding",
        "rms_norm %1 layers.0.attention_norm",
        "linear %2 layers.0.query+layers.0.key+layers.0.value",
        "store 0 %3[32] %3[32]",
        "attend 0 %3[64]",
        "linear %5 layers.0.attention_output",
        "add %1 %6",
        "rms_norm %7 layers.0.feed_forward_norm",
        "linear %8 layers.0.gate+layers.0.up",
        "silu_multiply %9[96] %9[96]",
        "linear %10 layers.0.down",
        "add %7 %11",
        "asked_rows %12",
        "rms_norm %13 output_norm",
        "linear %14 embedding",
    ] == ops.calls
    assert "%15" == logits


@pytest.mark.parametrize("tied", [True, False])
def test_each_tensor_is_loaded_once(tied: bool) -> None:
    checkpoint = memory_checkpoint(TinyShape(tied=tied))
    ops = NamingOps()

    ModelWeights.load(ops, checkpoint)

    assert sorted(checkpoint.tensors) == sorted(name for parts in ops.loaded for name in parts)


def test_a_missing_head_is_the_embedding() -> None:
    checkpoint = memory_checkpoint(TinyShape(tied=True))

    weights = ModelWeights.load(NamingOps(), checkpoint)

    assert weights.embedding == weights.head


def test_a_head_of_its_own_is_used() -> None:
    """A head that is the embedding doubled doubles every logit."""
    tied = memory_checkpoint(TinyShape(tied=True))
    embedding = tied.tensors["embedding"]
    doubled = replace(embedding, name="head", read=lambda: (embedding.dequantised() * 2).view("u1"))
    untied = replace(tied, tensors={**tied.tensors, "head": doubled})
    batch = Batch((Segment((5, 6, 7), 0, (0,), asks=1),))

    assert_close(2 * float64_runner(tied, 1).forward(batch), float64_runner(untied, 1).forward(batch))
