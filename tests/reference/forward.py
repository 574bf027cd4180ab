"""The slow truth of the decoder: one sequence, no cache, no batch, one head at a time, in float64.

Always: position t is computed from the positions up to t alone, anew at every call.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from model.config import ModelConfig
from model.loading.checkpoint import Checkpoint


def forward(checkpoint: Checkpoint, token_ids: Sequence[int]) -> Tensor:
    """Logits [positions, vocabulary] of a whole sequence."""
    weights = {name: torch.tensor(tensor.dequantised()).double() for name, tensor in checkpoint.tensors.items()}
    config = checkpoint.config
    hidden = weights["embedding"][list(token_ids)]
    for layer in range(config.layer_count):
        own = {name.split(".")[2]: tensor for name, tensor in weights.items() if name.startswith(f"layers.{layer}.")}
        hidden = hidden + _attention(_normed(hidden, own["attention_norm"], config), own, config)
        x = _normed(hidden, own["feed_forward_norm"], config)
        gate = x @ own["gate"].T
        hidden = hidden + (gate / (1 + torch.exp(-gate)) * (x @ own["up"].T)) @ own["down"].T
    return _normed(hidden, weights["output_norm"], config) @ weights.get("head", weights["embedding"]).T


def _normed(x: Tensor, gain: Tensor, config: ModelConfig) -> Tensor:
    return x / torch.sqrt((x * x).mean(dim=1, keepdim=True) + config.norm_epsilon) * gain


def _attention(x: Tensor, own: dict[str, Tensor], config: ModelConfig) -> Tensor:
    sharing = config.head_count // config.kv_head_count
    heads = [_attention_head(x, own, head, head // sharing, config) for head in range(config.head_count)]
    return torch.cat(heads, dim=1) @ own["attention_output"].T


def _attention_head(x: Tensor, own: dict[str, Tensor], head: int, kv_head: int, config: ModelConfig) -> Tensor:
    width = config.head_width
    queries = _rotated(x @ own["query"][head * width : (head + 1) * width].T, config)
    keys = _rotated(x @ own["key"][kv_head * width : (kv_head + 1) * width].T, config)
    values = x @ own["value"][kv_head * width : (kv_head + 1) * width].T
    rows = []
    for t in range(len(x)):
        weights = torch.softmax(keys[: t + 1] @ queries[t] / width**0.5, dim=0)
        rows.append(weights @ values[: t + 1])
    return torch.stack(rows)


def _rotated(x: Tensor, config: ModelConfig) -> Tensor:
    """Pair (i, i + half) of the row at position t, turned by t times its frequency."""
    half = config.head_width // 2
    angles = torch.arange(len(x), dtype=torch.float32)[:, None] * _frequencies(config)
    cosines, sines = angles.cos().double(), angles.sin().double()
    first, second = x[:, :half], x[:, half:]
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=1)


def _frequencies(config: ModelConfig) -> Tensor:
    """Frequencies and angles are rounded to float32, as the published models were trained with."""
    exponents = torch.arange(0, config.head_width, 2, dtype=torch.float32) / config.head_width
    return torch.stack([_scaled(frequency, config) for frequency in 1.0 / config.rope_base**exponents])


def _scaled(frequency: Tensor, config: ModelConfig) -> Tensor:
    """Llama 3's stretching of one frequency: not below a wave length, fully above another, partly between."""
    scaling = config.rope_scaling
    if scaling is None:
        return frequency
    wave_length = 2 * torch.pi / frequency
    if wave_length < scaling.original_context_length / scaling.high_frequency_factor:
        return frequency
    if wave_length > scaling.original_context_length / scaling.low_frequency_factor:
        return frequency / scaling.factor
    turns = scaling.original_context_length / wave_length
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    smooth = (turns - low) / (high - low)
    return (1 - smooth) * frequency / scaling.factor + smooth * frequency
