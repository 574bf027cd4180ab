"""Which block format of GGUF each tensor of a model gets, and its bytes there.

Knows formats and single tensors, no files. Always: gains are float32; a tensor that keeps its format keeps every byte;
what a conversion changed is measured on the very bytes that are written.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model.compression.codes import Codes, codes_of, codes_of_grid
from model.compression.gguf_blocks import BlockName, coded_rows, fitting, holds, rounded_rows
from model.compression.rounding import Rounding, rounding_of
from model.loading.ggml import BLOCK_SIZE, F32, FORMAT_BY_NAME
from model.loading.tensor import BlockFormat, StoredTensor

Wanted = BlockName | Literal["auto"]
"""A format for the linear layers, or for every matrix one that holds it exactly."""
_BY_SIZE: tuple[BlockName, ...] = ("Q4_0", "Q4_1", "Q8_0")
"""Formats of codes, the smallest first."""
_TABLES = ("embedding", "head")


@dataclass(frozen=True, slots=True)
class Converted:
    """A tensor in another format."""

    rows: NDArray[np.uint8]
    """[rows, bytes per row]"""
    rounding: Rounding | None
    """None: every weight is the same, but for the sign of zeros."""


def format_of(tensor: StoredTensor, wanted: Wanted) -> BlockFormat:
    """With a format wanted, embedding and head stay as stored, or become Q8_0 where that would be one of 4 bits.

    With `auto` a matrix stays as stored where GGUF has its format, and else gets the smallest that holds it exactly;
    where none does, F16.
    """
    if len(tensor.shape) == 1:
        return F32
    if wanted == "auto":
        return _as_stored(tensor) or _smallest_exact(tensor)
    if tensor.name in _TABLES:
        return _format_of_table(tensor, wanted)
    return FORMAT_BY_NAME[wanted]


def convert(tensor: StoredTensor, format: BlockFormat) -> Converted:
    """A matrix in a format. Raises ValueError, naming the tensor, for what the format cannot hold."""
    if tensor.format.name == format.name:
        return Converted(tensor.rows(), None)
    if format is F32:
        return Converted(tensor.dequantised().view(np.uint8), None)
    if tensor.shape[1] % format.block_size:
        raise ValueError(f"{tensor.name} has rows of {tensor.shape[1]}, which {format.name} does not divide")
    try:
        return _converted(tensor, format)
    except ValueError as error:
        raise ValueError(f"{tensor.name} cannot be written as {format.name}: {error}") from None


def _converted(tensor: StoredTensor, format: BlockFormat) -> Converted:
    name = _block_name(format)
    codes = _codes(tensor)
    fitted = None if codes is None else fitting(codes, name)
    if fitted is not None and holds(fitted, name):
        return Converted(coded_rows(fitted, name), None)
    weights = tensor.dequantised()
    rows = rounded_rows(weights, name) if fitted is None else coded_rows(fitted, name)
    again = format.unpack(rows.reshape(-1, format.block_bytes)).reshape(weights.shape)
    return Converted(rows, None if np.array_equal(again, weights) else rounding_of(weights, again))


def _as_stored(tensor: StoredTensor) -> BlockFormat | None:
    return FORMAT_BY_NAME.get(tensor.format.name)


def _format_of_table(tensor: StoredTensor, wanted: BlockName) -> BlockFormat:
    stored = _as_stored(tensor)
    if stored is not None and stored.block_size > 1:
        return stored
    if wanted != "F16" and not _is_exact(_codes(tensor), wanted):
        return FORMAT_BY_NAME["Q8_0"]
    return FORMAT_BY_NAME[wanted]


def _smallest_exact(tensor: StoredTensor) -> BlockFormat:
    codes = _codes(tensor)
    for name in _BY_SIZE:
        if _is_exact(codes, name):
            return FORMAT_BY_NAME[name]
    half = FORMAT_BY_NAME["F16"]
    return F32 if tensor.pruned is not None and tensor.pruned().values.dtype != np.float16 else half


def _is_exact(codes: Codes | None, name: BlockName) -> bool:
    fitted = None if codes is None else fitting(codes, name)
    return fitted is not None and holds(fitted, name)


def _codes(tensor: StoredTensor) -> Codes | None:
    """None for floats, and for groups that blocks of 32 would cut."""
    if tensor.grid is None:
        return codes_of(tensor)
    grid = tensor.grid()
    return None if grid.group % BLOCK_SIZE else codes_of_grid(tensor.name, grid)


def _block_name(format: BlockFormat) -> BlockName:
    match format.name:
        case "Q4_0" | "Q4_1" | "Q8_0" | "F16":
            return format.name
        case name:
            raise ValueError(f"nothing is converted to {name}")
