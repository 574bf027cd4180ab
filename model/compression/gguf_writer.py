"""Writes any loaded model as a GGUF file for other programs.

Knows which format each tensor gets, not how blocks or files are laid out. Always: embedding and head stay as they are
stored where GGUF has their format; gains are float32; matrices that the format holds exactly keep every bit.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.compression.codes import codes_of
from model.compression.gguf_blocks import BlockName, exact_rows, rounded_rows
from model.loading.checkpoint import Checkpoint
from model.loading.ggml import F32, FORMATS
from model.loading.gguf import permute_rows
from model.loading.gguf_file import Written, write_gguf_file
from model.loading.names import gguf_name
from model.loading.tensor import StoredTensor

_FORMATS = {format.name: format for format in FORMATS.values()}
_KEPT = ("embedding", "head")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a file holds: which tensors lost bits to its format."""

    rounded: tuple[str, ...]


def write_gguf(path: Path, checkpoint: Checkpoint, format: BlockName) -> Outcome:
    """Write a model whose linear layers are in `format`; the file is whole or absent.

    Raises ValueError, naming the tensor, for what the format cannot hold, and OSError; FileExistsError when the file is
    there already.
    """
    if path.exists():
        raise FileExistsError(f"{path} is there already")
    plan = _Plan(checkpoint, format)
    working = path.with_name(path.name + ".partial")
    working.unlink(missing_ok=True)
    try:
        tensors = {gguf_name(name): plan.written(tensor) for name, tensor in checkpoint.tensors.items()}
        write_gguf_file(working, checkpoint, tensors)
        os.link(working, path)
    finally:
        working.unlink(missing_ok=True)
    return Outcome(tuple(plan.rounded))


class _Plan:
    """Chooses formats, and remembers what was rounded while tensors were written."""

    def __init__(self, checkpoint: Checkpoint, format: BlockName) -> None:
        self._heads = {"query": checkpoint.config.head_count, "key": checkpoint.config.kv_head_count}
        self._format = format
        self.rounded: list[str] = []

    def written(self, tensor: StoredTensor) -> Written:
        if len(tensor.shape) == 1:
            return Written(F32, tensor.shape, lambda: tensor.dequantised().reshape(1, -1).view(np.uint8))
        if tensor.format.name == self._format or (tensor.name in _KEPT and tensor.format.name in _FORMATS):
            return Written(tensor.format, tensor.shape, self._permuted(tensor, tensor.rows))
        format = _FORMATS[self._format]
        if tensor.shape[1] % format.block_size:
            raise ValueError(f"{tensor.name} has rows of {tensor.shape[1]}, which {format.name} does not divide")
        return Written(format, tensor.shape, self._permuted(tensor, lambda: self._converted(tensor)))

    def _permuted(self, tensor: StoredTensor, read: Callable[[], NDArray[np.uint8]]) -> Callable[[], NDArray[np.uint8]]:
        heads = self._heads.get(tensor.name.rpartition(".")[2])
        return read if heads is None else lambda: permute_rows(read(), heads)

    def _converted(self, tensor: StoredTensor) -> NDArray[np.uint8]:
        rows = None
        if tensor.grid is None or tensor.grid().group % _FORMATS["Q4_1"].block_size == 0:
            codes = codes_of(tensor)
            rows = None if codes is None else exact_rows(codes, self._format)
        if rows is not None:
            return rows
        weights = tensor.dequantised()
        try:
            rows = rounded_rows(weights, self._format)
        except ValueError as error:
            raise ValueError(f"{tensor.name} cannot be written as {self._format}: {error}") from None
        again = _FORMATS[self._format].unpack(rows.reshape(-1, _FORMATS[self._format].block_bytes))
        if not np.array_equal(again.reshape(weights.shape), weights):
            self.rounded.append(tensor.name)
        return rows
