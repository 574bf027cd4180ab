"""A folder that `transformers` saved computes here what it computes there."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model.config import SlidingWindow
from model.loading.checkpoint import Checkpoint
from model.loading.model import load_model
from tests.hf_folders import CONTEXT, TINY_MODELS, WINDOW, save_tiny_model
from tests.paged_sequence import PagedSequence, float64_runner

pytestmark = pytest.mark.slow
IDS = [(7 * i * i + 3 * i) % 313 for i in range(50)]


def logits_of(checkpoint: Checkpoint) -> Tensor:
    return PagedSequence(range(2)).feed_in_pieces(float64_runner(checkpoint, 2), IDS, 1)


def exact(model: Any) -> Any:
    """In float64 throughout: as published, RMSNorm and the softmax of eager attention round to float32."""
    model = model.double()
    model.set_attn_implementation("sdpa")
    for module in model.modules():
        if type(module).__name__ == "Gemma3RMSNorm":
            module.forward = lambda x, module=module: _rms(x, module.eps) * (1.0 + module.weight.float())
        elif type(module).__name__.endswith("RMSNorm"):
            module.forward = lambda x, module=module: _rms(x, module.variance_epsilon) * module.weight
    return model


def _rms(x: Tensor, epsilon: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon)


def assert_agree(model: Any, checkpoint: Checkpoint) -> None:
    """Within 1e-9 of the largest logit."""
    with torch.no_grad():
        expected = exact(model)(torch.tensor([IDS])).logits[0]
    torch.testing.assert_close(logits_of(checkpoint), expected, rtol=0, atol=1e-9 * float(expected.abs().max()))


@pytest.mark.parametrize("name", TINY_MODELS)
def test_float64_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path, name)

    assert_agree(model, load_model(tmp_path))


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma3", "gpt2"])
def test_shards_hold_the_same_model(name: str, tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path, name, max_shard_size="50KB")

    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_agree(model, load_model(tmp_path))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2"])
def test_halves_are_read_as_they_are(name: str, dtype: str, tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path, name, dtype=dtype)

    assert_agree(model, load_model(tmp_path))


def test_the_prompt_is_longer_than_the_window() -> None:
    assert WINDOW < len(IDS) < CONTEXT


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("mistral", None),
        ("mistral, window", SlidingWindow(WINDOW)),
        ("qwen2, window", SlidingWindow(WINDOW)),
        ("gemma3", SlidingWindow(WINDOW, 3, 10_000.0)),
        ("gemma3, window beyond the context", SlidingWindow(4 * CONTEXT, 3, 10_000.0)),
    ],
)
def test_windows_are_found(name: str, window: SlidingWindow | None, tmp_path: Path) -> None:
    save_tiny_model(tmp_path, name)

    assert window == load_model(tmp_path).config.window
