"""What one step of the torch op set needs beside weights: every index tensor, built once and used by all layers.

Knows where positions lie in the storage, never what lies there. Rows run in an order of its own, so that the
rows of one attention call lie together; asked rows come back in the batch's order.
Always: a position that no row of the call may see is masked, and it is never one that was not written: the
padding of short contexts reads the page after the last, which stays zero, so no stray NaN meets a result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from model.batch import Batch, Segment
from model.config import RopeScaling
from model.kv_cache import PAGE_SIZE, pages_for

LONG_CONTEXT = 512
"""Past this many positions, a call of its own on pages that lie in a row costs less than a padded copy of them."""


Rope = tuple[float, RopeScaling | None]
"""Base and scaling of rotary positions."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where pages lie: [layers, keys and values, kv heads, pages and one of zeros, positions, head width]."""

    kv_head_count: int
    page_count: int
    dtype: torch.dtype
    device: torch.device

    @property
    def position_count(self) -> int:
        """Positions of one head of one layer, those of the zero page included."""
        return (self.page_count + 1) * PAGE_SIZE


@dataclass(frozen=True, slots=True)
class Span:
    """The rows of one attention call: the decode rows of some sequences, or consecutive rows of one."""

    rows: slice
    sequence_count: int
    context: int
    """Positions that the call reads of each sequence: the longest context among them."""
    positions: slice | Tensor
    """Those positions in a layer's storage: a run of every head, or indices of heads and positions, flattened."""
    masks: Mapping[int | None, Tensor | None]
    """By the width of a window, and by None for layers without one: 0 where a row sees a position, −∞ elsewhere,
    [sequences, 1, rows, context]; None when all see all."""


@dataclass(frozen=True, slots=True)
class Step:
    """One batch as tensors."""

    token_ids: Tensor
    positions: Tensor
    written: Tensor
    """Where each row's keys and values go among the positions of a layer."""
    turns: Mapping[Rope, tuple[Tensor, Tensor]]
    """Cosines and sines of the rotary angles, [rows, 1, head width] each; the sines of the first half are negated."""
    asked: Tensor | None
    """Which rows' logits are wanted, in the batch's order; None when it is every row, as they stand."""
    spans: tuple[Span, ...]


def inverse_frequencies(head_width: int, base: float, scaling: RopeScaling | None) -> Tensor:
    """Rotary angle per position of each pair of a head, [head width / 2] in float32 (Su et al. 2021).

    Rounded in float32 operation by operation as the published implementation is, so that float64 logits agree
    with it; Llama 3's scaling too.
    """
    exponents = torch.arange(0, head_width, 2, dtype=torch.float32) / head_width
    frequencies = 1.0 / base**exponents
    if scaling is None:
        return frequencies
    wave_lengths = 2 * torch.pi / frequencies
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    smooth = (scaling.original_context_length / wave_lengths - low) / (high - low)
    between = (1 - smooth) * frequencies / scaling.factor + smooth * frequencies
    is_long = wave_lengths > scaling.original_context_length / low
    is_short = wave_lengths < scaling.original_context_length / high
    return torch.where(is_long, frequencies / scaling.factor, torch.where(is_short, frequencies, between))


def build_step(batch: Batch, layout: Layout, frequencies: Mapping[Rope, Tensor], window_widths: frozenset[int]) -> Step:
    """Order the rows of a batch and find their places; `frequencies` lie on the layout's device."""
    groups = _attention_groups(batch.segments)
    segments = [batch.segments[index] for group in groups for index in group]
    positions = _tensor([segment.start + i for segment in segments for i in range(len(segment.token_ids))], layout)
    return Step(
        token_ids=_tensor([token for segment in segments for token in segment.token_ids], layout),
        positions=positions,
        written=_tensor([place for segment in segments for place in _written_places(segment)], layout),
        turns={rope: _turns(positions, each, layout) for rope, each in frequencies.items()},
        asked=_asked(batch, [index for group in groups for index in group], layout),
        spans=_spans([[batch.segments[index] for index in group] for group in groups], layout, window_widths),
    )


