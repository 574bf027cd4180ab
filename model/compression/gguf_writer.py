"""Writes any loaded model as a GGUF file for other programs.

Does not choose formats, nor knows how blocks or files are laid out. Always: a file is whole or absent; queries and keys
lie in it in the order that GGUF has for a Llama.
"""

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.compression.gguf_choice import Wanted, convert, format_of
from model.compression.rounding import Rounding
from model.loading.checkpoint import Checkpoint
from model.loading.durable import sync_folder
from model.loading.gguf import permute_rows
from model.loading.gguf_file import Written, write_gguf_file
from model.loading.names import gguf_name
from model.loading.tensor import BlockFormat, StoredTensor


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a file holds."""

    formats: Mapping[str, BlockFormat]
    """Of each tensor."""
    rounded: Mapping[str, Rounding]
    """What was changed, of each tensor that lost something to its format."""


def write_gguf(
    path: Path,
    checkpoint: Checkpoint,
    wanted: Wanted,
    *,
    overwrite: bool = False,
    on_tensor: Callable[[], None] = lambda: None,
) -> Outcome:
    """Write a model whose linear layers are in a format, or each matrix in one that holds it; whole or absent.

    Args:
        overwrite: take the place of a file that is there.
        on_tensor: called after each tensor.

    Raises:
        ValueError: naming the tensor, for what the format cannot hold.
        ModelFileError: when the source cannot be read.
        OSError: when the file cannot be written; FileExistsError when it is there already.
    """
    if checkpoint.config.architecture == "gpt2":
        raise ValueError("a GPT-2 cannot be exported: what joins its queries, keys and values would have to be built")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} is there already")
    writing = _Writing(checkpoint, wanted, on_tensor)
    working = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        write_gguf_file(working, checkpoint, writing.tensors())
        if overwrite:
            working.replace(path)
        else:
            os.link(working, path)  # unlike a rename, it never replaces a file that came into being meanwhile
    finally:
        working.unlink(missing_ok=True)
    sync_folder(path.parent)
    return Outcome(writing.formats, writing.rounded)


class _Writing:
    """A model's tensors on their way into a file, and what is known of them when all were read."""

    def __init__(self, checkpoint: Checkpoint, wanted: Wanted, on_tensor: Callable[[], None]) -> None:
        self._tensors = checkpoint.tensors
        config = checkpoint.config
        permuted = config.architecture == "llama"
        self._heads = {"query": config.head_count, "key": config.kv_head_count} if permuted else {}
        self._on_tensor = on_tensor
        self.formats = {name: format_of(tensor, wanted) for name, tensor in checkpoint.tensors.items()}
        self.rounded: dict[str, Rounding] = {}

    def tensors(self) -> dict[str, Written]:
        """By their names in GGUF; each is read when it is written."""
        return {gguf_name(name): self._written(tensor) for name, tensor in self._tensors.items()}

    def _written(self, tensor: StoredTensor) -> Written:
        return Written(self.formats[tensor.name], tensor.shape, lambda: self._read(tensor))

    def _read(self, tensor: StoredTensor) -> NDArray[np.uint8]:
        converted = convert(tensor, self.formats[tensor.name])
        if converted.rounding is not None:
            self.rounded[tensor.name] = converted.rounding
        heads = self._heads.get(tensor.name.rpartition(".")[2])
        self._on_tensor()
        return converted.rows if heads is None else permute_rows(converted.rows, heads)
