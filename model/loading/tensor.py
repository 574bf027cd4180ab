"""One weight as it lies in a model file: shape, block format and rows of bytes, read when asked for.

A weight that is stored in another way than by blocks has one all the same: that of the floats it stands for.

Knows no operations and no file formats. Always: rows are whole blocks, and a row is one output of a matrix.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from model.compression.matrix import GridMatrix
from model.compression.sparse import SparseMatrix


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """How consecutive weights of a row are packed, and the one function that unpacks them."""

    name: str
    block_size: int
    """Weights in a block."""
    block_bytes: int
    unpack: Callable[[NDArray[np.uint8]], NDArray[np.float32]]
    """[blocks, block_bytes] → [blocks, block_size]."""

    def row_bytes(self, width: int) -> int:
        return width // self.block_size * self.block_bytes


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A weight in its file's own format. `shape` is (outputs, inputs), or (width,) for a gain vector."""

    name: str
    shape: tuple[int, ...]
    format: BlockFormat
    read: Callable[[], NDArray[np.uint8]]
    """Reads [rows, bytes per row] from the file, rows in the order of `shape`."""
    grid: Callable[[], GridMatrix] | None = None
    """Reads the codes and scales that the file has in place of blocks; `read` gives the floats of the same weights."""
    pruned: Callable[[], SparseMatrix] | None = None
    """Reads the floats kept and the mask that the file has in place of blocks; `read` gives all floats, zeros and all.
    Never beside `grid`."""
    file_bytes: int | None = None
    """What the weight takes in the file, where that is not its blocks."""

    @property
    def stored_bytes(self) -> int:
        """What the weight takes in the file."""
        if self.file_bytes is not None:
            return self.file_bytes
        return prod(self.shape[:-1]) * self.format.row_bytes(self.shape[-1])

    def rows(self) -> NDArray[np.uint8]:
        return self.read()

    def dequantised(self) -> NDArray[np.float32]:
        """The weights as float32, in `shape`."""
        blocks = self.rows().reshape(-1, self.format.block_bytes)
        return self.format.unpack(blocks).reshape(self.shape)