def _turns(positions: Tensor, frequencies: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    angles = positions[:, None, None].float() * frequencies
    sines = angles.sin()
    return angles.cos().repeat(1, 1, 2).to(layout.dtype), torch.cat((-sines, sines), dim=-1).to(layout.dtype)


def _attention_groups(segments: Sequence[Segment]) -> list[list[int]]:
    """Which segments share an attention call: decode rows whose padded contexts are at most twice their own."""
    groups: dict[tuple[int, int], list[int]] = {}
    for index, segment in enumerate(segments):
        is_alone = len(segment.token_ids) > 1 or (segment.start >= LONG_CONTEXT and _lie_in_a_row(_pages_read(segment)))
        key = (1, index) if is_alone else (0, segment.start.bit_length())
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def _context(segment: Segment) -> int:
    return segment.start + len(segment.token_ids)


def _pages_read(segment: Segment) -> tuple[int, ...]:
    return segment.pages[: pages_for(_context(segment))]


def _lie_in_a_row(pages: tuple[int, ...]) -> bool:
    return pages == tuple(range(pages[0], pages[0] + len(pages)))


def _written_places(segment: Segment) -> list[int]:
    return [
        segment.pages[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE
        for position in range(segment.start, _context(segment))
    ]


def _asked(batch: Batch, order: list[int], layout: Layout) -> Tensor | None:
    ends = dict(zip(order, accumulate(len(batch.segments[index].token_ids) for index in order), strict=True))
    asked = [row for index, each in enumerate(batch.segments) for row in range(ends[index] - each.asks, ends[index])]
    return None if asked == list(range(batch.row_count)) else _tensor(asked, layout)


def _spans(groups: list[list[Segment]], layout: Layout, window_widths: frozenset[int]) -> tuple[Span, ...]:
    spans, first = [], 0
    for group in groups:
        row_count = sum(len(segment.token_ids) for segment in group)
        spans.append(_span(group, slice(first, first + row_count), layout, window_widths))
        first += row_count
    return tuple(spans)


def _span(group: list[Segment], rows: slice, layout: Layout, window_widths: frozenset[int]) -> Span:
    context = max(_context(segment) for segment in group)
    pages = _pages_read(group[0])
    places: slice | Tensor
    if len(group) == 1 and _lie_in_a_row(pages):
        places = slice(pages[0] * PAGE_SIZE, pages[0] * PAGE_SIZE + context)
    else:
        places = _gathered_places(group, context, layout)
    whole = _mask(group, context, layout)
    masks: dict[int | None, Tensor | None] = {None: whole}
    for width in window_widths:
        masks[width] = whole if context <= width else _window_mask(group, context, width, layout)
    return Span(rows, len(group), context, places, masks)


def _gathered_places(group: list[Segment], context: int, layout: Layout) -> Tensor:
    """[keys and values · kv heads · sequences · context] indices of head widths in a layer's storage."""
    longest = pages_for(context)
    table = _tensor([_padded(_pages_read(segment), longest) for segment in group], layout)
    offsets = torch.arange(PAGE_SIZE, device=layout.device)
    places = (table[:, :, None] * PAGE_SIZE + offsets).view(len(group), -1)[:, :context]
    contexts = _tensor([_context(segment) for segment in group], layout)
    is_written = torch.arange(context, device=layout.device) < contexts[:, None]
    places = torch.where(is_written, places, layout.page_count * PAGE_SIZE)
    heads = torch.arange(2 * layout.kv_head_count, device=layout.device) * layout.position_count
    return (heads[:, None] + places.reshape(-1)).view(-1)


def _padded(pages: tuple[int, ...], count: int) -> tuple[int, ...]:
    return pages + (0,) * (count - len(pages))


def _mask(group: list[Segment], context: int, layout: Layout) -> Tensor | None:
    seen = [range(segment.start + 1, _context(segment) + 1) for segment in group]
    if all(counts == range(context, context + 1) for counts in seen):
        return None
    is_seen = torch.arange(context, device=layout.device) < _tensor(seen, layout)[:, None, :, None]
    return _masked(is_seen, layout)


def _window_mask(group: list[Segment], context: int, width: int, layout: Layout) -> Tensor:
    """Of rows that see no more than `width` positions, their own among them."""
    own = _tensor([range(segment.start, _context(segment)) for segment in group], layout)[:, None, :, None]
    positions = torch.arange(context, device=layout.device)
    return _masked((positions <= own) & (positions > own - width), layout)


def _masked(is_seen: Tensor, layout: Layout) -> Tensor:
    return torch.zeros(is_seen.shape, dtype=layout.dtype, device=layout.device).masked_fill_(~is_seen, -torch.inf)


def _tensor(numbers: Sequence[int] | Sequence[Sequence[int]], layout: Layout) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64, device=layout.device)
