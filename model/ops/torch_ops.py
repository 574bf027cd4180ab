"""The reference op set: torch in any floating-point type, on any device.

Knows no checkpoints and no requests. It promises closeness, not bits: a row's last bits may depend on which rows
share its step. Always: only positions that the batch's rows may see reach a result, whatever lies elsewhere.
Always: the caller's threads and torch's global state are left alone.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from model.batch import Batch, PageCopy
from model.config import ModelConfig
from model.decoding import torch_choice
from model.decoding.params import Draw, Drawn, Ranked, Ranking, Score
from model.kv_cache import PAGE_SIZE
from model.loading.tensor import StoredTensor
from model.ops.protocol import Program
from model.ops.torch_step import Layout, Span, Step, build_step, inverse_frequencies

FEW_ROWS = 4
"""Up to this many rows, a float32 product on a CPU is split by outputs; more go to oneDNN."""
OUTPUT_BLOCKS = 8


class TorchOps:
    """An `OpSet` whose arrays, matrices and vectors are tensors of one type on one device."""

    def __init__(
        self,
        config: ModelConfig,
        page_count: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """Allocates 2 · layers · kv width · 32 numbers for each page, and for one more that stays zero."""
        self._layout = Layout(config.kv_head_count, page_count, dtype, torch.device(device))
        self._head_width = config.head_width
        shape = (config.layer_count, 2, config.kv_head_count, self._layout.position_count, config.head_width)
        self._storage = torch.zeros(shape, dtype=dtype, device=self._layout.device)
        self._ropes = [config.rope_of(layer) for layer in range(config.layer_count)]
        self._frequencies = {
            rope: inverse_frequencies(config.head_width, *rope).to(self._layout.device) for rope in self._ropes if rope
        }
        windows = [config.window_of(layer) for layer in range(config.layer_count)]
        self._window_widths = [None if window is None else window.width for window in windows]
        self._scale = config.attention_scale
        self._has_groups = config.head_count != config.kv_head_count
        has_onednn = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        self._is_for_onednn = has_onednn and dtype == torch.float32 and self._layout.device.type == "cpu"
        self._step: Step

    @property
    def page_count(self) -> int:
        return self._layout.page_count

    @property
    def pages(self) -> Tensor:
        """The storage itself: [layers, keys and values, kv heads, pages, 32 positions, head width]."""
        pages = self._storage.view(*self._storage.shape[:3], -1, PAGE_SIZE, self._head_width)
        return pages[:, :, :, : self.page_count]

    def matrix(self, *parts: StoredTensor) -> Tensor:
        stacked = torch.empty(sum(part.shape[0] for part in parts), parts[0].shape[1], dtype=self._layout.dtype)
        first = 0
        for part in parts:
            stacked[first : first + part.shape[0]].numpy()[...] = part.dequantised()
            first += part.shape[0]
        return stacked.to(self._layout.device)

    def vector(self, *parts: StoredTensor) -> Tensor:
        joined = np.concatenate([part.dequantised() for part in parts])
        return torch.tensor(joined, dtype=self._layout.dtype, device=self._layout.device)

    def embed(self, table: Tensor, scale: float = 1.0) -> Tensor:
        rows = table.index_select(0, self._step.token_ids)
        return rows if scale == 1.0 else rows * scale

    def embed_positions(self, table: Tensor) -> Tensor:
        return table.index_select(0, self._step.positions)

    def rms_norm(self, x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
        return functional.rms_norm(x, gain.shape, gain, epsilon)

    def layer_norm(self, x: Tensor, gain: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        return functional.layer_norm(x, gain.shape, gain, bias, epsilon)

    def head_norm(self, x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
        return functional.rms_norm(self._by_heads(x), gain.shape, gain, epsilon).flatten(1)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        if not self._is_for_onednn:
            return functional.linear(x, weight)
        if len(x) <= FEW_ROWS:
            return _few_rows_linear(x, weight)
        return functional.linear(x.to_mkldnn(), weight).to_dense()

    def add_bias(self, x: Tensor, bias: Tensor) -> Tensor:
        return x + bias

    def split(self, x: Tensor, widths: tuple[int, ...]) -> tuple[Tensor, ...]:
        return torch.split_with_sizes(x, widths, dim=-1)

    def store(self, layer: int, keys: Tensor, values: Tensor) -> None:
        self._storage[layer].index_copy_(2, self._step.written, self._written(layer, keys, values).transpose(1, 2))

    def attend(self, layer: int, queries: Tensor) -> Tensor:
        rotated = self._rotated(layer, queries)
        attended = [self._attend_span(layer, rotated[span.rows], span) for span in self._step.spans]
        return attended[0] if len(attended) == 1 else torch.cat(attended)

    def silu_multiply(self, gate: Tensor, up: Tensor) -> Tensor:
        return functional.silu(gate).mul_(up)

    def gelu_multiply(self, gate: Tensor, up: Tensor) -> Tensor:
        return self.gelu(gate).mul_(up)

    def gelu(self, x: Tensor) -> Tensor:
        return functional.gelu(x, approximate="tanh")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def asked_rows(self, x: Tensor) -> Tensor:
        return x if self._step.asked is None else x.index_select(0, self._step.asked)

    def program(self, forward: Callable[[], Tensor]) -> Program:
        return TorchProgram(self, forward)

    def choose(self, logits: Tensor, draws: Sequence[Draw]) -> list[Drawn]:
        return torch_choice.choose(logits, draws)

    def rank(self, logits: Tensor, rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]:
        return torch_choice.rank(logits, rankings)

    def score(self, logits: Tensor, scores: Sequence[Score]) -> list[Drawn]:
        return torch_choice.score(logits, scores)

    def read_logits(self, logits: Tensor, rows: Sequence[int]) -> NDArray[np.float32]:
        return logits[list(rows)].float().cpu().numpy()

    def start(self, batch: Batch) -> None:
        """Carry out the batch's copies in order; the operations then work on its rows."""
        for copy in batch.copies:
            self._copy(copy)
        self._step = build_step(batch, self._layout, self._frequencies, frozenset(filter(None, self._window_widths)))

    def _copy(self, copy: PageCopy) -> None:
        pages = self.pages[..., : copy.positions, :]
        pages[:, :, :, copy.target] = pages[:, :, :, copy.source]

    def _written(self, layer: int, keys: Tensor, values: Tensor) -> Tensor:
        """What pages hold of keys and values: [2, rows, kv heads, head width]."""
        return torch.stack((self._rotated(layer, keys), self._by_heads(values)))

    def _by_heads(self, x: Tensor) -> Tensor:
        """[rows, heads · head width] → [rows, heads, head width]."""
        return x.view(len(x), -1, self._head_width)

    def _rotated(self, layer: int, x: Tensor) -> Tensor:
        """x by heads, element i of each turned together with element i + half by its row's angles, if by any."""
        heads, rope = self._by_heads(x), self._ropes[layer]
        if rope is None:
            return heads
        swapped = heads.roll(self._head_width // 2, -1)
        cosines, sines = self._step.turns[rope]
        return torch.addcmul(heads * cosines, swapped, sines)

    def _attend_span(self, layer: int, queries: Tensor, span: Span) -> Tensor:
        """Rotated queries [rows, heads, head width] → [rows, heads · head width]."""
        keys, values = self._context(layer, span)
        by_sequence = queries.view(span.sequence_count, -1, *queries.shape[1:]).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(
            by_sequence,
            keys,
            values,
            attn_mask=span.masks[self._window_widths[layer]],
            scale=self._scale,
            enable_gqa=self._has_groups,
        )
        return attended.transpose(1, 2).reshape(len(queries), -1)

    def _context(self, layer: int, span: Span) -> tuple[Tensor, ...]:
        """Keys and values that a span reads: each [sequences, kv heads, context, head width]."""
        stored = self._storage[layer]
        if isinstance(span.positions, slice):
            return stored[:, None, :, span.positions].unbind()
        gathered = stored.view(-1, self._head_width).index_select(0, span.positions)
        shape = (2, self._layout.kv_head_count, span.sequence_count, span.context, self._head_width)
        return gathered.view(shape).transpose(1, 2).unbind()


class TorchProgram:
    """A decoder that calls the operations anew at every step."""

    def __init__(self, ops: TorchOps, forward: Callable[[], Tensor]) -> None:
        self._ops = ops
        self._forward = forward

    @torch.inference_mode()
    def run(self, batch: Batch) -> Tensor:
        self._ops.start(batch)
        return self._forward()


def _few_rows_linear(x: Tensor, weight: Tensor) -> Tensor:
    """x · weightᵀ with the outputs in blocks: a plain product of few rows uses one thread, and half its speed."""
    block_count = math.gcd(len(weight), OUTPUT_BLOCKS)
    blocks = weight.view(block_count, -1, weight.shape[1])
    products = torch.bmm(blocks, x.t().expand(block_count, -1, -1))  # [blocks, outputs in a block, rows]
    return products.view(len(weight), len(x)).t().contiguous()
